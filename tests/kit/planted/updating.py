"""Updates of executables, and changes of their nodes, that do less or more than they say."""

from __future__ import annotations

from typing import Any

from accelerator_graph.backends._cpu.graph import _Plan
from accelerator_graph.backends.base import CaptureStatus, GraphContents, Misfit, NodeSetter, UpdatesGraphs
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
class ExplicitUpdatesNothing(Explicit, UpdatesGraphs):
    def update(self, executable: Any, former: Any, graph: Any) -> Misfit | None:
        return None


@caught_by("test_backend_update_changes_all_or_nothing")
class ExplicitGivesNoReason(Explicit, UpdatesGraphs):
    def update(self, executable: Any, former: Any, graph: Any) -> Misfit | None:
        return Misfit("")


@caught_by("test_backend_update_changes_all_or_nothing")
class ExplicitForgetsTheFormerWork(Explicit, UpdatesGraphs):
    def update(self, executable: Any, former: Any, graph: Any) -> Misfit | None:
        executable.entries = ()
        return Misfit("it differs")


@caught_by("test_what_can_be_changed_is_reported")
class TellsThatNothingCanBeChanged(CpuBackend):
    def nodes(self, graph: Any, executable: Any = None) -> GraphContents:
        nodes, edges = super().nodes(graph)
        return [node._replace(settable=()) for node in nodes], edges


class _Setter(CpuBackend):
    def node_setter(self, graph: Any, executable: Any, node: int, *inside: int) -> NodeSetter | None:
        found = super().node_setter(graph, executable, node, *inside)
        if found is not None:
            self.spoil(found, graph, executable, node)
        return found

    def spoil(self, setter: Any, graph: Any, executable: Any, node: int) -> None:
        raise NotImplementedError


@caught_by(
    "test_changed_nodes_do_something_else_in_later_runs",
    "test_node_inside_a_recorded_run_is_changed_there_alone",
    "test_two_executables_are_changed_apart",
)
class ChangesNothing(_Setter):
    def spoil(self, setter: Any, graph: Any, executable: Any, node: int) -> None:
        setter._apply = lambda: None


@caught_by("test_disabled_nodes_are_left_out")
class DisablesNothing(_Setter):
    def spoil(self, setter: Any, graph: Any, executable: Any, node: int) -> None:
        setter.enable = lambda wanted: None


@caught_by("test_disabled_nodes_are_left_out")
class ChangesEnable(_Setter):
    def spoil(self, setter: Any, graph: Any, executable: Any, node: int) -> None:
        real = setter._apply
        setter._apply = lambda: (setter.enable(True), real())


@caught_by("test_node_inside_a_recorded_run_is_changed_there_alone")
class ChangesAllRunsOfAGraphInside(_Setter):
    def spoil(self, setter: Any, graph: Any, executable: Any, node: int) -> None:
        real = setter._apply

        def apply() -> None:
            shared = executable.nodes[node].call[0].__self__
            real()
            shared.calls[:] = executable.nodes[node].call[0].__self__.calls

        setter._apply = apply


@caught_by("test_changed_nodes_do_something_else_in_later_runs")
class ChangesTheGraph(_Setter):
    def spoil(self, setter: Any, graph: Any, executable: Any, node: int) -> None:
        real = setter._apply

        def apply() -> None:
            real()
            graph.nodes = executable.nodes

        setter._apply = apply


@caught_by("test_what_can_be_changed_is_reported")
class SettersAreOfAnotherSize(_Setter):
    def spoil(self, setter: Any, graph: Any, executable: Any, node: int) -> None:
        setter.nbytes += 1


@caught_by("test_backend_update_changes_all_or_nothing")
class MisfitsAreOfNoNode(CpuBackend):
    def update(self, executable: Any, former: Any, graph: Any) -> Misfit | None:
        misfit = super().update(executable, former, graph)
        return None if misfit is None else Misfit(misfit.reason, len(graph.nodes))


@caught_by("test_backend_update_changes_all_or_nothing")
class ExplicitMisfitsAreSentences(Explicit, UpdatesGraphs):
    def update(self, executable: Any, former: Any, graph: Any) -> Misfit | None:
        return Misfit("They differ.")


@caught_by("test_calls_about_other_objects_disturb_no_capture")
class UpdatingBreaksCaptures(CpuBackend):
    def update(self, executable: Any, former: Any, graph: Any) -> Misfit | None:
        for capture in self.captures._open:
            capture.status = CaptureStatus.INVALIDATED
        return super().update(executable, former, graph)
