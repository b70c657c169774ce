"""What `graphed` returns: finds the graph of a call, or makes it."""

from __future__ import annotations

import sys
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Hashable, Sequence
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, ParamSpec, TypeVar

from .._core import capture_table, ownership
from .._core.pools import graph_pool_handle
from .._interpreter.process import after_fork
from .._interpreter.sure_exit import Between
from ..errors import CaptureError, GraphStateError
from .array_placement import check_arguments
from .cache import CacheInfo, Options, Seen, SeenTable
from .call_order import Traffic, current, here_or_none
from .containers import rebuild
from .per_instance import Instances
from .recorded_call import NOT_NOW, RecordedCall
from .signature import Arguments, Leaves, Reader, Shape, repeats, same_among

if TYPE_CHECKING:
    from .._core.streams import Stream

P = ParamSpec("P")
R = TypeVar("R")

_ABSENT: Any = object()

_captures: dict[str, object] = {}
"""The call that is being captured, under ``"now"``. Some frameworks record one capture at a time. The place
is claimed and never waited for: a signal handler would wait for the call that it has interrupted."""


class _Call(NamedTuple):
    """A call of the function, read."""

    key: Hashable
    read: Hashable
    """What the calls of one graph have in common."""
    instance: tuple[Any, ...]
    shape: Shape
    values: Sequence[Any]
    leaves: Leaves


class Graphed(Generic[P, R]):
    """A function as `graphed` returns it; see there."""

    def __init__(
        self,
        function: Callable[P, R],
        options: Options,
        method: tuple[Graphed[..., R], weakref.ref[Any]] | None = None,
    ) -> None:
        plain = isinstance(function, types.FunctionType | types.MethodType)
        update_wrapper(self, function, updated=("__dict__",) if plain else ())
        self._function = function
        self._options = options
        self._choose = options.key
        self._method = method
        self._skip = 0 if method is None else 1
        self._arguments = Arguments(function, self._skip)
        self._plain: Shape = (self._arguments.plain, ())
        name = getattr(function, "__name__", "")
        self._instances: Instances[Graphed[..., R]] = Instances(name)
        self._lock = threading.RLock()
        self._start()
        ownership.tracked.add(self)

    def _start(self) -> None:
        """Be as before the first call."""
        self._reader = Reader(by_value=self._options.key is None)
        self._traffic = Traffic()
        self._graphs: dict[Hashable, RecordedCall] = {}
        self._seen = SeenTable(self._options.max_graphs)
        self._replays = self._eager = self._captures = self._dropped = 0

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function, or replay what it did."""
        if capture_table.thread.graphs:
            return self._function(*args, **kwargs)
        given: tuple[Any, ...] = args
        if self._method is not None:
            given = args[1:]
            of, whose = self._method
            if args[0] is not whose():  # a copied instance may have a bound method of the original's
                return of.__get__(args[0])(*given, **kwargs)
        shape: Shape = self._plain
        values: Sequence[Any] = given
        if kwargs or len(given) != shape[0]:
            shape, values = self._arguments.ordered(given, kwargs)
        choose, reader = self._choose, self._reader
        leaves: Leaves = []
        bucket = None if choose is None else choose(*args, **kwargs)
        try:
            read: Hashable = (shape, reader.read(values, leaves))
            here = None
            if leaves:
                if len(leaves) > 1 and repeats(leaves):
                    read = (read, same_among(leaves))
                ambient = None if reader.ambient is None else reader.ambient(leaves)
            else:
                here = here_or_none()
                ambient = None if here is None else (here._backend, here._device)
            key = (read, ambient) if choose is None else (bucket, ambient)
            recorded = self._graphs.get(key)
        except Exception as error:
            raise self._unreadable(error, bucket, shape, values) from error
        if recorded is not None:
            result = self._in_turn(self._replay, recorded, read, leaves, here)
            if result is NOT_NOW:
                return self._function(*args, **kwargs)
            if result is not _ABSENT:
                return result  # type: ignore[no-any-return]
        return self._without_graph(_Call(key, read, args[: self._skip], shape, values, leaves))

    def _in_turn(self, work: Callable[..., Any], *args: Any) -> Any:
        """Wait for the calls of other threads, and return `work(*args)`.

        Return `NOT_NOW` if a signal handler or a finaliser calls in the middle of another call.
        """
        if self._lock._is_owned():  # type: ignore[attr-defined]  # what `threading.Condition` asks a lock
            return NOT_NOW
        with self._lock:
            return work(*args)

    def _replay(
        self, recorded: RecordedCall | None, read: Hashable, leaves: Leaves, here: Stream | None = None
    ) -> Any:
        """Replay a graph. `_ABSENT` if there is none any more, `NOT_NOW` if the stream is being captured."""
        if recorded is None or recorded.closed:
            return _ABSENT
        if self._choose is not None:
            self._agree(read, recorded.read)
        result = recorded.run(leaves, here)
        if result is not NOT_NOW:
            recorded.used = self._replays = self._replays + 1
        return result

    def _without_graph(self, call: _Call) -> R:
        """Run the function, or capture it if it was run often enough."""
        result = self._in_turn(self._replay_or_capture, call)
        if result is NOT_NOW:
            return self._call(call)  # type: ignore[no-any-return]
        if not isinstance(result, Seen):
            return result  # type: ignore[no-any-return]
        seen, result = result, self._call(call)
        with self._lock:
            seen.calls += 1
            self._eager += 1
        return result  # type: ignore[no-any-return]

    def _replay_or_capture(self, call: _Call) -> Any:
        """Replay a call, after capturing it if it is time for that; return its `Seen` if it has to run."""
        recorded = self._graphs.get(call.key)  # another thread may have captured it
        result = self._replay(recorded, call.read, call.leaves)
        if result is not _ABSENT:
            return result
        seen = self._see(call)
        if seen.eager:
            return seen
        try:
            home = current()
            if home._is_capturing():
                return NOT_NOW
            names = self._check_arguments(call, home)
            recorded = self._capture(call, names, home) if seen.calls >= self._options.warmup else None
        except CaptureError as error:
            self._run_eagerly(seen, error)
            return seen
        return seen if recorded is None else self._replay(recorded, call.read, call.leaves)

    def _see(self, call: _Call) -> Seen:
        """Find what is known of a signature without a graph."""
        seen = self._seen.of(call.key, call.read, self)
        if self._choose is not None:
            self._agree(call.read, seen.read)
        return seen

    def _check_arguments(self, call: _Call, home: Stream) -> list[str]:
        """Refuse arrays that a replay could not read, in the first call already; return their names."""
        names = self._reader.array_names(call.values, self._arguments.names(call.shape))
        families = [self._reader.families[type(leaf)] for leaf in call.leaves]
        check_arguments(call.leaves, families, names, home)
        return names

    def _agree(self, read: Hashable, before: Hashable) -> None:
        """Refuse arrays that are not like those of the first call in the bucket."""
        if read != before:
            raise ValueError(
                f"{self!r}: calls with one key share a graph, and the arrays of this one differ from those "
                "of the first in shape, type, strides, device or place; let `key` tell them apart."
            )

    def _call(self, call: _Call, swap: Callable[[Any], Any] | None = None) -> Any:
        values = call.values if swap is None else [rebuild(value, swap) for value in call.values]
        count, names = call.shape
        named = dict(zip(names, values[count:], strict=True))
        function: Callable[..., R] = self._function
        return function(*call.instance, *values[:count], **named)

    def _run_eagerly(self, seen: Seen, error: CaptureError) -> None:
        """Never capture a signature from now on, or raise the error, as the option says."""
        if self._options.on_capture_error == "raise":
            raise error
        seen.eager = True
        warnings.warn(
            f"{self!r} runs eagerly from now on for arguments like these: {error}",
            RuntimeWarning,
            stacklevel=6,
        )

    def _capture(self, call: _Call, names: list[str], home: Stream) -> RecordedCall | None:
        """Capture a call beside a stream; None while another one is being captured."""
        with Between(partial(_captures.setdefault, "now", call), partial(_give_up, call)):
            if _captures["now"] is not call:
                return None
            recorded = self._record(call, names, home)
        self._captures += 1
        while len(self._graphs) >= self._options.max_graphs:
            oldest = min(self._graphs, key=lambda key: self._graphs[key].used)
            self._graphs.pop(oldest).close()
            self._dropped += 1
        self._graphs[call.key] = recorded
        self._seen.forget(call.key)
        return recorded

    def _record(self, call: _Call, names: list[str], home: Stream) -> RecordedCall:
        copies = self._options.outputs == "copy"
        recorded = RecordedCall(self._reader, self._traffic, call.leaves, home, copies)
        recorded.read = call.read
        alike = (each.pool for each in self._graphs.values() if each.where == recorded.where)
        pool = self._options.pool or next(alike, None) or graph_pool_handle()
        recorded.capture(partial(self._call, call), call.leaves, names, home, pool)
        return recorded

    def _unreadable(self, error: Exception, bucket: object, shape: Shape, values: Sequence[Any]) -> TypeError:
        try:
            hash(bucket)
        except TypeError:
            return TypeError(
                f"{self!r}: `key` returned {bucket!r}, which is not hashable; let it return what is."
            )
        return self._reader.explain(values, self._arguments.names(shape), error)

    # ---- the cache -----------------------------------------------------------------------------

    def cache_info(self) -> CacheInfo:
        """Return what has been done since the beginning, or the last `clear`, and what is held.

        Asked of a method on the class, it is the sum over the instances; there may be `max_graphs` for each.
        """
        with self._lock:
            mine = (self._replays, self._eager, self._captures, self._dropped, len(self._graphs))
        theirs = [each.cache_info()[:5] for each in self._instances]
        replays, eager, captures, dropped, graphs = map(sum, zip(mine, *theirs, strict=True))
        return CacheInfo(replays, eager, captures, dropped, graphs, self._options.max_graphs)

    def clear(self) -> None:
        """Drop all graphs, once the calls so far are done, and begin again with the warm-up.

        Static outputs must not be used any more. Of a method on the class: those of all instances.

        Raises
        ------
        GraphStateError
            This thread is capturing, or in the middle of a call, as a signal handler is.
        """
        if capture_table.thread.graphs:
            raise GraphStateError(f"{self!r}: clear() has to wait for runs, and this thread is capturing.")
        for each in self._instances:
            each.clear()
        if self._in_turn(self._drop_all) is NOT_NOW:
            raise GraphStateError(
                f"{self!r}: clear() has to wait for runs, and this thread is in the middle of one; call it "
                "from outside of signal handlers and finalisers."
            )

    def _drop_all(self) -> None:
        while self._graphs:
            self._graphs.popitem()[1].close()
        self._start()

    def _after_fork(self) -> None:
        self._lock = threading.RLock()
        self._start()

    # ---- as a method ---------------------------------------------------------------------------

    def __get__(self, instance: object, owner: type | None = None) -> Callable[..., R]:
        """Return the function bound to an instance, which has graphs of its own."""
        if instance is None:
            return self
        own = self._instances.find(instance)
        if own is None:
            own = self._instances.add(
                instance, lambda whose: Graphed(self._function, self._options, (self, whose))
            )
        return types.MethodType(own, instance)

    def __reduce__(self) -> Any:
        name: str = getattr(self, "__qualname__", "")
        found: Any = sys.modules.get(self.__module__)
        for part in name.split("."):
            found = getattr(found, part, None)
        return name if found is self else (Graphed, (self._function, self._options))

    def __repr__(self) -> str:
        return f"<graphed {getattr(self._function, '__qualname__', None) or repr(self._function)}>"


def _give_up(call: _Call) -> None:
    """Let others capture, if this call was being captured."""
    if _captures.get("now") is call:
        _captures.pop("now", None)


after_fork(_captures.clear)
