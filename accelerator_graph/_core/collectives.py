"""Collectives that no framework's interop module sees."""

from __future__ import annotations

from collections.abc import Iterable

from .._interpreter.outside import integer
from ..interop.base import Collective
from . import capture_table
from .call_site import caller


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
    ctypes, beside the call that enqueues the collective. Outside a capture it does nothing, so the same
    function can run eagerly.

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
    capture = next(reversed(capture_table.thread.unfinished.values()), None)
    if capture is not None:
        file, line = caller()
        capture.collectives.append(Collective(kind, group, members, dtype, elements, peer, file, line))


def _count(value: object, name: str) -> int:
    number = integer(value, f"note_collective: {name}")
    if number < 0:
        raise ValueError(f"note_collective: {name} must not be negative, but it is {number}.")
    return number
