"""A time limit for waiting, and a report that says where a replay hangs."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, Self, TextIO

from .._interpreter import boolean
from .._interpreter.interruptions import if_skipped, sure_exit
from ..api import Graph
from ..inspection.progress import markers_of
from .ranks_groups import Peers, check_seconds, peers_of

_PATIENCE = 5.0
"""How many seconds a watchdog waits for what the other ranks' watchdogs say."""
_SILENT = "its watchdog has reported nothing: it is not waiting for a graph, or it has ended"


class WatchdogReport(NamedTuple):
    """The report of a watchdog. ``str()`` is the text that it writes."""

    rank: int | None
    """This rank, counted in the whole program; None if there are no others, or that is not known."""
    seconds: float
    """How long the block had been running."""
    places: dict[int, str]
    """Where each rank's graph is, in words."""
    stacks: dict[str, str]
    """The stacks of this process's threads, by their names."""

    def __str__(self) -> str:
        who = "" if self.rank is None else f"rank {self.rank} is "
        lines = [f"watchdog: {who}still waiting after {self.seconds:g} s"]
        for rank, place in self.places.items():
            lines.append(f"  {place}" if self.rank is None else f"  rank {rank}: {place}")
        for name, stack in self.stacks.items():
            lines += [f"thread {name!r}, innermost call last:", stack.rstrip("\n")]
        return "\n".join(lines)


class watchdog:
    """Say which rank is in which label if a ``with`` block takes too long, and show all threads' stacks.

    Put it around whatever waits for replays. If the block has not been left after so many seconds, a report
    is written: for each rank how far its latest replay has come, and the stacks of this process. The block
    goes on afterwards, unless `exit` is True.

    Parameters
    ----------
    graph : Graph
        The graph that is replayed. Make it with ``observe=progress()``, and label its parts: without that,
        only the stacks are known.
    seconds : float
        How long the block may take.
    group
        The ranks to ask, as in `check_ranks`; by default those of torch.distributed if it was initialised,
        otherwise this process alone. Each rank has to enter its watchdogs in the same order.
    file : text file, optional
        Where the report goes; by default ``sys.stderr``.
    exit : bool
        End the process with status 1 after the report, without further clean-up: nothing else ends a process
        that waits for a collective.

    Raises
    ------
    TypeError, ValueError
        An argument is of the wrong type or value.

    Examples
    --------
    ::

        graph.replay()
        with ag.watchdog(graph, seconds=60):
            graph.stream.synchronize()
    """

    report: WatchdogReport | None
    """The report, once there is one."""

    def __init__(
        self,
        graph: Graph,
        seconds: float,
        group: Any = None,
        *,
        file: TextIO | None = None,
        exit: bool = False,
    ) -> None:
        if not isinstance(graph, Graph):
            raise TypeError(f"watchdog: the argument must be an accelerator_graph.Graph, not {graph!r}.")
        check_seconds(seconds, "watchdog: seconds")
        if file is not None and not callable(getattr(file, "write", None)):
            raise TypeError(f"watchdog: file must be a text file, not {file!r}.")
        self.report = None
        self._graph = graph
        self._seconds = seconds
        self._group = group
        self._file = file
        self._exit = boolean(exit, "watchdog: exit")
        self._blocks: list[tuple[SimpleQueue[bool], object]] = []

    def __repr__(self) -> str:
        return f"watchdog({self._graph!r}, seconds={self._seconds!r})"

    def __enter__(self) -> Self:
        left: SimpleQueue[bool] = SimpleQueue()
        guard = if_skipped(self, partial(self._leave, left))
        peers = peers_of(self._group, "watchdog")
        self._thread = threading.Thread(
            target=self._watch, args=(left, peers), name="accelerator_graph watchdog", daemon=True
        )
        self._thread.start()
        self._blocks.append((left, guard))
        return self

    @sure_exit
    def __exit__(self, *exc: object) -> None:
        self._leave(self._blocks[-1][0])

    def _leave(self, left: SimpleQueue[bool]) -> None:
        """End the watch over a block. May be called again."""
        left.put(True)
        self._blocks = [block for block in self._blocks if block[0] is not left]

    def _watch(self, left: SimpleQueue[bool], peers: Peers | None) -> None:
        with suppress(Empty):
            left.get(timeout=self._seconds)
            return
        try:
            self.report = self._seen(peers)
            print(self.report, file=self._file or sys.stderr, flush=True)
        finally:  # even if nothing can be written
            if self._exit and left.empty():
                os._exit(1)

    def _seen(self, peers: Peers | None) -> WatchdogReport:
        """Find out where each rank is."""
        place, stacks = _place(self._graph), _stacks()
        own, places = None, {0: place}
        if peers is not None:
            try:
                answers = peers.exchange(place, _PATIENCE)
                own, places = answers.own, {rank: text or _SILENT for rank, text in answers.texts.items()}
            except Exception as error:  # the group may have ended; a function raises anything
                own, place = peers.own, f"{place} (the other ranks can't be asked: {error})"
                places = {own or 0: place}
        return WatchdogReport(own, self._seconds, places, stacks)


def _place(graph: Graph) -> str:
    markers = markers_of(graph)
    return str(markers.place()) if markers else "not known, since its graph was made without progress()"


def _stacks() -> dict[str, str]:
    """Return the stacks of all threads but this one."""
    frames = sys._current_frames()
    found: dict[str, str] = {}
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        if frame is not None and thread is not threading.current_thread():
            name = thread.name if thread.name not in found else f"{thread.name} ({thread.ident})"
            found[name] = "".join(traceback.format_stack(frame))
    return found
