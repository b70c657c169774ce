"""Memory reports as JSON, and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from ..backends.base import DeviceMemory
from .amounts import MeasuredGraph, PoolMemory, Report
from .records import record, value
from .schema import read_json

SCHEMA = 1
"""The version of the schema. It changes when a field goes or changes its meaning; new fields do not count."""

T = TypeVar("T")
G = TypeVar("G", bound=MeasuredGraph)

_AMOUNTS = ("executable", "executable_host", "definition", "touched")


def graph_to_json(memory: MeasuredGraph, indent: int | None) -> str:
    """Return what one graph takes as JSON."""
    return json.dumps(
        {"schema": SCHEMA, "graph": _graph(memory, 0), "pools": [_pool(memory.pool)]}, indent=indent
    )


def report_to_json(report: Report, indent: int | None) -> str:
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


def graph_from_json(text: str, kind: type[G]) -> G:
    """Return what one graph takes, as an object of this class."""
    return _read(text, lambda data: _graph_of(data["graph"], _pools_of(data), kind))


def report_from_json(
    text: str, kind: type[G], make: Callable[[tuple[G, ...], tuple[tuple[str, int, DeviceMemory], ...]], T]
) -> T:
    """Return what `make` makes of a report's graphs, which are objects of this class, and its devices."""

    def read(data: dict[str, Any]) -> T:
        pools = _pools_of(data)
        graphs = tuple(_graph_of(each, pools, kind) for each in data["graphs"])
        devices = [[each["backend"], each["device"], each] for each in data["devices"]]
        return make(graphs, value(tuple[tuple[str, int, DeviceMemory], ...], devices))

    return _read(text, read)


def _read(text: str, make: Callable[[dict[str, Any]], T]) -> T:
    return read_json(text, "a report about memory", "report", SCHEMA, make)


def _graph(memory: MeasuredGraph, pool: int) -> dict[str, Any]:
    data = memory._asdict() | {"pool": pool}
    return data | {name: getattr(memory, name)._asdict() for name in _AMOUNTS}


def _graph_of(data: dict[str, Any], pools: list[PoolMemory], kind: type[G]) -> G:
    if data["pool"] not in range(len(pools)):
        raise IndexError("a graph names a pool that does not exist")
    return record(kind, data, pool=pools[data["pool"]])


def _pool(pool: PoolMemory) -> dict[str, Any]:
    return pool._asdict() | {"held": pool.held._asdict(), "used": pool.used._asdict()}


def _pools_of(data: dict[str, Any]) -> list[PoolMemory]:
    return [record(PoolMemory, each) for each in data["pools"]]
