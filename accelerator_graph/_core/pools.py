"""Pool ids: which graphs may share memory.

A pool id is a tuple of two integers, as in torch: ``(0, n)`` from `graph_pool_handle`, ``(n, 0)``
from a capture that was given none. The tuple owns nothing. A pool lives from the first capture
into it until the last such graph is reset or gone. Ids of torch's are as good, and so is a
``torch.cuda.MemPool``, which the graphs keep alive.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol
from weakref import WeakValueDictionary, ref

from .._interpreter.outside import integer
from .._interpreter.process import after_fork
from ..errors import GraphStateError
from ..interop.base import PoolId as PoolId
from .ownership import Callback, Finalizer

if TYPE_CHECKING:
    from ..backends.base import AnyBackend as Backend


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
_pools: WeakValueDictionary[PoolId, _Pool] = WeakValueDictionary()
"""Those that some lease takes part in."""
_ending: dict[AbstractContextManager[object], PoolId | None] = {}
"""The pools whose clean-up is running, by a lock that its thread holds meanwhile."""
_lock = threading.RLock()


class _Pool:
    __slots__ = ("__weakref__", "backend", "capturing", "device", "ends")

    def __init__(self, backend: str, device: int) -> None:
        self.backend = backend
        self.device = device
        self.capturing: ref[Lease] | None = None
        self.ends: tuple[Finalizer, ...] = ()


def graph_pool_handle() -> PoolId:
    """Return a new pool id, ``(0, n)``, to be given to several graphs that may share memory.

    Graphs of one pool may use the same memory: replay them in the order in which they were
    captured, never at once, and read one's outputs before another runs.
    """
    with _lock:
        return (0, _new_number())


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
    pool : PoolId, MemoryPool or None
        The pool; None makes a new one for this graph, ``(n, 0)``.

    Raises
    ------
    TypeError, ValueError
        As `check_pool`.
    """

    __slots__ = ("__weakref__", "_id", "_pool", "recorded")

    recorded: PoolId | None
    """The id that the framework knows the pool by which has recorded the graph."""

    def __init__(self, pool: object) -> None:
        self._id = None if pool is None else check_pool(pool)
        self.recorded = None
        self._pool: _Pool | None = None

    def begin(self, backend: str, device: int) -> None:
        """Take part in the pool, and keep other captures out of it until `captured`.

        Raises
        ------
        ValueError
            The id can't be used: it is not known, its pool has ended, or it belongs to another backend
            or device.
        GraphStateError
            Another capture into this pool is under way.
        """
        pool = self._id
        with _lock:
            ending = [lock for lock, each in list(_ending.items()) if each == pool] if _ending else ()
            if not ending:
                entry = None if pool is None else _pools.get(pool)
                if entry is None:
                    if pool is not None:
                        _refuse_unknown(pool)
                    entry = _Pool(backend, device)
                    if pool is not None:
                        _pools[pool] = entry
                elif (entry.backend, entry.device) != (backend, device):
                    raise ValueError(
                        f"pool {pool} belongs to device {entry.device} of backend {entry.backend!r}, "
                        f"not to device {device} of backend {backend!r}; take another pool."
                    )
                elif entry.capturing is not None and entry.capturing() is not None:
                    raise GraphStateError(
                        f"pool {pool}: another capture into it is under way; end that capture first, or "
                        "take another pool."
                    )
                self._pool = entry
                entry.capturing = ref(self)
        if ending:
            with ending[0]:  # its clean-up is over, or this thread's
                _ending.pop(ending[0], None)
            self.begin(backend, device)

    @property
    def id(self) -> PoolId:
        """The id of the pool. A new pool gets one when this is first read."""
        with _lock:
            if self._id is None:
                self._id, pool = (_new_number(), 0), self._pool
                if pool is not None:
                    _pools[self._id] = pool
            return self._id

    @property
    def shown(self) -> PoolId:
        """The id that frameworks know the pool by."""
        return self.recorded or self.id

    def shared(self) -> Lease:
        """Return another graph's part in the same pool."""
        other = Lease(self.id)
        other.recorded, other._pool = self.recorded, self._pool
        return other

    def captured(self) -> None:
        """Let others capture into the pool, since this capture is over."""
        with _lock:
            entry = self._pool
            if entry is not None and entry.capturing is not None and entry.capturing() is self:
                entry.capturing = None

    def at_end(self, action: Callable[[PoolId], object], backend: Backend) -> None:
        """Have `drain` call `action(id)` once the pool has ended. Asking twice does nothing more."""
        with _lock:
            entry = self._pool
            assert entry is not None
            for end in entry.ends:
                if end.value[1] == action:
                    return
            entry.ends += (Callback(_end_pool, (self._id or self.id, action), backend),)

    def release(self) -> None:
        """Give the part back; the pool ends with its last one. Releasing twice does nothing."""
        if self._pool is not None and self._pool.capturing is not None:
            self.captured()
        self._pool = None


def _end_pool(what: tuple[PoolId, Callable[[PoolId], object]]) -> None:
    """Call a pool's clean-up, unless another graph has started using the pool.

    It may run code of others that takes locks, so only captures into this very pool wait for it.
    """
    pool, action = what
    running = threading.RLock()
    with running:
        with _lock:
            if pool in _pools:
                return
            _ending[running] = pool
        try:
            action(pool)
        finally:
            _ending.pop(running, None)


def _new_number() -> int:
    global _next
    _next += 1
    return _next - 1


def _refuse_unknown(pool: PoolId) -> None:
    number = pool[0] or pool[1]
    if number < _FIRST:
        return  # a framework's id
    if number >= _next or pool[0]:
        fact = "ended with the last graph in it" if number < _next else "was never given out"
        if number < _inherited:
            fact = "belongs to graphs that were captured before this process was forked"
        raise ValueError(f"pool {pool} {fact}; take a new one from graph_pool_handle().")


def _after_fork() -> None:
    global _inherited, _lock
    _lock = threading.RLock()
    _ending.clear()
    _inherited = _next
    _pools.clear()


after_fork(_after_fork)
