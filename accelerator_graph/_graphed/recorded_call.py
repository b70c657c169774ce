"""One captured call of a graphed function: its static arrays, and how it is run again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from .._core import capture_table, current_stream, stream_stack, streams
from .._core.ownership import Callback
from .._core.replay import make_room
from .._core.side_streams import side_of
from ..api import Graph, graph
from ..backends.base import CaptureStatus
from .array_placement import on_host, only_ours
from .arrays import Family, forget_casts, frameworks_of, writable
from .call_order import Traffic, current, key_of, lasts
from .containers import only_tuples, rebuild
from .recorded_work import RecordedWork, check_unwritten, contents, nothing_recorded
from .results import Output, Result, filler
from .signature import Leaves, Reader

if TYPE_CHECKING:
    from .._core.pools import PoolId
    from .._core.streams import Stream

NOT_NOW: Any = object()
"""The result of a run on a stream that somebody else is capturing: nothing was done."""

_IDLE = CaptureStatus.NONE

Swap = Callable[[Any], Any]


class _NeverEmpty(Graph):
    """A graph whose capture fails if nothing was recorded."""

    __slots__ = ()

    def _found_empty(self, subject: str) -> NoReturn:
        raise nothing_recorded()


class RecordedCall:
    """A call that is captured, and run again with the contents of other arrays.

    Parameters
    ----------
    reader : Reader
        Knows the types of arrays.
    traffic : Traffic
        The order of the calls of the same function.
    leaves : list
        The arrays in the arguments, which a graph beside `home` can read.
    home : Stream
        The current stream.
    copies : bool
        Whether every run returns new arrays.
    """

    def __init__(self, reader: Reader, traffic: Traffic, leaves: Leaves, home: Stream, copies: bool) -> None:
        self._reader = reader
        self._traffic = traffic
        self._backend = home._backend
        self._device = home.device
        self._copies = copies
        self._host = on_host(home)
        self._only_ours = only_ours(home)
        self._families: list[Family] = [reader.families[type(leaf)] for leaf in leaves]
        ids = [*map(id, leaves)]
        self._firsts = [i for i, each in enumerate(ids) if ids.index(each) == i]  # others are the same again
        made = stream_stack.within(
            home, self._copies_of, leaves
        )  # in all frameworks, or some copy out of order
        self._statics = [made[each] for each in ids]
        if not self._host and lasts(home):
            made_on = traffic.stream(home)
            given_up = (self._statics, made_on, traffic)
            self._end = Callback(_part, given_up, self._backend, made_on._owner)
        self._lanes: dict[Hashable, tuple[Stream, Callable[[], None], bool]] = {}
        self._graph = _NeverEmpty() if self._only_ours else Graph()
        self._status = self._backend.capture_status
        self.where = (self._backend, self._device)
        self.pool: PoolId | None = None
        self.read: Hashable = None
        """What all calls of it have in common."""
        self.closed = False
        self.used = 0
        """When it was run last, in calls."""

    def _copies_of(self, leaves: Leaves) -> dict[int, Any]:
        """Return a static array for every one of the leaves, by its id."""
        return {id(leaves[i]): self._families[i].static(leaves[i]) for i in self._firsts}

    # ---- capture -------------------------------------------------------------------------------

    def capture(
        self, call: Callable[[Swap], Any], leaves: Leaves, names: list[str], home: Stream, pool: PoolId
    ) -> None:
        """Capture beside the current stream. `call` gets what swaps the arrays in the arguments."""
        triples = zip(self._statics, leaves, self._families, strict=True)
        given = [family.like(static, leaf) for static, leaf, family in triples]
        statics = dict(zip(map(id, leaves), given, strict=True))
        passed: set[int] = set()

        def swap(value: Any) -> Any:
            passed.add(id(value))
            return statics.get(id(value), value)

        before = self._contents()
        versions = list(map(_version, self._statics))
        self.pool = pool
        side = side_of(home)
        side._follow(home)
        forget_casts()
        try:
            with graph(self._graph, pool, side):
                result = call(swap)
        finally:
            forget_casts()
        try:
            check_unwritten(before, self._contents(), names)
            changed = self._changed(versions, leaves, names)
            returned = self._take(result, {id(given[i]): i for i in self._firsts}, changed, passed)
            self._write_back(sorted(i for i in changed | returned if writable(leaves[i])))
            self._decide()
        except BaseException:
            self._graph.reset()
            raise

    def _contents(self) -> list[object]:
        """Return what changes when the static arrays are written in another way than by recorded work."""
        told = self._only_ours and self._host
        pairs = zip(self._statics, self._families, strict=True)
        return [contents(static, family) if told else None for static, family in pairs]

    def _changed(self, versions: list[int | None], leaves: Leaves, names: list[str]) -> set[int]:
        """Return which arguments the function wrote, as far as they count that."""
        changed = {i for i in self._firsts if versions[i] != _version(self._statics[i])}
        for i in changed:
            if not writable(leaves[i]):
                raise ValueError(
                    f"argument {names[i]} is written by the graphed function, and can't be: its elements "
                    "share memory; pass its clone()."
                )
        return changed

    def _take(self, result: Any, arguments: dict[int, int], changed: set[int], passed: set[int]) -> set[int]:
        """Find the arrays in the result; return which of the arguments are in it."""
        work = self._recorded_work(passed)
        taken = Result(result, arguments, self._reader, host=self._host, copies=self._copies, work=work)
        self._outputs = taken.outputs
        self._template = taken.template
        for i, family in enumerate(self._families):
            if family.kind == "tensor" and self._statics[i].requires_grad:  # since the function asked for it
                self._statics[i] = self._statics[i].detach()
        self._static_arrays = [array for array, _ in self._outputs]
        fixed = not self._copies and only_tuples(result) and not changed | taken.returned
        self._result = rebuild(self._template, filler([], self._static_arrays)) if fixed else None
        return taken.returned

    def _write_back(self, arguments: Sequence[int]) -> None:
        """Have every run write these arguments: the function wrote them, or returned them."""
        self._back = [
            (i, self._statics[i], self._families[i].assign)
            for i in arguments
            if self._families[i].kind != "place"
        ]

    def _recorded_work(self, passed: set[int]) -> RecordedWork | None:
        """Return what every run does: the copies of the arguments, and the work that was recorded.

        None if there may be other work than what our streams saw.
        """
        if not self._only_ours:
            return None
        seen, runner = self._graph._retained or [], self._graph._runner
        nodes = None if runner is None else runner.counted
        return (
            None if nodes is not None and nodes > len(seen) else RecordedWork([*seen, self._statics], passed)
        )

    def _decide(self) -> None:
        """Decide what can be decided before a run."""
        copied = [family for family in self._families if family.kind != "place"]
        involved = copied + [family for _, family in self._outputs if self._copies]
        roots, active = frameworks_of(involved, self._backend.name)
        one = len(roots) == 1 and len(active) == 1
        self._framework = active[0] if one else None  # its current stream is where its copies go
        self._enters = bool(roots) and not one and not self._host
        tensors = all(family.kind == "tensor" for family in involved)
        self._asks = self._device if tensors else None  # others copy on the stream of the current device
        alike = len(self._firsts) == len(copied) > 1 and all(each.kind == "tensor" for each in self._families)
        self._assign_all = copied[0].assign_all if alike and not self._host else None
        self._plan = [
            (i, self._statics[i], self._families[i].assign)
            for i in self._firsts
            if self._families[i].kind != "place"
        ]

    # ---- run -----------------------------------------------------------------------------------

    def run(self, leaves: Leaves, here: Stream | None = None) -> Any:
        """Copy the arrays in, replay, and return the outputs; or return `NOT_NOW`.

        `here` is the current stream, if it is known.
        """
        framework, enters = self._framework, self._enters
        key: Hashable
        if framework is not None:
            answer = framework.current_stream(self._asks)
            if answer is not None and answer[1] != self._device:
                answer, enters = framework.current_stream(self._device), True
            key = 0 if answer is None else answer[0]
        else:
            key = key_of(here or current(self._backend.name))
        lane = self._lanes.get(key)
        stream, launch, leave_mark = self._lane(key) if lane is None else lane
        if self._status(stream._native) is not _IDLE:
            return NOT_NOW
        traffic = self._traffic
        if traffic.last is not stream:
            traffic.move(stream)
        if enters:
            result = stream_stack.within(stream, self._work, leaves, stream, launch)
        else:
            result = self._work(leaves, stream, launch)
        if leave_mark:
            traffic.mark()
        return result

    def _lane(self, key: Hashable) -> tuple[Stream, Callable[[], None], bool]:
        """Get ready to run on a stream for the first time."""
        framework = self._framework
        found = current_stream.current(self._backend.name) if framework else current(self._backend.name)
        if found is not None and key_of(found) == key and (not framework or found.device == self._device):
            stream = found  # ours, if it was entered: then it is kept
        else:
            native = self._backend.as_stream(key)
            owner = None if framework is None else streams.FrameworkCurrent(framework)
            stream = streams.Stream._make(self._backend, native, self._device, owner)
        stream = self._traffic.stream(stream)
        launch = self._graph.bind(stream)
        make_room(self._lanes)
        lane = self._lanes[key] = (stream, launch, not lasts(stream))
        return lane

    def _work(self, leaves: Leaves, stream: Stream, launch: Callable[[], None]) -> Any:
        if self._assign_all is not None and not any(map(_is, self._statics, leaves)):
            self._assign_all(self._statics, leaves)
        else:
            self._copy(stream, ((static, leaves[i], assign) for i, static, assign in self._plan))
        launch()
        if self._back:
            self._copy(stream, ((leaves[i], static, assign) for i, static, assign in self._back))
        arrays = self._new_arrays(stream) if self._copies else self._static_arrays
        template = self._template
        if type(template) is Output:
            return arrays[template.index]
        if self._result is not None:
            return self._result
        return rebuild(template, filler(leaves, arrays))

    def _copy(self, stream: Stream, copies: Iterable[tuple[Any, Any, Callable[[Any, Any], object]]]) -> None:
        """Copy arrays in the order of the stream: which host memory knows nothing of."""
        for target, source, assign in copies:
            if target is source:
                pass
            elif self._host:
                self._backend.launch(stream._native, assign, *map(_detached, (target, source)))
            else:
                assign(target, source)

    def _new_arrays(self, stream: Stream) -> list[Any]:
        """Return copies of the outputs."""
        if not self._host:
            return [family.copy(array) for array, family in self._outputs]
        new = [family.empty_like(array) for array, family in self._outputs]
        pairs = zip(new, self._outputs, strict=True)
        self._copy(stream, ((copy, array, family.assign) for copy, (array, family) in pairs))
        return new

    def close(self) -> None:
        """Give back the graph, once the calls so far are done."""
        self.closed = True
        assert self._graph.stream is not None
        side = side_of(self._graph.stream)  # which is not being captured, as that of another thread may be
        self._traffic.wait(side)
        side.synchronize()
        self._graph.reset()


def _part(kept: tuple[list[Any], Stream, Traffic]) -> None:
    """Give up static arrays: their memory is used again in the order of the stream that they were made on."""
    _, home, traffic = kept
    if not capture_table.live and not home._is_capturing():
        traffic.wait(home)


def _detached(x: Any) -> Any:
    """Return an array that is written as any other: the stream's thread has grad modes of its own."""
    return x.detach() if getattr(x, "requires_grad", False) else x


def _version(x: Any) -> int | None:
    """Return how often an array was written, if it counts that."""
    try:
        return getattr(x, "_version", None)
    except RuntimeError:
        return None


def _is(one: object, other: object) -> bool:
    return one is other
