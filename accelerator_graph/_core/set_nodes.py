"""`Graph.set_node` and `Graph.set_nodes`: all changes of an executable's nodes, or none of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .._interpreter.sure_exit import Section
from ..backends.base import Recorder
from ..errors import AcceleratorGraphError, GraphStateError, UnsupportedError
from .changing import Changing, change_lock
from .launch_lock import launch_lock
from .node_change import NodeChange
from .node_changes import NodeChanges, Step

if TYPE_CHECKING:
    from .capture import Captured
    from .lifecycle import Lifecycle
    from .replay import Runner

_HALF_DONE = "changes of its nodes could not be undone; call instantiate(), and make them again"


class _Changing(Section):
    """Does all steps on entry, or none. If some were done and can't be undone, drops the executable."""

    __slots__ = ("_begun", "_changes", "_complete", "_runner", "_steps")

    def __init__(self, changes: NodeChanges, steps: Sequence[Step], runner: Runner) -> None:
        self._changes = changes
        self._steps = steps
        self._runner = runner
        self._begun: list[Step] = []
        self._complete = False

    def begin(self) -> None:
        """Do the steps."""
        self._changes.under_way = True
        for step in self._steps:
            self._begun.append(step)
            try:
                step.do()
            except AcceleratorGraphError:
                self._begun.pop()  # it has changed nothing
                raise
        self._complete = True

    def end(self) -> None:
        """Note what was done, or undo it."""
        if self._complete:
            for step in self._steps:
                step.done()
        else:
            try:
                for step in reversed(self._begun):
                    step.undo()
            except Exception:  # whatever it was, nobody knows any more what the nodes would do
                self._runner.drop(_HALF_DONE)
        self._changes.under_way = False


def set_nodes(graph: Lifecycle, what: str, wanted: Mapping[int, NodeChange]) -> None:
    """Change nodes of a graph's executable: all changes, or none.

    If changes can't be undone, the graph has no executable any more.
    """
    runner = graph._runner_for(what)
    with change_lock(runner), Changing(runner, what):
        captured = graph._kept(what)
        if type(captured.backend).node_setter is Recorder.node_setter:
            raise UnsupportedError(
                f"Graph.{what}: backend {captured.backend.name!r} can't change nodes of an executable; "
                "capture the work again, with recapture()."
            )
        changes = _changes_of(runner, captured, what)
        steps = changes.prepare(what, wanted, runner.num_nodes())
        lock = launch_lock(runner)
        if lock is None:
            raise GraphStateError(
                f"Graph.{what}: another thread is launching the graph; wait for it, and try again."
            )
        try:
            with lock, _Changing(changes, steps, runner):
                pass
        except BaseException as error:
            if runner.dropped:
                error.add_note("The executable was changed in part, and the graph has none now.")
            raise


def _changes_of(runner: Runner, captured: Captured, what: str) -> NodeChanges:
    executable = runner.executable
    assert executable is not None
    if executable.made_of is not captured.value:
        raise GraphStateError(
            f"Graph.{what}: the executable was updated in place with the work of another graph, whose nodes "
            "it does not know; call instantiate() first."
        )
    if executable.changes is None:
        backend = captured.backend
        executable.changes = NodeChanges(captured.recorder, backend, captured.value, executable.value)
    return executable.changes
