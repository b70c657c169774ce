"""The observer `ownership`, and what `Graph.watch` adds: arrays that a graph needs, and when it is checked.

Nothing is asked ahead of a replay as long as they live: an array that goes has the next replay checked.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .._core.observers import CHECK, Lasting, Observer
from .._interpreter import integer, variable
from .arrays import WatchedMemory, watched

if TYPE_CHECKING:
    from .._core.replay import Runner


class Watchlist:
    """Arrays that one graph needs. Each executable is checked ahead of its first run, and once one is gone.

    Parameters
    ----------
    every : int
        Check it ahead of every so many replays as well; 0 for no others.
    keeps_graph : bool
        Whether the graph's definition is to be kept, so that its addresses can be checked.
    """

    def __init__(self, every: int = 0, *, keeps_graph: bool = False) -> None:
        self._entries: dict[int, WatchedMemory] = {}
        self._every = every
        self.keeps_graph: bool = keeps_graph
        self._thread = threading.get_ident()
        self._replays = 0
        self._due = True
        self._checked: object = None
        """The key of the executable that was checked last."""
        self._runner: weakref.ref[Runner] | None = None

    def add(self, array: object) -> None:
        """Watch an array at the user's request. Raises TypeError if it can't be referenced weakly."""
        self._add(array, "watched", threading.get_ident())

    def used(self, array: object) -> Callable[[], object]:
        """Watch an array that the thread uses which has made this; return the undo."""
        return self._add(array, "first used", self._thread)

    def arrays(self) -> list[WatchedMemory]:
        """Return the arrays, gone or not."""
        return list(self._entries.values())

    def hand_on(self) -> Watchlist | None:
        """Return what stays with the work; None if there is nothing to check."""
        if not self._entries and not self.keeps_graph:
            return None
        return self if self._runner is None else self._copy()

    def kept_by(self, runner: Runner) -> None:
        """Note which graph's replays are checked."""
        self._runner, self._due = weakref.ref(runner), True

    def check(self) -> bool:
        """Check the graph ahead of a replay, if that is due; return True if it is not due at the next one.

        Raises
        ------
        GraphStateError
            The replay would use memory that is not the graph's any more.
        """
        from .check import refuse_what_is_wrong

        runner = None if self._runner is None else self._runner()
        executable = None if runner is None else runner.executable
        due = self._due or executable is None or executable.key is not self._checked
        due = due or bool(self._every and self._replays % self._every == 0)
        self._replays += 1
        if runner is not None and executable is not None and due:
            self._due, self._checked = False, executable.key
            try:
                refuse_what_is_wrong(runner)
            except BaseException:
                self._due = True
                raise
        return not self._every and not self._due

    def alarm(self) -> None:
        """Have the next replay checked. Waits for nobody: an array can go in the middle of anything."""
        self._due = True
        runner = None if self._runner is None else self._runner()
        executable = None if runner is None else runner.executable
        if executable is not None:
            executable.let_go()

    def _copy(self) -> Watchlist:
        copy = Watchlist(self._every, keeps_graph=self.keeps_graph)
        for key, entry in list(self._entries.items()):
            entry.watched_by.append(weakref.ref(copy))
            copy._entries[key] = entry
        return copy

    def _add(self, array: object, how: str, thread: int) -> Callable[[], object]:
        entry = watched(array, how, thread)
        entry.watched_by.append(weakref.ref(self))
        key = id(entry)
        self._entries[key] = entry
        return lambda: self._entries.pop(key, None)


class Watched(Watchlist, Lasting):
    """The arrays that a graph watches until it is reset, whatever work it does."""

    def hand_on(self) -> Watchlist | None:
        """Return a list of the present arrays."""
        return self._copy() if self._entries else None

    def __bool__(self) -> bool:
        return bool(self._entries)


class ownership(Observer):
    """Refuse replays once memory that the captured work uses is gone: `Graph(observe=ownership())`.

    A graph goes on using the addresses that it was captured with. If an array was freed meanwhile, the
    results are wrong, without an error. With this observer the graph is kept, and the arrays that the work
    uses are referenced weakly, as far as their frameworks can see them; `Graph.watch` adds others. So
    `Graph.check` knows of memory that was freed even if somebody else has it now.

    The first replay checks the graph like that, and so does the next one after an array is gone. If something
    is wrong, it raises `GraphStateError`, which names the array. All other replays cost nothing more.

    For a whole program, there is the environment variable ``ACCELERATOR_GRAPH_CHECK``: ``1``, or ``every:N``
    for `every`; ``0`` forbids it.

    Parameters
    ----------
    every : int
        Check the graph ahead of every so many replays as well, which takes about as long as `Graph.describe`.
        0 for no others.

    Raises
    ------
    TypeError, ValueError
        `every` is not an integer, or is negative.

    Examples
    --------
    ::

        with torch.cuda.Stream(), ag.Graph(observe=ag.ownership()) as graph:
            y = model(x)
        graph.replay()
        print(graph.check())
    """

    __slots__ = ("_every",)

    def __init__(self, every: int = 0) -> None:
        self._every = integer(every, "ownership: every")
        if self._every < 0:
            raise ValueError(f"ownership: every must not be negative, but is {every}.")

    def begin(self, capture: Any) -> object | None:
        """Watch the arrays of a capture, unless another observer does, or the environment forbids it."""
        if variable(CHECK) == "0":
            return None
        found = any(isinstance(each, Watchlist) for each in capture.observations)
        return None if found else Watchlist(self._every, keeps_graph=True)
