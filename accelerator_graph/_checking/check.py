"""Looks up the addresses of a graph in what arrays, allocators and the driver say: `Graph.check`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from .._arrays.placement import extent
from .._core import ownership
from .._core.graph import BaseGraph
from .._core.labels import if_in_order
from .._core.replay import HostPart
from ..errors import AcceleratorGraphError, GraphStateError
from ..inspection.contents import all_nodes
from ..inspection.memory_check import WRONG, MemoryCheck, MemoryFinding
from ..inspection.names import title
from ..inspection.text import count
from ..interop import registry as interop
from ..interop.base import BlockHistory
from .arrays import WatchedMemory, memory_of, span_of
from .pointers import Addresses, Pointer, addresses

if TYPE_CHECKING:
    from .._core.capture import Captured
    from .._core.replay import Runner
    from ..backends.base import AnyBackend as Backend
    from ..backends.base import GraphContents, GraphNode, NodeParameters, NodeSetter
    from ..interop.base import Framework, MemoryBlock, PoolId

_SHOWN = 5
_DEFAULT_POOL = (0, 0)


def check(graph: BaseGraph) -> MemoryCheck:
    """Return whether a graph owns what it reads and writes."""
    graph._kept("check()")
    return _examined(graph._runner_for("check()"), graph._retained or ())


def use_of(obj: object, captured: Captured, retained: Iterable[object]) -> str:
    """Return how captured work uses an object: a clause; empty if it is not known to.

    Known are the addresses in the graph that are surely pointers, and the arguments that were `retained`.
    """
    own = [*_spans_of([obj], _elements)]
    for each in _leaves_of(retained):
        if each is obj or any(_overlap(x, y) for x in own for y in _spans_of([each], _elements)):
            return "it is an argument of work there"
    try:
        pointers = _definition(captured).addresses.pointers if own else []
    except AcceleratorGraphError:  # the backend can't list them
        return ""
    uses = (each for each in pointers if each.sure and any(_overlap(_used(each), span) for span in own))
    found = next(uses, None)
    return "" if found is None else f"node {found.node.id} there, {title(found.node)}, has its address"


def refuse_what_is_wrong(runner: Runner) -> None:
    """Raise `GraphStateError` if a graph that is about to run uses memory that is not its own any more."""
    if runner.captured is None:
        findings = [_of_array(each) for each in _watched(runner) if not each.is_there()]
    else:
        findings = [*_examined(runner, ()).wrong]
    if not findings:
        return
    number = len(findings)
    what = f"{number} arrays that the graph uses are gone"
    if any(each.verdict == "another's" for each in findings):
        what = "Memory that the graph uses is another graph's"
    elif not all(each.array for each in findings):
        what = "Memory that the graph uses is gone"
    elif number == 1:
        what = "An array that the graph uses is gone"
    lines = [
        f"{what}, and a replay would use what is there now; keep arrays as long as the graph, for example "
        "with graph.retain(x), and capture again.",
        *map(str, findings[:_SHOWN]),
    ]
    if number > _SHOWN:
        lines.append(f"and {number - _SHOWN} more")
    raise GraphStateError("\n  ".join(lines))


# ---- what work may write --------------------------------------------------------------------------

_FILLS = frozenset(("memset", "memcpy"))
_WITH_POINTERS = _FILLS | {"kernel", "empty", "graph", "conditional", "event_record", "wait_event"}
_WITH_ARGUMENTS = _FILLS | {"host", "empty", "graph", "event_record", "wait_event"}
"""The nodes that write only what their parameters, or the arguments of the stream's calls, point to."""


def may_write(obj: object, element: range, backend: Backend, graph: Any, retained: Sequence[object]) -> bool:
    """Return False if captured work is known not to write an element of an array.

    Parameters
    ----------
    obj : object
        The array, or an address, of which nobody knows in which array it is.
    element : range
        The addresses of the element.
    backend : Backend
        The backend.
    graph : object
        The graph, as the backend knows it.
    retained : sequence
        What the capture has kept alive: the arguments of the stream's calls.

    Raises
    ------
    UnsupportedError
        The backend can't list what is in a graph.
    """
    contents = backend.nodes(graph)[0]
    nodes = [*all_nodes(contents)]
    kinds = {node.kind for node in nodes}
    if "host" in kinds:
        return not kinds <= _WITH_ARGUMENTS or _is_given(element, nodes, retained)
    if not kinds <= _WITH_POINTERS:
        return True
    found = addresses(contents, backend.parameters(graph), {})
    whole, reader = next(_spans_of([obj], _memory), range(0)), getattr(type(backend), "flag_test", "")
    return found.unread > 0 or any(
        each.address in whole
        or _overlap(_used(each), element)
        or (not whole and "target" not in each.node.settable)  # it may have the address of what is around
        for each in found.pointers
        if each.argument != "source" and not (reader and each.node.name == reader)
    )


def _is_given(element: range, nodes: Iterable[GraphNode], retained: Iterable[object]) -> bool:
    """Return True if fills or copies write it, or callables may: NumPy's own write their arguments alone."""
    calls = [each for each in retained if isinstance(each, tuple) and len(each) == 3 and callable(each[0])]
    hosts, written = 0, list[range]()
    for node in nodes:
        hosts += node.kind == "host"
        if node.kind in _FILLS:
            if node.target is None or node.nbytes is None:
                return True
            written.append(range(node.target, node.target + node.nbytes))
    if hosts != len(calls) or not all(_is_numpys(work) for work, *_ in calls):
        return True
    written += _spans_of([calls, *(getattr(work, "__self__", None) for work, *_ in calls)], _elements)
    return any(_overlap(each, element) for each in written)


def _is_numpys(work: object) -> bool:
    """Return True for functions, methods and ufuncs of NumPy's that are written in C and call no Python."""
    whose: Any = work.__self__ if isinstance(work, BuiltinFunctionType) else work
    if type(whose).__module__ != "numpy":
        return False
    if type(whose).__name__ == "ufunc":
        return not all("O" in each for each in whose.types)  # those of `frompyfunc` take objects alone
    return isinstance(work, BuiltinFunctionType) or isinstance(
        getattr(work, "_implementation", None), BuiltinFunctionType
    )


# ---- the check -----------------------------------------------------------------------------------


class _Definition(NamedTuple):
    """What was captured, which does not change: read once, since that is most of what a check costs."""

    contents: GraphContents
    parameters: Sequence[NodeParameters]
    addresses: Addresses


_definitions: WeakKeyDictionary[Captured, _Definition] = WeakKeyDictionary()


def _definition(captured: Captured) -> _Definition:
    found = _definitions.get(captured)
    if found is None:
        backend, native = captured.backend, captured.native
        contents, parameters = backend.nodes(native), backend.parameters(native)
        found = _Definition(contents, parameters, addresses(contents[0], parameters, {}))
        _definitions[captured] = found
    return found


class _Segment(NamedTuple):
    """A captured graph as its executable has it now: all of the work, or that between two breaks."""

    captured: Captured
    contents: GraphContents
    found: Addresses
    captured_words: Addresses

    def shown(self, findings: Sequence[MemoryFinding], first: int, inside: bool) -> Iterator[MemoryFinding]:
        """Yield findings with their labels, and the nodes counted from this number on.

        Those inside the body of a loop or a branch have the number of that.
        """
        captured = self.captured
        labels = if_in_order(captured.labels, self.contents[1], captured.backend) if findings else ()
        for each in findings:
            if each.node is None:
                yield each
                continue
            names = [name for name, start, stop, *_ in labels if start <= each.node < stop]
            node = first if inside else first + each.node
            yield each._replace(node=node, label=names[-1] if names else "")


def _examined(runner: Runner, retained: Iterable[object]) -> MemoryCheck:
    parts = [*_numbered(runner.parts)]
    segments = [each for each, *_ in parts if isinstance(each, _Segment)]
    kept = [*retained, *(each for part, *_ in parts if isinstance(part, HostPart) for each in part.held)]
    pointers = [each for segment in segments for each in segment.found.pointers]
    before = [each for segment in segments for each in segment.captured_words.pointers]
    sure = sum(each.sure for each in pointers)
    places = _Places(runner, [each for segment in segments for each in segment.found.own], kept)
    findings = list[MemoryFinding]()
    for part, first, inside in parts:
        if isinstance(part, _Segment):
            findings += part.shown([*places.looked_up(part.found.pointers)], first, inside)
    findings += places.gone_without_a_word([*pointers, *before])
    findings.sort(key=lambda each: each.verdict not in WRONG)
    notes = tuple(_notes(sum(each.found.unread for each in segments), len(pointers) - sure))
    return MemoryCheck(runner.home.backend, runner.home.device, sure, tuple(findings), notes)


def _numbered(
    parts: Iterable[Runner | HostPart], first: int = 0, inside: bool = False
) -> Iterator[tuple[_Segment | HostPart, int, bool]]:
    """Yield segments and what is between them, each with its number, and whether it is inside of that."""
    for part in parts:
        if isinstance(part, HostPart):
            yield part, first, inside
            for body in part.bodies:
                yield from _numbered(body, first, True)
            count = 1
        else:
            segment = _segment(part)
            yield segment, first, inside
            count = len(segment.contents[0])
        if not inside:
            first += count


def _segment(runner: Runner) -> _Segment:
    captured, executable = runner.kept(), runner.executable
    contents, parameters, before = _definition(captured)
    setters: dict[tuple[int, ...], NodeSetter] = {}
    if executable is not None and executable.made_of is captured.value:
        setters = {(number,): each for number, each in (executable.setters or {}).items()}
        if executable.changes is not None:
            setters |= executable.changes.setters
            contents = executable.changes.seen(contents)
    found = addresses(contents[0], parameters, setters) if setters else before
    return _Segment(captured, contents, found, before)


def _notes(unread: int, others: int) -> Iterator[str]:
    if unread:
        yield f"not looked at: {count(unread, 'node')} whose memory the driver does not report"
    if others:
        yield f"never called wrong: {count(others, 'other word')} that may be an address"


def _watched(runner: Runner) -> list[WatchedMemory]:
    return [array for each in runner.observations if hasattr(each, "arrays") for array in each.arrays()]


def _of_array(array: WatchedMemory, pointer: Pointer | None = None) -> MemoryFinding:
    moved = "" if array.freed else ", given other memory"
    text = f"{array.text}{moved}"
    return _finding("freed", text, pointer)._replace(
        array=array.text, history=BlockHistory(freed=array.freed)
    )


def _finding(verdict: str, why: str, pointer: Pointer | None) -> MemoryFinding:
    if pointer is None:
        return MemoryFinding(verdict, why, None)
    top, *inner = [*pointer.inside, pointer.node]
    name = f"{title(inner[-1])} inside it" if inner else title(top)
    return MemoryFinding(verdict, why, pointer.address, top.id, name, pointer.argument)


class _Block(NamedTuple):
    block: MemoryBlock
    owner: str
    framework: Framework


class _Places:
    """What is known of the memory that a graph may use, by the graph, the allocators and the driver."""

    def __init__(self, runner: Runner, own: Iterable[range], retained: Iterable[object]) -> None:
        captured = runner.kept()
        self._backend, self._native = captured.backend, captured.native
        self._name = runner.home.backend
        arrays, changes = _watched(runner), None if runner.executable is None else runner.executable.changes
        kept = [*runner.retained, *retained, *(() if changes is None else changes.kept)]
        alive = [each.span for each in arrays if each.is_there()]
        self._living = _Spans([*own, *alive, *_spans_of(kept, _memory)])
        self._own_pools = _pools_of(runner)
        self._pools = _pools_of_graphs(runner)
        blocks = [
            _Block(each, owner, framework)
            for owner, framework, told in interop.blocks(self._name)
            for each in told
        ]
        self._blocks = sorted(blocks, key=lambda each: each.block.address)
        self._starts = [each.block.address for each in self._blocks]
        gone = [each for each in arrays if not each.is_there()]
        self._gone = [each for each in gone if not each.span or not self._is_own(each.span.start)]

    def looked_up(self, pointers: Sequence[Pointer]) -> Iterator[MemoryFinding]:
        """Yield what is not known to be the graph's own; of what may be an address only what looks wrong."""
        of_node: dict[int, list[int]] = {}
        for each in pointers:
            of_node.setdefault(id(each.node), []).append(each.address)
        unanswered: list[Pointer] = []
        for each in pointers:
            if self._is_own(each.address):
                continue
            gone = next((array for array in self._gone if each.address in array.span), None)
            if gone is not None:
                yield _of_array(gone, each)
                continue
            block = self._block(each.address)
            may = not each.sure or self._may_be_an_end(each, of_node[id(each.node)])
            if block is not None:
                yield from self._in_a_block(block, each, may=may)
            elif each.sure:
                unanswered.append(each)
        yield from self._by_the_driver(unanswered)

    def gone_without_a_word(self, pointers: Sequence[Pointer]) -> Iterator[MemoryFinding]:
        """Yield the arrays that are gone, and to which none of these words points or has pointed."""
        for array in self._gone:
            if not any(each.address in array.span for each in pointers):
                yield _of_array(array)

    def _is_own(self, address: int) -> bool:
        """Return True for memory that the graph owns, or that is known to live."""
        if address in self._living:
            return True
        block = self._block(address)
        return block is not None and block.block.pool in self._own_pools

    def _block(self, address: int) -> _Block | None:
        at = bisect_right(self._starts, address) - 1
        if at < 0:
            return None
        found = self._blocks[at]
        return found if address < found.block.address + found.block.nbytes else None

    def _may_be_an_end(self, pointer: Pointer, others: Sequence[int]) -> bool:
        """Return True if a kernel's address is where a block ends in which another one of the node lies."""
        before = self._block(pointer.address - 1) if pointer.node.kind == "kernel" else None
        if before is None or before is self._block(pointer.address):
            return False
        start = before.block.address
        return any(start <= each < pointer.address for each in others)

    def _in_a_block(self, found: _Block, pointer: Pointer, *, may: bool) -> Iterator[MemoryFinding]:
        (_, _, alive, pool), owner, framework = found
        whose = f"{owner}'s allocator" if pool == _DEFAULT_POOL else f"pool {tuple(pool)} of {owner}"
        live = f"lies in a live block of {whose}, which nobody is known to keep for the graph"
        of_a_graph = pool in self._pools or pool[0] != 0
        recorded = any(each.kind == "graph" for each in pointer.inside)
        if alive is not False:
            verdict, why = "note", live
        elif pool == _DEFAULT_POOL:
            verdict, why = "freed", f"lies in a free block of {whose}"
        elif of_a_graph and not recorded:
            verdict, why = "another's", f"lies in a free block of {whose}, which is another graph's"
        else:
            verdict, why = "unknown", f"lies in a free block of {whose}, whose owner is not known"
        if may:
            if verdict in WRONG:
                yield _finding("may", f"{why}, if it is an address", pointer)
            return
        finding = _finding(verdict, why, pointer)._replace(block=found.block)
        history = interop.history(framework, pointer.address) if verdict in WRONG else None
        yield finding if history is None else finding._replace(history=history)

    def _by_the_driver(self, pointers: Sequence[Pointer]) -> Iterator[MemoryFinding]:
        """Yield what the driver says of addresses that no allocator knows."""
        wanted = sorted({each.address for each in pointers})
        # a kernel may have the address where its memory ends, which is the next one's
        wanted += [each - 1 for each in wanted]
        told = dict(zip(wanted, self._backend.memory_at(self._native, wanted), strict=True))
        for each in pointers:
            state = told[each.address]
            if state == "gone" and each.node.kind == "kernel" and told[each.address - 1] != "gone":
                yield _finding("may", "is not mapped, but may be where an array ends", each)
            elif state == "gone":
                yield _finding("freed", f"is not mapped, as the driver of {self._name!r} says", each)
            elif state == "there":
                yield _finding("unknown", "lies in memory that no allocator reports", each)
            elif state is None:
                yield _finding("unknown", f"is not known to the driver of {self._name!r}", each)


def _pools_of_graphs(runner: Runner) -> set[PoolId]:
    """Return the pools of the graphs that there are."""
    found: set[PoolId] = set()
    for each in ownership.tracked():
        other = each._runner if isinstance(each, BaseGraph) else None
        if other is not None and other is not runner:
            found |= _pools_of(other)
    return found


def _pools_of(runner: Runner) -> set[PoolId]:
    """Return the pools of a graph, with those of loops' bodies and of graphs inside it."""
    return set().union(*(lease.ids for lease in runner.lease.with_others(runner.retained)))


class _Spans:
    """The addresses in any of several ranges."""

    def __init__(self, spans: Iterable[range]) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        for each in sorted((each for each in spans if each), key=lambda each: each.start):
            if self._stops and each.start <= self._stops[-1]:
                self._stops[-1] = max(self._stops[-1], each.stop)
            else:
                self._starts.append(each.start)
                self._stops.append(each.stop)

    def __contains__(self, address: int) -> bool:
        at = bisect_right(self._starts, address) - 1
        return at >= 0 and address < self._stops[at]


def _spans_of(objects: Iterable[object], span: Callable[[object], range]) -> Iterator[range]:
    """Yield the addresses of the arrays among objects, and in their containers: `_memory` or `_elements`."""
    for each in _leaves_of(objects):
        with suppress(Exception):  # an object of somebody else's that is not an array
            if found := span(each):
                yield found


def _memory(array: object) -> range:
    return span_of(array, memory_of(array))


def _elements(array: object) -> range:
    return range(*(extent(array) or (0, 0)))


def _used(pointer: Pointer) -> range:
    """Return the memory that a node is known to use by an address: of a kernel, its first byte alone."""
    node, start = pointer.node, pointer.address
    return range(start, start + (node.nbytes or 1 if node.kind in ("memcpy", "memset") else 1))


def _overlap(x: range, y: range) -> bool:
    return x.start < y.stop and y.start < x.stop


def _leaves_of(objects: Iterable[object]) -> Iterator[object]:
    """Yield objects, and what is in their containers in the containers' place."""
    for each in objects:
        if isinstance(each, (tuple, list, set, frozenset)):
            yield from _leaves_of(each)
        elif isinstance(each, dict):
            yield from _leaves_of(each.values())
        else:
            yield each
