"""How `Graph.describe`, `Graph.profile` and `Graph.memory` read a graph, and the report about all graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from .._core import memory as measuring
from .._core import ownership, profiling, replay
from .._core.graph import BaseGraph
from .._core.labels import if_in_order
from ..backends.base import DeviceMemory, GraphContents, GraphEdge, GraphNode
from ..errors import AcceleratorGraphError, UnsupportedError
from .contents import Label
from .description import GraphDescription
from .memory import GraphMemory, MemoryAmount, MemoryReport, PoolMemory
from .profile import GraphProfile
from .text import count
from .timings import PartTime, median_of

if TYPE_CHECKING:
    from .._core.pools import Lease
    from .._core.streams import Stream


def describe(graph: BaseGraph) -> GraphDescription:
    """Return what is in a graph."""
    captured, runner = graph._kept("describe()"), graph._runner_for("describe()")
    home, pool = runner.home, runner.lease.shown
    contents = _joined(runner.parts)
    labels = if_in_order(runner.labels, contents[1], captured.backend)
    return GraphDescription.of(
        home.backend, home.device, contents, map(Label._make, labels), captured.mode, (pool[0], pool[1])
    )


def _contents(segment: replay.Runner) -> GraphContents:
    """Return what is in a segment, or in a graph without breaks, as observers have named it."""
    captured = segment.kept()
    nodes, edges = segment.contents(captured)
    for name_of in [each.own_name for each in segment.observations if hasattr(each, "own_name")]:
        nodes = [node._replace(name=name_of(node) or node.name) for node in nodes]
    return _with_origins(segment, nodes, edges), edges


def _joined(parts: Iterable[replay.Runner | replay.HostPart]) -> GraphContents:
    """Return what is in a graph: its segments, and a node for each call, loop and branch between them."""
    nodes: list[GraphNode] = []
    edges: list[GraphEdge] = []
    ends: list[int] = []
    for part in parts:
        first = len(nodes)
        if isinstance(part, replay.Runner):
            own, between = _contents(part)
            nodes += [node._replace(id=first + node.id) for node in own]
            edges += [
                each._replace(source=first + each.source, target=first + each.target) for each in between
            ]
            inner, outer = {each.target for each in between}, {each.source for each in between}
            begins = [first + node.id for node in own if node.id not in inner]
            last = [first + node.id for node in own if node.id not in outer]
        else:
            nodes.append(_between(first, part))
            begins = last = [first]
        edges += [GraphEdge(source, target) for target in begins for source in ends]
        ends = last or ends
    return nodes, edges


def _between(number: int, part: replay.HostPart) -> GraphNode:
    """Return the node of a call, a loop or a branch between segments."""
    kind = "eager" if part.kind == "eager" else "conditional"
    bodies = tuple(map(_joined, part.bodies))
    return GraphNode(number, kind, part.name, file=part.file, line=part.line, bodies=bodies)


def _with_origins(
    runner: replay.Runner, nodes: Sequence[GraphNode], edges: Sequence[GraphEdge]
) -> list[GraphNode]:
    """Return the nodes with the stacks that observers have kept."""
    found = [*nodes]
    kept = next((each for each in runner.observations if hasattr(each, "stack")), None)
    if kept is None or any(edge.source >= edge.target for edge in edges):
        return found
    return [node._replace(stack=kept.stack(node.id)) for node in found]


def profile(
    graph: BaseGraph,
    replays: int,
    state: Iterable[object] | None,
    kernels: bool,
    live: Mapping[str, object] | None,
) -> GraphProfile:
    """Return how long a graph's work takes; run it to find out."""
    runner = graph._runner_for("profile()")
    replays, arrays, kernels = profiling.checked(replays, state, kernels)
    if live is not None or runner.in_segments:
        return _profile_of_parts(runner, replays, arrays, kernels, live or {})
    traced = graph._kept("profile()") if kernels else None
    graph._make_ready(runner)
    stream, nodes, found, (times, spans, seen) = profiling.measure(runner, graph, replays, arrays, traced)
    labels = [Label._make(each) for each in found.labels]
    measured = GraphProfile.of(
        stream.backend, stream.device, nodes, times, labels, spans, found.cut, found.why_not
    )
    return measured if traced is None else measured.with_kernels(describe(graph).nodes, seen)


def _profile_of_parts(
    runner: replay.Runner, replays: int, state: list[object], kernels: bool, live: Mapping[str, object]
) -> GraphProfile:
    what = "profile(kernels=True)"
    if kernels and what in runner.refused:
        raise UnsupportedError(f"{what}: {runner.refused[what]}.")
    stream, times, runs = profiling.measure_parts(runner, replays, state, live)
    parts: list[PartTime] = []
    for part, spans in zip(runner.parts, zip(*runs, strict=True), strict=True):
        begin, end, on_host = (median_of(each) for each in zip(*spans, strict=True))
        place: tuple[str, int | None, str, int]
        if isinstance(part, replay.HostPart):
            place = part.name, None, part.file, part.line
        else:
            place = f"segment {1 + sum(not each.is_call for each in parts)}", part.counted, "", 0
        parts.append(PartTime(*place, begin, end - begin, on_host))
    return GraphProfile(
        *(stream.backend, stream.device, runner.counted, tuple(times)),
        parts=tuple(parts),
        notes=("The segments and what is between them were timed, not the labels.",),
    )


_MEASURE = "accelerator_graph.measure_memory()"
_NOT_MEASURED = f"not measured when the executable was made; make it inside `with {_MEASURE}`"
_NO_EXECUTABLE = "there is no executable yet"
_REPORTED = "as backend {!r} reports it"

_PoolKey = tuple[str, int, tuple[int, int]]


def graph_memory(graph: BaseGraph) -> GraphMemory:
    """Return how much memory a captured graph takes."""
    runner = graph._runner
    assert runner is not None
    return _of(runner, "", {}, _graphs_of_pools())


def memory_report(graphs: Mapping[str, BaseGraph] | Iterable[BaseGraph] | None = None) -> MemoryReport:
    """Return how much memory graphs take, the biggest first.

    Executables are measured when they are made, inside `measure_memory`; everything else is asked for now.
    ``print(accelerator_graph.memory_report())`` is a table.

    Parameters
    ----------
    graphs : mapping of names to graphs, or iterable of graphs, optional
        Which graphs. By default all live graphs of this process; those that are empty are left out, and a
        graph that is given twice counts once, under its first name.

    Raises
    ------
    TypeError
        One of them is not a graph.
    """
    if graphs is None:
        named = [("", graph) for graph in ownership.tracked() if isinstance(graph, BaseGraph)]
    elif isinstance(graphs, Mapping):
        named = [(str(name), graph) for name, graph in graphs.items()]
    elif isinstance(graphs, Iterable):
        named = [("", graph) for graph in graphs]
    else:
        raise TypeError(f"memory_report: the argument must be an iterable of graphs, not {graphs!r}.")
    pools: dict[_PoolKey, PoolMemory] = {}
    sharing = _graphs_of_pools()
    devices: dict[tuple[str, int], DeviceMemory] = {}
    runners: set[replay.Runner] = set()
    found = []
    for name, graph in named:
        if not isinstance(graph, BaseGraph):
            raise TypeError(f"memory_report: each graph must be an accelerator_graph.Graph, not {graph!r}.")
        runner = graph._runner
        if runner is not None and runner not in runners:
            runners.add(runner)
            found.append(_of(runner, name, pools, sharing))
            _ask_device(runner, devices)
    found.sort(key=lambda each: (-each.nbytes, -(each.nodes or 0), each.name))
    return MemoryReport(tuple(found), tuple((*where, memory) for where, memory in devices.items()))


def _of(
    runner: replay.Runner, name: str, pools: dict[_PoolKey, PoolMemory], sharing: Counter[_PoolKey]
) -> GraphMemory:
    home = runner.home
    leases = _leases_of(runner)
    for key, lease in leases.items():
        if key not in pools:
            pools[key] = _pool(key, lease, home, sharing[key])
    own = tuple(pools[key] for key in leases)
    parts = runner.segments
    touched = [_touched(each, own) for each in parts]
    segments = None if None in touched else tuple(sorted({at for each in touched if each for at in each}))
    try:
        nodes: int | None = runner.num_nodes()
    except AcceleratorGraphError:
        nodes = None
    return GraphMemory(
        name,
        home.backend,
        home.device,
        nodes,
        _sum(map(_executable, parts)),
        _sum(map(_executable_on_host, parts)),
        _sum(map(_definition, parts)),
        _sum_of_touched(runner, own, segments),
        segments,
        own[0],
        _results(runner.calls),
        own[1:],
    )


def _results(calls: Sequence[replay.HostPart]) -> MemoryAmount:
    found = [each.nbytes for each in calls]
    if not calls:
        return MemoryAmount(0, "the graph makes no eager calls")
    if None in found:
        return MemoryAmount(None, "an array that an eager call returned does not say how large it is")
    note = (
        f"what {count(len(calls), 'eager call')} returned in the capture, to which replays copy; in no pool"
    )
    return MemoryAmount(sum(each or 0 for each in found), note)


def _sum(amounts: Iterable[MemoryAmount]) -> MemoryAmount:
    found = [*amounts]
    unknown = next((each for each in found if each.nbytes is None), None)
    return unknown or found[0]._replace(nbytes=sum(each.nbytes or 0 for each in found))


# ---- the parts -------------------------------------------------------------------------------------


def _executable(runner: replay.Runner) -> MemoryAmount:
    if runner.executable is None:
        return MemoryAmount(None, _NO_EXECUTABLE)
    return _measured(
        runner.measured and runner.measured.device,
        "by how much the device's free memory fell when the executable was made; the driver may take it in "
        "pieces that executables share and leave to later ones",
    )


def _executable_on_host(runner: replay.Runner) -> MemoryAmount:
    executable = runner.executable
    if executable is None:
        return MemoryAmount(None, _NO_EXECUTABLE)
    reported = _host_bytes(executable)
    if reported is not None:
        return MemoryAmount(reported, _REPORTED.format(runner.home.backend))
    return _measured(
        runner.measured and runner.measured.host,
        "by how much the heap of the C library grew when the executable was made, in all threads; the driver "
        "may keep some of it for later ones",
    )


def _measured(found: measuring.Difference | None, how: str) -> MemoryAmount:
    return (
        MemoryAmount(None, _NOT_MEASURED) if found is None else MemoryAmount(found.nbytes, found.why or how)
    )


def _definition(runner: replay.Runner) -> MemoryAmount:
    if runner.captured is None:
        return MemoryAmount(0, "the graph was not kept")
    reported = _host_bytes(runner.captured)
    if reported is not None:
        return MemoryAmount(reported, _REPORTED.format(runner.home.backend))
    return MemoryAmount(None, f"backend {runner.home.backend!r} does not report how large this graph is")


def _host_bytes(made: ownership.Owned) -> int | None:
    try:
        return made.backend.host_bytes(made.native)
    except AcceleratorGraphError:
        return None


def _touched(runner: replay.Runner, pools: Sequence[PoolMemory]) -> tuple[int, ...] | None:
    """Return the segments that the graph uses, by address."""
    if any(pool.held.nbytes is None for pool in pools):
        return None
    captured, measured = runner.captured, runner.measured
    segments = sorted(segment for pool in pools for segment in pool.segments)
    if captured is not None:
        found = measuring.touched_segments(segments, captured)
    elif not segments:
        found = frozenset()
    else:
        found = None if measured is None else measured.touched
    return None if found is None else tuple(sorted(found))


def _sum_of_touched(
    runner: replay.Runner, pools: Sequence[PoolMemory], touched: tuple[int, ...] | None
) -> MemoryAmount:
    segments = [segment for pool in pools for segment in pool.segments]
    if touched is not None:
        return MemoryAmount(
            sum(segment.nbytes for segment in segments if segment.address in touched),
            "the whole segments of the pool into which the parameters of its nodes point; what is found only "
            "by pointers in the device's memory is not counted"
            if segments
            else pools[0].held.note,
        )
    unknown = next((pool.held for pool in pools if pool.held.nbytes is None), None)
    if unknown is not None:
        return unknown
    if runner.captured is None and runner.measured is None:
        return MemoryAmount(
            None, f"the graph was not kept; capture with keep_graph=True, or inside `with {_MEASURE}`"
        )
    return MemoryAmount(
        None, f"backend {runner.home.backend!r} does not report all parameters of the graph's nodes"
    )


def _leases_of(runner: replay.Runner) -> dict[_PoolKey, Lease]:
    """Return a graph's parts in pools, its own first."""
    home = runner.home
    found: dict[_PoolKey, Lease] = {}
    for lease in runner.lease.with_others(runner.retained):
        first, second = lease.shown
        found.setdefault((home.backend, home.device, (first, second)), lease)
    return found


def _graphs_of_pools() -> Counter[_PoolKey]:
    """Return how many live graphs use each pool."""
    runners = (each._runner for each in ownership.tracked() if isinstance(each, BaseGraph))
    return Counter(key for runner in runners if runner is not None for key in _leases_of(runner))


def _pool(key: _PoolKey, lease: Lease, home: Stream, sharing: int) -> PoolMemory:
    contents = measuring.pool_contents(home, [lease])
    if contents is None:
        unknown = MemoryAmount(None, "a framework that takes part in captures does not report what it has")
        return PoolMemory(*key, sharing, unknown, unknown)
    held = MemoryAmount(
        sum(segment.nbytes for segment in contents.segments),
        "the segments that frameworks have got from the driver for the pool, as they report them"
        if contents.segments
        else "no framework has memory in the pool; arrays that the program allocated are its own",
    )
    used = MemoryAmount(
        contents.used,
        "as the frameworks report; replays write to the rest, too"
        if contents.used is not None
        else "a framework does not report",
    )
    return PoolMemory(*key, sharing, held, used, contents.segments)


def _ask_device(runner: replay.Runner, devices: dict[tuple[str, int], DeviceMemory]) -> None:
    where = runner.home.backend, runner.home.device
    made = runner.captured or runner.executable
    if where not in devices and made is not None:
        memory = measuring.device_memory(made)
        if memory is not None:
            devices[where] = memory
