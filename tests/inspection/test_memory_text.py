"""The tables of memory reports."""

import json

from accelerator_graph import GraphMemory, MemoryAmount, MemoryReport, PoolMemory
from accelerator_graph.backends.base import DeviceMemory
from accelerator_graph.interop.base import PoolSegment

MIB = 2**20
MEASURED = MemoryAmount(2 * MIB, "measured")
UNKNOWN = MemoryAmount(None, "not measured")
NOT_KEPT = MemoryAmount(0, "not kept")
SEGMENTS = (PoolSegment(1 << 30, 20 * MIB), PoolSegment(2 << 30, 2 * MIB))
POOL = PoolMemory(
    "cuda", 0, (0, 7), 2, MemoryAmount(22 * MIB, "as torch says"), MemoryAmount(3 * MIB, "so too"), SEGMENTS
)
OWN = POOL._replace(id=(9, 0), graphs=1, held=MemoryAmount(None, "not told"), used=UNKNOWN, segments=())


def graph(name, executable, touched, pool=POOL):
    sizes = {each.address: each.nbytes for each in pool.segments}
    amount = UNKNOWN if touched is None else MemoryAmount(sum(map(sizes.get, touched)), "whole segments")
    return GraphMemory(name, "cuda", 0, 12, executable, UNKNOWN, NOT_KEPT, amount, touched, pool)


LARGE = graph("large", MEASURED, (1 << 30, 2 << 30))
SMALL = graph("", UNKNOWN, (2 << 30,))
ALONE = graph("alone", MEASURED, None, OWN)
DEVICE = ("cuda", 0, DeviceMemory(60 << 30, 80 << 30, MIB, 32 * MIB))


def test_the_table_of_a_graph():
    assert str(LARGE).splitlines() == [
        "memory of a graph of cuda, device 0, 12 nodes",
        "  executable, on the device            2 MiB  measured",
        "  executable, on the host                  ?  not measured",
        "  definition, on the host                0 B  not kept",
        "  of the pool, touched by this graph  22 MiB  whole segments",
        "  pool (0, 7) of 2 graphs             22 MiB  as torch says",
        "  of the pool, used by live arrays     3 MiB  so too",
    ]


def test_the_table_of_several():
    assert str(MemoryReport((LARGE, SMALL, ALONE), (DEVICE,))).splitlines() == [
        "memory of 3 graphs, biggest first",
        "graph  nodes  executable  on the host  definition  in the pool  alone in it  pool",
        "large     12       2 MiB            ?         0 B       22 MiB       20 MiB  (0, 7)",
        "1         12           ?            ?         0 B        2 MiB          0 B  (0, 7)",
        "alone     12       2 MiB            ?         0 B            ?            ?  (9, 0)",
        "",
        "pool (0, 7) of 2 graphs: 22 MiB in 2 segments, of which live arrays use 3 MiB",
        "pool (9, 0) of 1 graph: ?",
        "device 0 of cuda: 60 GiB of 80 GiB free; nodes that allocate have 32 MiB, of which 1 MiB are in use",
        "together on the device: 26 MiB, without 2 of 5 parts that are not known",
        "together on the host: 0 B, without 3 of 6 parts that are not known",
        "",
        "executable (2 graphs): measured",
        "executable, in the pool (1 graph): not measured",
        "on the host: not measured",
        "definition: not kept",
        "in the pool (2 graphs): whole segments",
        "pool: as torch says",
        "pool: not told",
        "alone in it: what of that no other graph of the pool touches",
    ]


def test_a_graph_with_several_pools():
    body = POOL._replace(id=(8, 0), graphs=1, segments=(PoolSegment(3 << 30, 5 * MIB),))
    both = LARGE._replace(inner_pools=(body,), touched_segments=(1 << 30, 3 << 30))
    assert [line.split("  ")[1] for line in str(both).splitlines() if line.startswith("  pool")] == [
        "pool (0, 7) of 2 graphs",
        "pool (8, 0) of 1 graph",
    ]
    report = MemoryReport((both, SMALL), (DEVICE,))
    assert report.pools == (POOL, body)
    assert [report.freed_without(each) for each in report.graphs] == [25 * MIB, 2 * MIB]
    assert MemoryReport((both,), ()).freed_without(both) is None
    assert "(0, 7) and 1 more" in str(report)
    assert MemoryReport.from_json(report.to_json()) == report
    assert GraphMemory.from_json(both.to_json()) == both


def test_without_graphs():
    assert str(MemoryReport((), ())) == "memory of 0 graphs"


def test_what_only_one_graph_uses():
    report = MemoryReport((LARGE, SMALL), ())
    assert [report.freed_without(each) for each in report.graphs] == [20 * MIB, 0]
    assert MemoryReport((LARGE,), ()).freed_without(LARGE) is None  # the other one is not in the report
    unknown = SMALL._replace(touched_segments=None)
    assert MemoryReport((LARGE, unknown), ()).freed_without(LARGE) is None


def test_reports_come_back_from_json():
    """Two devices, and two pools of which the second is that of the first graph."""
    other = ("hip", 1, DeviceMemory(1, 2, None, 3))
    report = MemoryReport((ALONE, LARGE, SMALL), (DEVICE, other))
    read = MemoryReport.from_json(report.to_json())
    assert read == report
    assert [each.pool.id for each in read.graphs] == [(9, 0), (0, 7), (0, 7)]
    assert [row[:2] for row in read.devices] == [("cuda", 0), ("hip", 1)]
    for graph in report.graphs:
        assert GraphMemory.from_json(graph.to_json()) == graph


def test_each_amount_of_a_graph_comes_back():
    amounts = [MemoryAmount(number, f"way {number}") for number in range(6)]
    pool = POOL._replace(held=amounts[4], used=amounts[5])
    names = ("executable", "executable_host", "definition", "touched")
    graph = LARGE._replace(pool=pool, **dict(zip(names, amounts, strict=False)))
    assert GraphMemory.from_json(graph.to_json()) == graph
    data = json.loads(graph.to_json())
    assert [data[name]["nbytes"] for name in names] == [0, 1, 2, 3]
    assert [data["pool"][name]["nbytes"] for name in ("held", "used")] == [4, 5]
