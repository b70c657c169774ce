"""Pool ids: which graphs may share memory.

A pool id is a tuple of two integers, as in torch: ``(0, n)`` from `graph_pool_handle`, ``(n, 0)``
from a capture that was given none. The tuple owns nothing. A pool lives from the first capture
into it until the last such graph is reset or gone. Ids from torch work as well, and so does a
``torch.cuda.MemPool``, which the graphs keep alive.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Protocol
from weakref import ref

from .._interpreter import integer
from .._interpreter.interruptions import after_fork
from ..errors import GraphStateError
from ..interop.base import PoolId as PoolId
from .ownership import Finalizer
from .stream_stack import undo

if TYPE_CHECKING:
    from ..backends.base import AnyBackend as Backend
    from ..interop.base import Framework


class MemoryPool(Protocol):
    """A pool that is an object of a framework, such as ``torch.cuda.MemPool``: it has an id."""

    @property
    def id(self) -> PoolId:
        """The id, which is good as long as the object lives."""


AnyPool = PoolId | MemoryPool


class _OwnedId(tuple[int, int]):
    """The id of a `MemoryPool`, which keeps the object alive."""

    owner: object


_FIRST = 1 << 40  # apart from torch's counters, which start at 1

_next = _FIRST
_inherited = _FIRST
"""Numbers below this one were given out before this process was forked."""
_pools: dict[PoolId, ref[_Pool]] = {}
"""The pools that some lease takes part in, and those whose end is due."""
_ending: dict[AbstractContextManager[object], PoolId] = {}
"""The pools whose clean-up is running, by a lock that its thread holds meanwhile."""
_new_lock = type(threading.RLock())  # a type in C
_lock = _new_lock()


class _End(Finalizer):
    """Has `drain` end a pool. The value is its id, and the frameworks that took part in its captures."""

    __slots__ = ()

    def act(self) -> None:
        """Have the frameworks release the memory, unless another graph has started using the pool.

        They may run code of others that takes locks, so only captures into this very pool wait for it.
        """
        pool, frameworks = self.value
        releases: list[Callable[[], object]] = [partial(each.release, pool) for each in frameworks]
        running = _new_lock()
        with running:
            with _lock:
                known = _pools.get(pool)
                if known is not None and known() is not None:
                    return
                _pools.pop(pool, None)
                _ending[running] = pool
            try:
                if releases:
                    undo(releases)
            finally:
                _ending.pop(running, None)


class _Pool:
    """What the leases of a pool hold: the pool lives as long as this."""

    __slots__ = ("__weakref__", "capturing", "device", "end")

    capturing: ref[Lease]
    """The lease of the last capture."""
    device: int
    end: _End

    def check(self, backend: Backend, device: int) -> None:
        """Raise `ValueError` or `GraphStateError` if no capture can begin there in the pool now."""
        pool, here = self.end.value[0], self.end.backend
        assert here is not None
        if self.device != device or here.name != backend.name:
            raise ValueError(
                f"pool {pool} belongs to device {self.device} of backend {here.name!r}, "
                f"not to device {device} of backend {backend.name!r}; take another pool."
            )
        lease = self.capturing()
        if lease is not None and lease.capturing:
            raise GraphStateError(
                f"pool {pool}: another capture into it is under way; end that capture first, or "
                "take another pool."
            )


def graph_pool_handle() -> PoolId:
    """Return a new pool id, ``(0, n)``, to be given to several graphs that may share memory.

    Graphs of one pool may use the same memory: replay them in the order in which they were
    captured, never at once, and read one's outputs before another runs.
    """
    global _next
    with _lock:
        _next += 1
        return (0, _next - 1)


def check_pool(pool: object) -> PoolId | None:
    """Return the id of a pool, None for none (``None`` or ``(0, 0)``).

    That of a `MemoryPool` keeps the object alive.

    Raises
    ------
    TypeError
        It is neither a tuple of two integers nor an object whose `id` is one.
    ValueError
        A number is negative, or neither is zero.
    """
    if pool is None:
        return None
    if isinstance(pool, _OwnedId):
        return pool
    number = pool if isinstance(pool, tuple) else getattr(pool, "id", None)
    try:
        first, second = number if isinstance(number, tuple) else ()
        if type(first) is not int or type(second) is not int:
            first, second = integer(first, "half"), integer(second, "half")
    except (TypeError, ValueError):
        raise TypeError(
            "a pool must be a tuple of two integers, such as graph_pool_handle() returns, or an object whose "
            f"`id` is one, such as a torch.cuda.MemPool, not {pool!r}."
        ) from None
    if first < 0 or second < 0 or (first and second):
        raise ValueError(f"{number!r} is not a pool id: one of its numbers must be 0, and neither negative.")
    if not first and not second:
        return None
    if pool is number:
        return first, second
    owned = _OwnedId((first, second))
    owned.owner = pool
    return owned


class Lease:
    """One graph's part in a pool, from the beginning of its capture to its reset.

    Parameters
    ----------
    pool : PoolId or None
        The pool, as `check_pool` returns it; None makes a new one for this graph, ``(n, 0)``.
    backend : Backend
        The backend of the captured stream.
    device : int
        The ordinal of its device.

    Raises
    ------
    ValueError
        The id can't be used: it is not known, its pool has ended, or it belongs to another backend or device.
    GraphStateError
        Another capture into this pool is under way.
    """

    __slots__ = ("__weakref__", "_pool", "capturing", "id", "recorded")

    id: PoolId
    """The id of the pool."""
    recorded: PoolId | None
    """The id by which the framework that has recorded the graph knows the pool."""
    capturing: bool
    """Keeps other captures out of the pool."""
    _pool: _Pool | None

    def __init__(self, pool: PoolId | None, backend: Backend, device: int) -> None:
        self.recorded = None
        self.capturing = True
        while True:
            with _lock:
                running = None if pool is None or not _ending else _clean_up_of(pool)
                if running is None:
                    known = None if pool is None else _pools.get(pool)
                    entry = None if known is None else known()
                    if entry is None:
                        entry = _begun(pool, backend, device)
                    else:
                        entry.check(backend, device)
                    entry.capturing = ref(self)
                    self._pool = entry
                    self.id = pool or entry.end.value[0]  # the given one may keep an object alive
                    return
            with running:  # until it is over, unless it is this thread's
                _ending.pop(running, None)

    @property
    def shown(self) -> PoolId:
        """The id that frameworks know the pool by."""
        return self.recorded or self.id

    @property
    def ids(self) -> set[PoolId]:
        """All ids of the pool."""
        return {self.id, self.shown}

    def shared(self) -> Lease:
        """Return another graph's part in the same pool."""
        other = object.__new__(Lease)
        other.id, other.recorded = self.id, self.recorded
        other.capturing, other._pool = False, self._pool
        return other

    def with_others(self, retained: Iterable[object]) -> list[Lease]:
        """Return a graph's parts in pools: this one, its own, and those among what its work keeps alive.

        Others are of segments, of the bodies of loops and branches, and of graphs whose runs are recorded.
        """
        found, rest = [self], [*retained]
        for each in rest:
            if isinstance(each, Lease):
                found.append(each)
            elif isinstance(each, tuple):
                rest += each
        return found

    @property
    def in_use(self) -> bool:
        """Whether frameworks take part, which may have memory there."""
        pool = self._pool
        return pool is not None and bool(pool.end.value[1])

    def used_by(self, frameworks: Iterable[Framework]) -> None:
        """Have these frameworks release the pool's memory at its end, too."""
        assert self._pool is not None
        end = self._pool.end
        pool, known = end.value
        end.value = pool, tuple(dict.fromkeys((*known, *frameworks)))  # each one once

    def release(self) -> None:
        """Give the part back; the pool ends with its last one. Releasing twice does nothing."""
        self.capturing = False
        self._pool = None


def _begun(pool: PoolId | None, backend: Backend, device: int) -> _Pool:
    """Return a new pool, with this id or a new one. The lock is held."""
    global _next
    if pool is None:
        pool, _next = (_next, 0), _next + 1
    elif pool[0] >= _FIRST or pool[1] >= _next:
        raise _unusable(pool)
    entry = _Pool()
    entry.device = device
    entry.end = _End(backend, (pool, ()))
    _pools[pool] = ref(entry)
    return entry


def _unusable(pool: PoolId) -> ValueError:
    """Make the error for an id that stands for no pool, or for none any more."""
    fact = "was never given out" if max(pool) >= _next else "ended with the last graph in it"
    if max(pool) < _inherited:
        fact = "belongs to graphs that were captured before this process was forked"
    return ValueError(f"pool {pool} {fact}; take a new one from graph_pool_handle().")


def _clean_up_of(pool: PoolId) -> AbstractContextManager[object] | None:
    """Return what the thread holds in which the pool's clean-up is running."""
    return next((running for running, each in list(_ending.items()) if each == pool), None)


def _after_fork() -> None:
    global _inherited, _lock
    _lock = _new_lock()
    _ending.clear()
    _inherited = _next
    _pools.clear()


after_fork(_after_fork)
