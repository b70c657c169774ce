"""What graphs take as JSON, and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from .memory import GraphMemory, MemoryReport, PoolMemory
from .records import record
from .schema import read_json

SCHEMA = 1
"""The version of the schema. It changes when a field goes or changes its meaning; new fields do not count."""

T = TypeVar("T")

_AMOUNTS = ("executable", "executable_host", "definition", "touched")


def graph_to_json(memory: GraphMemory, indent: int | None) -> str:
    """Return what one graph takes as JSON."""
    return json.dumps(
        {"schema": SCHEMA, "graph": _graph(memory, 0), "pools": [_pool(memory.pool)]}, indent=indent
    )


def report_to_json(report: MemoryReport, indent: int | None) -> str:
    """Return a report as JSON, with each pool once."""
    pools = list(report.pools)
    data = {
        "schema": SCHEMA,
        "graphs": [_graph(each, pools.index(each.pool)) for each in report.graphs],
        "pools": [_pool(each) for each in pools],
        "devices": [
            {"backend": backend, "device": device, **memory._asdict()}
            for backend, device, memory in report.devices
        ],
    }
    return json.dumps(data, indent=indent)


def graph_from_json(text: str) -> GraphMemory:
    """Read what one graph takes."""
    return _read(text, lambda data: _graph_of(data["graph"], _pools_of(data)))


def report_from_json(text: str) -> MemoryReport:
    """Read a report."""

    def read(data: dict[str, Any]) -> MemoryReport:
        pools = _pools_of(data)
        graphs = tuple(_graph_of(each, pools) for each in data["graphs"])
        devices = [[each["backend"], each["device"], each] for each in data["devices"]]
        return record(MemoryReport, {"devices": devices}, graphs=graphs)

    return _read(text, read)


def _read(text: str, make: Callable[[dict[str, Any]], T]) -> T:
    return read_json(text, "a report about memory", "report", SCHEMA, make)


def _graph(memory: GraphMemory, pool: int) -> dict[str, Any]:
    data = memory._asdict() | {"pool": pool}
    return data | {name: getattr(memory, name)._asdict() for name in _AMOUNTS}


def _graph_of(data: dict[str, Any], pools: list[PoolMemory]) -> GraphMemory:
    if data["pool"] not in range(len(pools)):
        raise IndexError("a graph has a pool that is not there")
    return record(GraphMemory, data, pool=pools[data["pool"]])


def _pool(pool: PoolMemory) -> dict[str, Any]:
    return pool._asdict() | {"held": pool.held._asdict(), "used": pool.used._asdict()}


def _pools_of(data: dict[str, Any]) -> list[PoolMemory]:
    return [record(PoolMemory, each) for each in data["pools"]]
