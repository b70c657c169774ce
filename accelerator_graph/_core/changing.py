"""One change of a graph at a time: a signal handler or a finaliser can't change what it has interrupted."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from threading import get_ident
from typing import TYPE_CHECKING

from .._interpreter.sure_exit import Section
from ..errors import GraphStateError

if TYPE_CHECKING:
    from typing import Protocol

    class Changeable(Protocol):
        """What replays a graph."""

        changing: Changing | None
        ended: str
        keeps_graph: bool

        @property
        def lock(self) -> AbstractContextManager[object]: ...


class Changing(Section):
    """Encloses a change of a graph; raises `GraphStateError` in the middle of another one by this thread."""

    __slots__ = ("_runner", "_what", "thread")

    def __init__(self, runner: Changeable, what: str) -> None:
        self._runner = runner
        self._what = what
        self.thread = get_ident()

    def begin(self) -> None:
        """Note that the graph is being changed."""
        refuse_in_a_change(self._runner, self._what)
        self._runner.changing = self

    def end(self) -> None:
        """Note that the change is over."""
        if self._runner.changing is self:
            self._runner.changing = None


def refuse_in_a_change(runner: Changeable, what: str) -> None:
    """Raise `GraphStateError` if this thread is changing the graph already, or the graph was reset."""
    change = runner.changing
    if change is not None and change.thread == get_ident():
        raise GraphStateError(
            f"Graph.{what}: this thread is in the middle of another change of the graph; call it afterwards, "
            "not in a signal handler or a finaliser."
        )
    if runner.ended:
        raise GraphStateError(f"{runner.ended}.")


def change_lock(runner: Changeable) -> AbstractContextManager[object]:
    """Return what changes of a graph hold. Other threads wait for it, if the graph was kept."""
    return runner.lock if runner.keeps_graph else nullcontext()
