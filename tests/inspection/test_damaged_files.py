"""JSON that somebody has changed or cut off: it is refused with ValueError, or what is read can be used."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

import accelerator_graph as ag
from accelerator_graph import Fingerprint, GraphDescription, GraphMemory, MemoryReport
from accelerator_graph.backends.base import GraphEdge, GraphNode
from accelerator_graph.inspection.drawing import to_dot
from accelerator_graph.inspection.page import to_html
from inspection.shapes import described, labelled
from inspection.test_memory_text import ALONE, DEVICE, LARGE, SMALL

INSIDE = ([GraphNode(0, "memcpy", source=1, target=2, nbytes=3)], [])
NODES = [
    GraphNode(0, "kernel", "_ZN2ns5scaleEPf", grid=(1, 2, 3), block=(32, 1, 1), shared_bytes=48),
    GraphNode(1, "memset", target=2**63, nbytes=8, value=0),
    GraphNode(2, "conditional", "if", bodies=(INSIDE, INSIDE)),
]
EDGES = [GraphEdge(1, 2), GraphEdge(0, 1, "programmatic")]
GRAPH = labelled(described(NODES, EDGES), ("a", 0, 3, "m.py", 7), ("b", 1, 2, "m.py", 9))
DESCRIPTION = GRAPH._replace(mode="global", pool=(1, 7))
REPORT = MemoryReport((LARGE, SMALL, ALONE), (DEVICE,))
ODD = (None, True, 5, -1, 2**70, 1.5, float("nan"), "x", "", "\ud800", [], [1], [[]], {}, {"a": 1})

Way = tuple[Any, ...]


def ways(data: Any, way: Way = ()) -> Iterator[Way]:
    """Yield how to come to each value."""
    yield way
    inside = enumerate(data) if isinstance(data, list) else data.items() if isinstance(data, dict) else ()
    for key, each in inside:
        yield from ways(each, (*way, key))


def replaced(data: Any, way: Way, value: object) -> Any:
    if not way:
        return value
    whole = part = copy.deepcopy(data)
    for key in way[:-1]:
        part = part[key]
    part[way[-1]] = value
    return whole


def use(read: Any) -> None:
    assert str(read)
    if isinstance(read, GraphDescription):
        ag.diff(DESCRIPTION, read)
        assert to_dot(read).encode()
        assert to_html(read).encode()
        assert str(Fingerprint.of(read))
    assert type(read).from_json(read.to_json()) == read


@pytest.mark.parametrize("what", [DESCRIPTION, REPORT, LARGE], ids=lambda what: type(what).__name__)
def test_a_value_of_another_type_is_refused_or_harmless(what: GraphDescription | MemoryReport | GraphMemory):
    data = json.loads(what.to_json())
    refused = 0
    for way in ways(data):
        for value in ODD:
            text = json.dumps(replaced(data, way, value))
            try:
                read = type(what).from_json(text)
            except ValueError:
                refused += 1
                continue
            use(read)
    assert refused > len(data) * len(ODD) / 2


@pytest.mark.parametrize("what", [DESCRIPTION, REPORT, LARGE], ids=lambda what: type(what).__name__)
def test_a_text_that_was_cut_off_is_refused(what: GraphDescription | MemoryReport | GraphMemory):
    text = what.to_json()
    for end in range(len(text)):
        with pytest.raises(ValueError, match="the text is not JSON"):
            type(what).from_json(text[:end])


def test_the_error_names_the_value():
    data = json.loads(DESCRIPTION.to_json())
    data["nodes"][1]["nbytes"] = "8"
    with pytest.raises(ValueError, match=r"the description is damaged .*'nbytes' can't be '8'"):
        GraphDescription.from_json(json.dumps(data))


def test_a_text_that_is_nested_without_end_is_refused():
    with pytest.raises(ValueError, match="nested too deeply"):
        GraphDescription.from_json("[" * 100_000)
