"""The graphs of a graphed function, and the signatures that have none."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any

from .._arrays.arrays import check_arguments
from .._arrays.signatures import Call, Reader
from .._breaks import marks
from .._core.pools import PoolId, graph_pool_handle
from .._interpreter import outside
from .._interpreter.interruptions import Between, after_fork
from ..errors import CaptureError
from . import second_capture
from .binding import NotFollowing
from .call_order import CallOrder, current_stream
from .options import CacheInfo, GraphInputs, Mode, Options
from .python_state import PythonState
from .recorded_call import Capturable, RecordedCall, Recorder, Swap

if TYPE_CHECKING:
    from .break_search import BreakSearch

_REMEMBERED = 256
_WARNED_OF = 64
_NEXT_BEST: dict[Mode, Mode] = {"bind": "node", "node": "copy"}

_capturing: dict[str, Call] = {}
"""The call that is being captured or watched, under ``"now"``: some frameworks record only one capture at a
time, and marks are put in one after another. Nobody waits for the place: a signal handler would wait for the
call that it has interrupted."""


@dataclass(eq=False, slots=True)
class Uncaptured:
    """A signature without a graph."""

    signature: Hashable
    calls: int = 0
    always_eager: bool = False
    was_broken: bool = False
    """A capture was broken, and a second one was made to find the call that did it."""
    search: BreakSearch | None = None
    """Watches the calls, for what a capture has to leave out."""


class GraphCache:
    """The graphs of a function, by the keys of its calls."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._order = CallOrder()
        self.reader = Reader(by_value=options.key is None)
        self._recorder = Recorder(
            self.reader, self._order, copies=options.outputs == "copy", check=options.check
        )
        self.graphs: dict[Hashable, RecordedCall] = {}
        self._uncaptured: dict[Hashable, Uncaptured] = {}
        self._unbound: dict[Hashable, str] = {}
        """Why graphs were given up whose inputs were bound, by their keys."""
        self._breaks: dict[FunctionType, None] = {}
        """The functions that captures have to leave out, as far as they were found."""
        self._remembered = max(_REMEMBERED, 2 * options.max_graphs)
        self._warned_of = max(_WARNED_OF, 2 * options.max_graphs)
        self._replays = self._eager = self._captures = self._evictions = 0

    def info(self) -> CacheInfo:
        """Return the counts."""
        done = self._replays, self._eager, self._captures, self._evictions
        return CacheInfo(*done, len(self.graphs), self._options.max_graphs)

    def count_replays(self, recorded: RecordedCall, count: int = 1) -> None:
        """Count replays, which make their graph the most recently used."""
        recorded.used = self._replays = self._replays + count

    def count_eager(self, uncaptured: Uncaptured) -> None:
        """Count an eager run."""
        uncaptured.calls += 1
        self._eager += 1

    def find_or_capture(
        self, call: Call, run: Callable[[Call, Swap], Any], names: list[str], function: object
    ) -> RecordedCall | Uncaptured | None:
        """Return the graph of a call, captured now if it is time for that, or what it has instead.

        None means that another library is capturing the current stream.

        `run` runs a call with other arrays in its arguments; the names of the arguments and the function are
        for messages. The cache keeps neither as an attribute: a reference cycle with the function would keep
        graphs alive longer.
        """
        recorded = self.graphs.get(call.key)  # another thread may have captured it
        if recorded is not None:
            return recorded
        uncaptured = self._find_uncaptured(call, function)
        check_bucket(call.signature, uncaptured.signature, function)
        if uncaptured.always_eager:
            return uncaptured
        record: Callable[[], RecordedCall]
        compare: Callable[[RecordedCall], None] | None = None
        try:
            stream = current_stream()
            if stream._is_capturing():
                return None
            arrays = self.reader.array_names(call.values, names)
            array_types = [self.reader.array_types[type(leaf)] for leaf in call.leaves]
            check_arguments(call.leaves, array_types, arrays, stream)
            search = uncaptured.search
            if uncaptured.calls >= self._options.warmup and (search is None or search.is_done()):
                with Between(partial(_capturing.setdefault, "now", call), partial(_end_capturing, call)):
                    if _capturing.get("now") is call:
                        if search is not None:
                            self._breaks.update(dict.fromkeys(search.breaks()))
                        wanted = Capturable(call, run, function, names, arrays, stream)
                        record = partial(self._record_best, wanted)
                        if self._options.verify:
                            from ..diagnosis.verification import RecordedCheck

                            check = RecordedCheck(record, wanted)
                            record, compare = check.record, check.compare
                        recorded = self._capture(record, uncaptured, function)
        except CaptureError as error:
            self._give_up(uncaptured, error, function)
        if recorded is None:
            return uncaptured
        if compare is not None:
            compare(recorded)
        self._add(call.key, recorded)
        return recorded

    def _find_uncaptured(self, call: Call, function: object) -> Uncaptured:
        """Return what is known of a key without a graph, and warn if there are too many of them."""
        found = self._uncaptured.get(call.key)
        if found is None:
            if len(self._uncaptured) >= self._remembered:
                del self._uncaptured[next(iter(self._uncaptured))]
            found = self._uncaptured[call.key] = Uncaptured(call.signature)
            if len(self._uncaptured) > self._warned_of:
                self._warned_of = self._remembered  # which is never exceeded: no second warning
                _warn(
                    f"{function!r} was called with {len(self._uncaptured)} signatures too seldom to be "
                    "captured; an argument that changes at every call, such as a counter, must be an array, "
                    "or be left out by `key`."
                )
        return found

    def _capture(
        self, record: Callable[[], RecordedCall], uncaptured: Uncaptured, function: object
    ) -> RecordedCall | None:
        """Capture a call, and once more if the capture is broken and a second one may find out why.

        None means that the next calls are watched in its place, to find what it has to leave out.
        """
        if uncaptured.was_broken:
            return second_capture.diagnosed(record)
        calls = marks.thread.calls
        try:
            return record()
        except CaptureError as error:
            if self._options.on_capture_error == "break":
                by_a_call = error.reason not in second_capture.NOT_BY_A_CALL
                if uncaptured.search is not None or marks.thread.calls != calls or not by_a_call:
                    raise
                from .break_search import BreakSearch

                uncaptured.search = BreakSearch(function, error)
                return None
            may_follow = second_capture.may_follow(error, uncaptured.calls)
            if self._options.on_capture_error != "raise" or not may_follow:
                raise
            failed = error
        uncaptured.was_broken = True
        return second_capture.capture_again(record, failed, function)

    def _record_best(self, wanted: Capturable) -> RecordedCall:
        """Capture a call in the mode that was asked for, or in the next best one that is right."""
        shared = (each.pool for each in self.graphs.values() if each.is_on_device_of(wanted.stream))
        pool = self._options.pool or next(shared, None) or graph_pool_handle()
        if self._options.on_capture_error == "break":
            return self._recorder.record(wanted, "copy", pool, breaks=tuple(self._breaks) or True)
        mode, why = self._options.inputs, self._unbound.get(wanted.call.key, "")
        if mode == "bind" and why:
            mode = "node"
        recorded = None
        while recorded is None:
            try:
                if mode == "bind":
                    recorded = self._record_bound(wanted, pool)
                else:
                    recorded = self._recorder.record(wanted, mode, pool)
            except NotFollowing as error:
                mode, why = _NEXT_BEST[mode], why or str(error)
        recorded.why = why or recorded.why
        if self._options.inputs == "bind" and recorded.mode != "bind":
            fact = f"{wanted.graphed!r} copies its inputs for arguments like these: {recorded.why}."
            warnings.warn(fact, RuntimeWarning, stacklevel=outside()[0])
        return recorded

    def _record_bound(self, wanted: Capturable, pool: PoolId) -> RecordedCall:
        """Capture a call that copies no inputs, and prove that its replays are right; else raise."""
        from .binding.proof import why_unproven

        python = self._python_state(wanted)
        try:
            recorded = self._recorder.record(wanted, "bind", pool, python)
            after = python.now()
            why = why_unproven(recorded, wanted)
            after.restore()
            if why:
                recorded.close()
                raise NotFollowing(why)
        except NotFollowing:
            python.restore()
            raise
        return recorded

    def _python_state(self, wanted: Capturable) -> PythonState:
        function, instance = wanted.function, wanted.call.instance
        bound = partial(function, *instance) if instance else function
        return PythonState(bound, self.reader.is_array, grads=True)

    def _add(self, key: Hashable, recorded: RecordedCall) -> None:
        """Add a graph, in the place of the least recently used one if there are too many."""
        self._captures += 1
        while len(self.graphs) >= self._options.max_graphs:
            oldest = min(self.graphs, key=lambda key: self.graphs[key].used)
            self.graphs.pop(oldest).close()
            self._evictions += 1
        self.graphs[key] = recorded
        self._uncaptured.pop(key, None)

    def drop(self, recorded: RecordedCall, why: str) -> None:
        """Drop a graph that can't be used any more; the next one with its key does not bind its inputs."""
        key = next(key for key, each in self.graphs.items() if each is recorded)
        del self.graphs[key]
        self._unbound[key] = why
        self._uncaptured[key] = Uncaptured(recorded.signature, self._options.warmup)
        recorded.close()

    def explain(self) -> list[GraphInputs]:
        """Return how each graph gets its inputs."""
        return [GraphInputs(tuple(each.names), each.mode, each.why) for each in self.graphs.values()]

    def _give_up(self, uncaptured: Uncaptured, error: CaptureError, function: object) -> None:
        """Raise the error, or never capture the signature from now on, as the option says."""
        if self._options.on_capture_error != "eager":
            raise error
        uncaptured.always_eager = True
        _warn(f"{function!r} runs eagerly from now on for arguments like these: {error}")

    def close(self) -> None:
        """Drop all graphs, once the calls so far are done."""
        while self.graphs:
            self.graphs.popitem()[1].close()


def run_eagerly(uncaptured: Uncaptured, call: Call, run: Callable[[], Any]) -> Any:
    """Run a call as it is, watched if that is due and nothing else is captured or watched now."""
    search = uncaptured.search
    if search is not None and not search.is_done():
        with Between(partial(_capturing.setdefault, "now", call), partial(_end_capturing, call)):
            if _capturing.get("now") is call:
                return search.watch(run)
    return run()


def check_bucket(signature: Hashable, first: Hashable, function: object) -> None:
    """Raise if the arrays of a call are not like those of the first call with its key."""
    if signature != first:
        raise ValueError(
            f"{function!r}: calls with one key share a graph, and the arrays of this one differ from those "
            "of the first in shape, type, strides, device or place; let `key` tell them apart."
        )


def _warn(message: str) -> None:
    """Warn the caller of the function."""
    warnings.warn(message, RuntimeWarning, stacklevel=6)


def _end_capturing(call: Call) -> None:
    if _capturing.get("now") is call:
        _capturing.pop("now", None)


after_fork(_capturing.clear)
