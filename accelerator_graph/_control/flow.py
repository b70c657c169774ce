"""`while_` and `cond`: work that is repeated or left out as the device's results say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakMethod, ref

from .._breaks.parts import HostTest
from .._breaks.recording import give_up, recording_of
from .._core import capture_table
from .._core.current_stream import current_stream
from .._interpreter import boolean, caller, integer, runs_later
from ..errors import CaptureError, GraphStateError
from .flags import Flag, carry_on, check_carry, warn_if_endless
from .native import BodyCapture, can_test, record

if TYPE_CHECKING:
    from .._core.capture import Capture, Captured
    from .._core.graph import BaseGraph


class Loop:
    """A loop that `while_` has run or recorded."""

    __slots__ = ("_count",)

    def __init__(self, count: Callable[[], Callable[[], int] | None]) -> None:
        self._count = count
        """A weak reference to what returns the count, which the graph keeps."""

    def __repr__(self) -> str:
        return "<accelerator_graph.Loop>"

    @property
    def count(self) -> int:
        """How many times the body has run: in the call, or in the last replay that has reached the loop.

        Before the first such replay it says nothing. Raises `GraphStateError` once the graph was reset, or
        has got other work.
        """
        count = self._count()
        if count is None:
            raise GraphStateError(
                "Loop.count: the graph of this loop was reset, or has got other work; read the count before."
            )
        return count()


def while_(
    flag: Any,
    body: Callable[..., Any],
    carry: Any = (),
    limit: int | None = None,
    check_every: int = 1,
    *,
    native: bool = True,
) -> Loop:
    """Repeat a body as long as a flag is true, in a graph as well.

    Outside of a capture this reads the flag and calls. In a capture it calls the body once, to record it, and
    nothing runs; every replay then repeats that work as the flag says. In a capture with breaks, which is one
    real run, the loop runs as it is recorded.

    Parameters
    ----------
    flag : array, or tuple of memory and str
        One element, boolean or integer, that the body's work changes: an array of torch, CuPy, NumPy or the
        backend's own; or an address, or other memory that `Stream.copy` accepts, with the name of a type, as
        in ``(address, "int32")``.
    body : callable
        Called with the arrays of `carry`.
    carry : array or sequence of arrays
        What the body returns is copied into these, in place: in a graph, ``x = f(x)`` would give the second
        run the first one's input.
    limit : int, optional
        The most runs of the body.
    check_every : int
        The flag is read before every so many runs, where the host reads it; up to ``check_every - 1`` runs
        are then too many. For loops that stay right.
    native : bool
        False: let the host read the flag even where the device could.

    Returns
    -------
    Loop
        Its `count` is how often the body ran.

    Raises
    ------
    TypeError, ValueError
        An argument is of the wrong type or value, the flag is where the work can't write it, or the body has
        returned something else than arrays like those of `carry`.
    CaptureError
        The body can't be recorded. The capture is abandoned, as it is if the body raises.
    UnsupportedError
        The backend can't read the flag; or gradients are on, and what the body returns requires one.
    """
    what = "while_"
    found = Flag(flag, what)
    _check_callable(body, f"{what}: the body")
    carried = check_carry(carry, what)
    if limit is not None and (limit := integer(limit, f"{what}: limit")) < 1:
        raise ValueError(f"{what}: limit must be 1 or more, not {limit}; leave out the loop instead.")
    if (check_every := integer(check_every, f"{what}: check_every")) < 1:
        raise ValueError(f"{what}: check_every must be 1 or more, not {check_every}.")
    boolean(native, f"{what}: native")

    def once(stream: Any) -> None:
        results = body(*carried)
        if carried:
            carry_on(stream, carried, results, what)

    here = _innermost()
    if here is None:
        count = 0
        while count != limit and (count % check_every or found.now()):
            once(current_stream(required=False))
            count += 1
        return Loop(lambda: lambda: count)
    capture, graph = here
    found.check(capture.stream)
    held = (flag, carried)
    test = HostTest("while", caller(), found, limit, check_every, held)
    return Loop(_record(capture, graph, test, [lambda: once(current_stream())], native))


def cond(
    flag: Any,
    then: Callable[[], Any],
    otherwise: Callable[[], Any] | None = None,
    *,
    native: bool = True,
) -> None:
    """Do one thing or the other as a flag says, in a graph as well.

    Outside of a capture this reads the flag and calls one of the two. In a capture it calls both, to record
    them, and nothing runs; every replay then does the work of one. What they return is dropped, so that they
    have to write their results into arrays that exist before.

    Parameters
    ----------
    flag : array, or tuple of memory and str
        As in `while_`.
    then, otherwise : callable
        What to do if the flag is true, and if it is not: without `otherwise`, nothing.
    native : bool
        As in `while_`.

    Raises
    ------
    TypeError, ValueError, CaptureError, UnsupportedError
        As in `while_`.
    """
    what = "cond"
    found = Flag(flag, what)
    _check_callable(then, f"{what}: then")
    if otherwise is not None:
        _check_callable(otherwise, f"{what}: otherwise")
    boolean(native, f"{what}: native")
    here = _innermost()
    if here is None:
        if found.now():
            then()
        elif otherwise is not None:
            otherwise()
        return
    capture, graph = here
    found.check(capture.stream)
    bodies = [then] if otherwise is None else [then, otherwise]
    _record(capture, graph, HostTest("if", caller(), found, held=(flag,)), bodies, native)


def _innermost() -> tuple[Capture, BaseGraph] | None:
    """Return the capture that this thread has begun last, and its graph; None outside of captures."""
    capture = capture_table.innermost()
    return None if capture is None else (capture, capture_table.thread.graphs[id(capture)])


def _check_callable(function: object, name: str) -> None:
    if not callable(function):
        raise TypeError(f"{name} must be a function, not {function!r}.")
    if runs_later(function):
        raise TypeError(f"{name} must not be {function!r}, whose body runs after the call.")


def _record(
    capture: Capture,
    graph: BaseGraph,
    test: HostTest,
    bodies: Sequence[Callable[[], object]],
    native: bool,
) -> ref[Callable[[], int]]:
    """Record a loop or a branch, and refer to what returns its count; abandon the capture if that fails."""
    recording = None
    try:
        flag = test.flag  # a kernel can't read one that is not aligned
        if native and flag.has_address() and not flag.memory % flag.nbytes and can_test(capture):
            return ref(record(capture, graph, test, bodies))
        if isinstance(capture, BodyCapture):
            raise CaptureError(
                f"{test.what} would be tested by the host, and is in a body that the device runs; pass "
                "native=False to the outer one as well.",
                reason="illegal_call",
            )
        recording = recording_of(capture, graph)

        def recorded(segments: Sequence[tuple[Captured, Sequence[object]]]) -> None:
            work = ((captured.native, kept) for captured, kept in segments)
            warn_if_endless(graph, test, capture.backend, work)

        recording.test(test, bodies, recorded)
        return WeakMethod(test.runs)
    except BaseException as error:
        give_up(graph, recording, error, test.what)
        raise
