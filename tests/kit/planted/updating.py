"""Updates of executables that do less or more than they say."""

from __future__ import annotations

from typing import Any

from accelerator_graph.backends._cpu.graph import _Plan
from accelerator_graph.backends.base import Misfit
from accelerator_graph.backends.cpu import CpuBackend
from kit.explicit_runtime import Explicit
from kit.planted.collection import caught_by


@caught_by("test_updated_graph_does_the_work_of_the_other", "test_backend_update_changes_all_or_nothing")
class UpdatesNothing(CpuBackend):
    def update(self, executable: Any, former: Any, graph: Any) -> Misfit | None:
        return None


@caught_by("test_updated_graph_gets_work_of_another_shape")
class TakesEveryGraphForAlike(CpuBackend):
    def update(self, executable: Any, former: Any, graph: Any) -> Misfit | None:
        executable._plan = _Plan(graph.nodes[: len(former.nodes)])
        return None


@caught_by("test_backend_update_changes_all_or_nothing")
class UpdatesAndSaysNo(CpuBackend):
    def update(self, executable: Any, former: Any, graph: Any) -> Misfit | None:
        executable._plan = _Plan(graph.nodes)
        return Misfit("it differs")


@caught_by("test_runs_under_way_do_the_former_work")
class UpdatesRunsUnderWay(CpuBackend):
    def update(self, executable: Any, former: Any, graph: Any) -> Misfit | None:
        if len(former.nodes) != len(graph.nodes):
            return Misfit("it differs")
        executable._plan.nodes = graph.nodes
        executable._plan.calls[:] = [node.call for node in graph.nodes]
        return None


@caught_by("test_updated_graph_does_the_work_of_the_other")
class ExplicitUpdatesNothing(Explicit):
    def update(self, executable: Any, former: Any, graph: Any) -> Misfit | None:
        return None


@caught_by("test_backend_update_changes_all_or_nothing")
class ExplicitGivesNoReason(Explicit):
    def update(self, executable: Any, former: Any, graph: Any) -> Misfit | None:
        return Misfit("")


@caught_by("test_backend_update_changes_all_or_nothing")
class ExplicitForgetsTheFormerWork(Explicit):
    def update(self, executable: Any, former: Any, graph: Any) -> Misfit | None:
        executable.entries = ()
        return Misfit("it differs")
