"""The function that `graphed` returns: each call finds its graph, or runs the function, or captures it.

Every instance has a graphed function of its own for a graphed method.
"""

from __future__ import annotations

import itertools
import sys
import types
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial, update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from .._arrays.containers import rebuild
from .._arrays.signatures import Call, Leaves, Shape, has_repeats, repeats
from .._core import capture_table, ownership
from .._core.extension import fast, new_lock
from .._core.streams import Stream
from ..errors import GraphStateError
from .arguments import Arguments
from .binding import Unpatchable
from .cache import GraphCache, Uncaptured, check_bucket, run_eagerly
from .call_order import ReplayStream, current_stream_or_none
from .guards import Guarded, guarded
from .options import CacheInfo, GraphedMethod, GraphInputs, Options
from .recorded_call import RecordedCall, Swap

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
T = TypeVar("T")


class Graphed(Generic[P, R]):
    """A function as `graphed` returns it; see there.

    If it belongs to one instance, `method` is the graphed function on the class, and `instance` refers to the
    instance weakly.
    """

    def __init__(
        self,
        function: Callable[P, R],
        options: Options,
        method: Graphed[..., R] | None = None,
        instance: weakref.ref[Any] | None = None,
    ) -> None:
        plain = isinstance(function, types.FunctionType | types.MethodType)
        update_wrapper(self, function, updated=("__dict__",) if plain else ())
        self._function = function
        self._options = options
        self._choose = options.key
        self._method = method
        self._instance = instance
        self._skip = 0 if instance is None else 1
        self._arguments = Arguments(function, self._skip)
        self._positional: Shape = (self._arguments.positional, ())
        self._instances: PerInstance[Graphed[..., R]] = PerInstance(getattr(function, "__name__", ""))
        self._lock = new_lock()
        """Owned by a thread in a call, so also in a signal handler or a finaliser that interrupts one."""
        self._cache = GraphCache(options)
        self._latest: tuple[RecordedCall, Guarded] | None = None
        """The graph of the latest call, and what sees that the next one is like that, if anything does."""
        ownership.graphs.add(ownership.Ref(self, ownership.forget))

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function, or replay what it did."""
        latest = self._latest
        if latest is not None and not capture_table.thread.graphs:
            found: Any = latest[1].same(args, kwargs)
            if type(found) is tuple:  # replayed: the result
                return found[0]  # type: ignore[no-any-return]
            if found is not None and not self._lock._is_owned():
                where = found.pop()
                with self._lock:
                    if latest is not self._latest or where is not latest[1].where:
                        where = None  # another thread has called meanwhile
                    replayed = self._replay(latest[0], latest[0].signature, found, where=where)
                if replayed is not None:
                    return replayed[0]  # type: ignore[no-any-return]
        if capture_table.thread.graphs or self._lock._is_owned():
            return self._function(*args, **kwargs)
        given: tuple[Any, ...] = args
        if self._method is not None and self._instance is not None:
            given = args[1:]
            if args[0] is not self._instance():  # a copied instance may hold a bound method of the original
                return self._method.__get__(args[0])(*given, **kwargs)
        shape: Shape = self._positional
        values: Sequence[Any] = given
        if kwargs or len(given) != shape[0]:
            shape, values = self._arguments.ordered(given, kwargs)
        choose, cache = self._choose, self._cache
        reader = cache.reader
        bucket = None if choose is None else choose(*args, **kwargs)
        leaves: Leaves = []
        current: Stream | None = None
        context: Hashable = None
        try:
            signature: Hashable = (shape, reader.read(values, leaves))
            if not leaves:
                current = current_stream_or_none()
                context = None if current is None else (current._backend, current._device)
            else:
                if len(leaves) > 1 and has_repeats(leaves):
                    signature = (signature, repeats(leaves))
                if reader.modes is not None:
                    context = reader.modes.read(leaves)
            key = (signature, context) if choose is None else (bucket, context)
            recorded = cache.graphs.get(key)
        except Exception as error:
            raise self._unreadable(error, bucket, shape, values) from error
        if recorded is not None:
            call = Call(key, signature, args[: self._skip], shape, values, leaves)
            with self._lock:
                if not recorded.guard_tried:
                    self._guard(recorded, call, len(given), kwargs)
                replayed = self._replay(recorded, signature, leaves, current)
            if replayed is not None:
                return replayed[0]  # type: ignore[no-any-return]
        return self._run_or_capture(Call(key, signature, args[: self._skip], shape, values, leaves))

    def _guard(self, recorded: RecordedCall, call: Call, count: int, names: Iterable[str]) -> None:
        """Have calls like this one seen at once, if that can be done."""
        recorded.guard_tried = True
        if fast is not None and self._choose is None:
            sources = self._arguments.sources(count, names)
            reader, lock = self._cache.reader, self._lock
            recorded.guarded = guarded(recorded, call, sources, self._instance, reader, lock)

    def _pause(self) -> None:
        """Have no guard replay on its own until the next call; the lock is held."""
        latest = self._latest
        if latest is not None:
            self._cache.count_replays(latest[0], latest[1].same.stop())
            self._latest = None

    def _replay(
        self,
        recorded: RecordedCall,
        signature: Hashable,
        leaves: Leaves,
        current: Stream | None = None,
        where: ReplayStream | None = None,
    ) -> tuple[Any] | None:
        """Replay a call and return its result; None if the graph or its stream can't be used now.

        `current` is the current stream, if it is known; `where` that of the latest call, if it is ready.
        """
        if self._latest is not None:
            self._pause()
        if recorded.closed:  # by another thread
            return None
        if self._choose is not None:
            check_bucket(signature, recorded.signature, self)
        where = where or recorded.streams.ready(current)
        if where is None:
            return None
        try:
            result = recorded.run(leaves, where)
        except Unpatchable as error:
            self._cache.drop(recorded, str(error).rstrip("."))
            return None
        self._cache.count_replays(recorded)
        if recorded.guarded is not None:
            recorded.guarded.follow(leaves, where)
            self._latest = recorded, recorded.guarded
        return (result,)

    def _run_or_capture(self, call: Call) -> R:
        """Run the function, or capture and replay it if it was run often enough."""
        with self._lock:
            self._pause()
            names = self._arguments.names(call.shape)
            found = self._cache.find_or_capture(call, self._run, names, self)
            if isinstance(found, RecordedCall):
                replayed = self._replay(found, call.signature, call.leaves)
                if replayed is not None:
                    return replayed[0]  # type: ignore[no-any-return]
        if not isinstance(found, Uncaptured):
            return self._run(call)
        result: R = run_eagerly(found, call, partial(self._run, call))
        with self._lock:
            self._cache.count_eager(found)
        return result

    def _run(self, call: Call, swap: Swap | None = None) -> R:
        """Run the function; in a capture, with other arrays in its arguments."""
        values = call.values if swap is None else [rebuild(value, swap) for value in call.values]
        count, names = call.shape
        named = dict(zip(names, values[count:], strict=True))
        function: Callable[..., R] = self._function
        return function(*call.instance, *values[:count], **named)

    def _unreadable(self, error: Exception, bucket: object, shape: Shape, values: Sequence[Any]) -> TypeError:
        try:
            hash(bucket)
        except TypeError:
            return TypeError(f"{self!r}: `key` must return a hashable value, not {bucket!r}.")
        return self._cache.reader.explain(values, self._arguments.names(shape), error)

    # ---- the cache -----------------------------------------------------------------------------

    def cache_info(self) -> CacheInfo:
        """Return what has been done since the beginning or the last `cache_clear`, and what is held.

        For a method on the class, these are the sums over the instances; `max_graphs` holds for each.
        """
        with self._lock:
            self._pause()
            infos = [self._cache.info()]
        infos += [each.cache_info() for each in self._instances]
        sums = CacheInfo(*map(sum, zip(*infos, strict=True)))
        return sums._replace(max_graphs=self._options.max_graphs)

    def explain(self) -> list[GraphInputs]:
        """Return how each graph gets the arrays of a call, and why it copies them.

        For a method on the class, these are the graphs of all instances.
        """
        with self._lock:
            found = self._cache.explain()
        return [*found, *(each for instance in self._instances for each in instance.explain())]

    def cache_clear(self) -> None:
        """Drop all graphs, once the calls so far are done, and begin again with the warm-up.

        Static outputs must not be used any more. For a method on the class, the graphs of all instances are
        dropped.

        Raises
        ------
        GraphStateError
            This thread is capturing, or in the middle of a call, as a signal handler is.
        """
        if capture_table.thread.graphs:
            raise GraphStateError(
                f"{self!r}: cache_clear() has to wait for runs, and this thread is capturing."
            )
        for each in self._instances:
            each.cache_clear()
        if self._lock._is_owned():
            raise GraphStateError(
                f"{self!r}: cache_clear() has to wait for runs, and this thread is in the middle of one; "
                "call it outside of signal handlers and finalisers."
            )
        with self._lock:
            self._pause()
            self._cache.close()
            self._cache = GraphCache(self._options)

    def _after_fork(self) -> None:
        self._lock, self._latest = new_lock(), None
        self._cache = GraphCache(self._options)

    # ---- as a method ---------------------------------------------------------------------------

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...

    @overload
    def __get__(
        self: Graphed[Concatenate[T, Q], R], instance: T, owner: type | None = None
    ) -> GraphedMethod[Q, R]: ...

    @overload
    def __get__(self, instance: object, owner: type | None = None) -> Self: ...  # below @staticmethod

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Return the function bound to an instance, which has graphs of its own."""
        if instance is None:
            return self
        own = self._instances.find(instance)
        if own is None:
            make = partial(Graphed, self._function, self._options, self)
            own = self._instances.add(instance, make)
        return types.MethodType(own, instance)

    def __reduce__(self) -> Any:
        name: str = getattr(self, "__qualname__", "")
        found: Any = sys.modules.get(self.__module__)
        for part in name.split("."):
            found = getattr(found, part, None)
        return name if found is self else (Graphed, (self._function, self._options))

    def __repr__(self) -> str:
        return f"<graphed {getattr(self._function, '__qualname__', None) or repr(self._function)}>"


# ---- the graphed functions of instances ------------------------------------------------------------

_numbers = itertools.count()


class PerInstance(Generic[T]):
    """One object for every instance of a class, which is collected with the instance.

    The object lies in the ``__dict__`` of its instance. Its graphs may refer to the instance: from a table
    they would keep it alive for ever, in a cycle with the instance they are collected. An instance without
    a ``__dict__`` has its object in a table, and is kept if its graphs refer to it.
    """

    def __init__(self, method: str) -> None:
        self._all: weakref.WeakSet[T] = weakref.WeakSet()
        self._key = f"_graphed_{method}_{next(_numbers)}"
        self._without_dict: dict[int, _Entry] = {}

    def find(self, instance: Any) -> T | None:
        """Return the object of an instance; None if there is none."""
        table, key = self._table(instance)
        entry = table.get(key)
        if entry is None or entry.instance() is not instance:  # a copied instance has a copied __dict__
            return None
        return entry.value  # type: ignore[no-any-return]

    def add(self, instance: Any, make: Callable[[weakref.ref[Any]], T]) -> T:
        """Make the object of an instance from a weak reference to it; TypeError if there can be none."""
        table, key = self._table(instance)
        try:
            if table is self._without_dict:
                reference = weakref.ref(instance, lambda _: table.pop(key, None))
            else:
                reference = weakref.ref(instance)
        except TypeError:
            raise TypeError(
                f"a graphed function can't be a method of {type(instance).__name__!r}, whose instances can't "
                "be referenced weakly; add '__weakref__' to its __slots__."
            ) from None
        value = make(reference)
        self._all.add(value)
        table[key] = _Entry(value, reference)
        return value

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._all))

    def _table(self, instance: Any) -> tuple[dict[Any, Any], Any]:
        table = getattr(instance, "__dict__", None)
        return (table, self._key) if type(table) is dict else (self._without_dict, id(instance))


class _Entry:
    """The object of one instance. A copied or unpickled entry belongs to no instance."""

    __slots__ = ("instance", "value")

    def __init__(self, value: object = None, instance: Callable[[], object] = lambda: None) -> None:
        self.value = value
        self.instance = instance

    def __reduce__(self) -> tuple[type[_Entry], tuple[()]]:
        return _Entry, ()
