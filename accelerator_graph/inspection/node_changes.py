"""What differs in a node that two graphs have, in words."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import NamedTuple

from ..backends.base import GraphNode
from .names import short_name
from .text import count, is_closed, size

_WORDS = {
    "grid": "has the grid {0} instead of {1}",
    "block": "has the block {0} instead of {1}",
    "shared_bytes": "has {0} of shared memory instead of {1}",
    "nbytes": "is of {0} instead of {1}",
    "value": "fills with {0} instead of {1}",
    "enabled": "is {0} instead of {1}",
}
_PLURALS = {"has": "have", "is": "are", "fills": "fill", "calls": "call"}
_ADDRESSES = {
    ("source", "memcpy"): ("reads at {0} instead of {1}", "read at other addresses"),
    ("target", "host"): ("calls {0} instead of {1}", "call other functions"),
    ("target", "mem_alloc"): ("allocates {0} instead of {1}", "allocate other addresses"),
    ("target", "mem_free"): ("frees {0} instead of {1}", "free other addresses"),
}
_WRITES = ("writes at {0} instead of {1}", "write at other addresses")


class NodeChange(NamedTuple):
    """One difference of a node: what follows its name in a sentence."""

    key: Hashable
    """Equal for changes that several nodes can share a sentence about."""
    one: str
    many: str
    """The words for one node and for several ones."""
    is_address: bool = False


def changes_of(old: GraphNode, new: GraphNode) -> Iterator[NodeChange]:
    """Yield the differences of two nodes, but for those inside them."""
    closed = is_closed(old) or is_closed(new)
    if old.name != new.name and not closed:
        yield _shared(_function(old, new))
    for field, words in _WORDS.items():
        before, after = getattr(old, field), getattr(new, field)
        if before != after:
            yield _shared(words.format(_shown(field, after), _shown(field, before)))
    for field in ("source", "target"):
        before, after = getattr(old, field), getattr(new, field)
        if before != after:
            one, many = _ADDRESSES.get((field, new.kind), _WRITES)
            yield NodeChange(many, one.format(_address(after), _address(before)), many, is_address=True)
    if closed and is_closed(old) != is_closed(new):
        yield _shared(
            f"has contents that are not known of the {'first' if is_closed(old) else 'second'} graph"
        )
    elif len(old.bodies) != len(new.bodies):
        yield _shared(f"has {count(len(new.bodies), 'body')} instead of {len(old.bodies)}")


def _shared(words: str) -> NodeChange:
    verb, _, rest = words.partition(" ")
    return NodeChange(words, words, f"{_PLURALS[verb]} {rest}")


def _function(old: GraphNode, new: GraphNode) -> str:
    if new.kind == "conditional":
        return f"is '{new.name}' instead of '{old.name}'"
    whole = [node.demangled or node.name for node in (new, old)]
    short = [short_name(name) for name in whole]
    names = whole if short[0] == short[1] else short
    now, before = (name or "a function without a name" for name in names)
    return f"calls {now} instead of {before}"


def _shown(field: str, value: object) -> str:
    if value is None:
        return "nothing"
    if field == "enabled":
        return "enabled" if value else "disabled"
    if field in ("nbytes", "shared_bytes") and isinstance(value, int):
        return size(value)
    return str(value)


def _address(value: int | None) -> str:
    return "nothing" if value is None else f"{value:#x}"
