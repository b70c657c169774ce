"""Which node of a graph writes a wrong array last, where the description tells."""

from __future__ import annotations

from ...backends.base import GraphNode
from ...errors import AcceleratorGraphError
from .case import Case
from .report import Finding

_WRITES_NOTHING = ("empty", "event_record", "wait_event")


def last_writer(case: Case, finding: Finding) -> str:
    """Return the last node that writes an array, as a clause; empty if that is not known.

    Of copies and fills the description tells where they write. A kernel, or a function of the host, may write
    anywhere: with one of them behind the last copy or fill, nothing is known.
    """
    outputs = [place for place in case.program.outputs if place.name == finding.array]
    graph = case.program.graph
    if not outputs or outputs[0].extent is None or graph is None:
        return ""
    try:
        nodes = graph.describe().nodes
    except AcceleratorGraphError:  # the graph was not kept, or the backend can't list nodes
        return ""
    for node in reversed(nodes):
        if node.kind in _WRITES_NOTHING or _writes_elsewhere(node, outputs[0].extent):
            continue
        return f"node {node.id}, a {node.kind}" if node.nbytes is not None else ""
    return ""


def _writes_elsewhere(node: GraphNode, extent: tuple[int, int]) -> bool:
    if node.kind not in ("memcpy", "memset") or node.target is None or node.nbytes is None:
        return False
    return node.target >= extent[1] or node.target + node.nbytes <= extent[0]
