"""Observers: the one way to take part in a capture. Labels, collectives and every tool are observers."""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any

from .._interpreter import caller, integer
from . import capture_table
from .capture import report_collective

DIAGNOSE = "ACCELERATOR_GRAPH_DIAGNOSE"
"""The environment variable that has every graph diagnosed."""
CHECK = "ACCELERATOR_GRAPH_CHECK"
"""The environment variable that has every graph know the arrays that it uses, or forbids that."""


def check_every(value: str) -> int | None:
    """Return after how many replays each `CHECK` asks for a check: 0 for the first one only, None for none.

    Raises ValueError if the variable has a value that says nothing.
    """
    word, _, number = value.partition(":")
    if word == "every" and number.isdecimal() and int(number):
        return int(number)
    if value not in ("", "0", "1"):
        raise ValueError(f"{CHECK} is {value!r}; set it to 1, 0 or every:N, such as every:100, or unset it.")
    return 0 if value == "1" else None


class Observer:
    """Base class of what takes part in captures: `Graph(observe=...)`.

    `begin` returns an object for one capture, so an observer may serve several graphs, on several threads.
    The library calls those of these methods that the object has:

    - ``begun()``: The stream is being captured from here on.
    - ``border(labels)``: A `label` was entered or left. `labels` are the names that are open now, the
      outermost first.
    - ``used(array)``: A framework reports an array from before the capture that the captured work uses, at
      its first use. Returns a callable that takes the report back.
    - ``collective(collective)``: The captured work asks for a `Collective`.
    - ``inside(capture)``: The body of a loop or a branch that the device tests is about to be captured, by a
      capture of its own. May add to ``capture.observations``.
    - ``stop()``: The captured code has ended, well or not, or the capture did not begin. Called on any
      thread, perhaps twice; must not raise.
    - ``end()``: Then, if it has ended well, while the stream is still being captured.
    - ``explained(error, cause)``: The capture has failed. Returns the `CaptureError` to raise in the place
      of `error`; `cause` is what the captured code raised, or None.
    - ``succeeded(captured)``: The capture has become a graph. If this raises, the graph is given up, and
      the exception passes.
    - ``own_nodes``: An int: how many nodes of the graph the observer has recorded. A capture of no others
      is empty.
    - ``hand_on()``: A graph takes over the work: the one that was captured, and later another one by
      `Graph.update`, `Graph.clone` or `Graph.recapture`. Returns the object that stays with the work there,
      or None. Without this method, nothing stays.
    - ``own_name(node)``: Of an object that stays: the name by which `Graph.describe` shows a node that it
      has recorded; empty for every other node.
    - ``keeps_graph``: True to have the graph kept beside its executable, as ``keep_graph`` does.
    - ``kept_by(runner)``: Of an object that stays: it stays with the work of a graph, which this replays.
    - ``check()``: Of an object that stays: called ahead of every replay, until it returns True. If it raises,
      nothing is launched. ``runner.executable.let_go()`` has it called again.
    - ``stack(node)``: Of an object that stays: the frames that recorded a node, by its number, as
      `GraphNode.stack` has them.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def begin(self, capture: Any) -> object | None:
        """Return an object for a capture that is about to begin; None to leave that one alone.

        If this raises, the capture does not begin, and the exception passes.

        Parameters
        ----------
        capture
            The capture. `capture.stream` is the `Stream`. ``capture.relaxed()`` returns a context in which
            this thread may make calls that the capture forbids, and ``capture.recorded()`` how many nodes
            there are so far, or None if that is not known.
        """
        raise NotImplementedError


class Lasting(Observer):
    """An observer of one graph, which stays with it until that is reset, whatever work it does."""

    __slots__ = ()

    def begin(self, capture: Any) -> None:
        """Leave the capture alone: what stays is this object."""


ambient: ContextVar[tuple[Observer, ...]] = ContextVar("ambient", default=())
"""The observers of all captures that begin in this thread or task, the innermost first."""


def checked_observers(observe: object) -> tuple[Observer, ...]:
    """Return the observers that were given as an argument. Raises TypeError for everything else."""
    given = (observe,) if isinstance(observe, Observer) else observe
    if isinstance(given, Iterable):
        found = tuple(given)
        if all(isinstance(each, Observer) for each in found):
            return found
    raise TypeError(
        "observe must be an Observer, such as accelerator_graph.progress(), or several of them, not "
        f"{observe!r}."
    )


def own_nodes(observations: Iterable[object]) -> int:
    """Return how many nodes of a graph its observers have recorded."""
    return sum(getattr(each, "own_nodes", 0) for each in observations)


def handed_on(observations: Iterable[Any]) -> tuple[Any, ...]:
    """Return what stays with work that a graph takes over, each object once."""
    staying = [each.hand_on() for each in observations if hasattr(each, "hand_on")]
    return tuple({id(each): each for each in staying if each is not None}.values())


def recorded_at(observations: Iterable[Any], node: int) -> str:
    """Return where a node was recorded, in parentheses; nothing if no observer has kept that."""
    for each in observations:
        stack = each.stack(node) if hasattr(each, "stack") else ()
        if stack:
            return f" (recorded at {stack[0].own_of(stack)})"
    return ""


# ---- collectives ---------------------------------------------------------------------------------


def note_collective(
    kind: str,
    dtype: str,
    elements: int | None,
    *,
    group: str = "",
    ranks: Iterable[int] = (),
    peer: int | None = None,
) -> None:
    """Note that the work which this thread captures asks for a collective, for `check_ranks`.

    Those of torch.distributed are noted automatically. Call this for others, such as NCCL's by CuPy or by
    ctypes, beside the call that enqueues the collective, and in an eager call of a capture with breaks for
    all. Outside a capture it does nothing, so the same function can run eagerly.

    Parameters
    ----------
    kind : str
        Such as ``"all_reduce"``; any name that all ranks use. ``"send"`` and ``"recv"`` are compared with the
        other rank's, and need `peer`.
    dtype : str
        The type of the elements, such as ``"float32"``.
    elements : int or None
        How many elements; None if the ranks may have different numbers.
    group : str
        The name of the communicator, the same on all its ranks.
    ranks : iterable of int
        The ranks in the communicator, counted in the whole program; by default all.
    peer : int, optional
        The root, or the other rank, counted in the whole program.

    Raises
    ------
    TypeError, ValueError
        An argument is of the wrong type or value.
    """
    for name, value in (("kind", kind), ("dtype", dtype), ("group", group)):
        if not isinstance(value, str):
            raise TypeError(f"note_collective: {name} must be a str, not {value!r}.")
    elements = None if elements is None else _count(elements, "elements")
    peer = None if peer is None else _count(peer, "peer")
    if kind == "send" and peer is None:
        raise ValueError("note_collective: 'send' needs peer=, the rank that receives.")
    if not isinstance(ranks, Iterable):
        raise TypeError(f"note_collective: ranks must be an iterable of ints, not {ranks!r}.")
    members = tuple(sorted(_count(each, "ranks") for each in ranks))
    capture = capture_table.innermost()
    observations = capture_table.thread.between if capture is None else capture.observations
    if observations is not None:
        from ..interop.base import Collective

        file, line = caller()
        report_collective(observations, Collective(kind, group, members, dtype, elements, peer, file, line))


def _count(value: object, name: str) -> int:
    number = integer(value, f"note_collective: {name}")
    if number < 0:
        raise ValueError(f"note_collective: {name} must not be negative, but it is {number}.")
    return number
