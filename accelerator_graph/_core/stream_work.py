"""Work that is enqueued through a stream of this library."""

from __future__ import annotations

from typing import Any

from .._interpreter.integers import integer
from ..backends.base import Backend
from . import capture_table


class StreamWork:
    """The methods of a stream that enqueue work."""

    __slots__ = ()

    _backend: Backend
    _native: Any

    def _in_use(self) -> object:
        """Return what keeps the stream alive during a call, whatever other threads do.

        Raises `GraphStateError` if the stream can't be used any more.
        """
        raise NotImplementedError

    def fill(self, dst: Any, value: int, nbytes: int | None = None) -> None:
        """Set bytes of memory.

        Parameters
        ----------
        dst : object
            The memory: an object that exposes it, or an address as ``int``.
        value : int
            What every byte is set to, 0 to 255.
        nbytes : int, optional
            How many bytes; by default all of `dst`. Needed for an address.

        Notes
        -----
        `fill`, `copy` and `launch` need the capability ``"enqueue"``. While the thread captures, the
        graph keeps these arguments alive; otherwise the caller has to, until the work is done.
        """
        _held = self._in_use()
        value = integer(value, "fill: value")
        if not 0 <= value <= 255:
            raise ValueError(f"fill: value must be 0 to 255, the value of a byte, not {value}.")
        nbytes = _checked_nbytes(nbytes)
        self._backend.fill(self._native, dst, value, nbytes)
        self._retain(dst)

    def copy(self, dst: Any, src: Any, nbytes: int | None = None) -> None:
        """Copy bytes from `src` to `dst`, each as in `fill`; by default all of `src`."""
        _held = self._in_use()
        nbytes = _checked_nbytes(nbytes)
        self._backend.copy(self._native, dst, src, nbytes)
        self._retain(dst, src)

    def launch(self, work: Any, /, *args: Any, **how: Any) -> None:
        """Enqueue `work(*args)`: a callable on cpu, a kernel elsewhere; `how` is the backend's."""
        _held = self._in_use()
        self._backend.launch(self._native, work, *args, **how)
        self._retain(work, args, how)

    def _retain(self, *objects: Any) -> None:
        for graph in capture_table.thread.graphs:
            graph.retain(objects)


def _checked_nbytes(nbytes: object) -> int | None:
    if nbytes is None:
        return None
    number = integer(nbytes, "nbytes")
    if number < 0:
        raise ValueError(f"nbytes must not be negative, but it is {number}.")
    return number
