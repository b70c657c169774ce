"""Which words of a graph's parameters are addresses of its inputs, by three captures of one function.

The first two captures have the same inputs, and in the third every input lies elsewhere. What follows the
inputs is an argument. What differs between the first two is of no account: unused bytes, or memory of the
capture's own. Whatever can't be explained makes the graph unfit, and its inputs have to be copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from ..backends.base import NodeParameters

_WORD, _HALF = 8, 4
_FAR = 0x100
"""The upper half of an address, if memory of a capture's own may lie there: from one tebibyte on."""

Ranges = Sequence[tuple[int, int]]
"""Where each input begins and ends."""


class ArgumentWord(NamedTuple):
    """A word that is an address in an input."""

    node: int
    block: int
    offset: int
    """Its place in the parameters of a node."""
    argument: int
    """The number of the input."""
    distance: int
    """How many bytes of the input lie before the address."""


class NotFollowing(Exception):
    """Why the inputs of a graph can't be replaced by others."""


class Captures(NamedTuple):
    """The parameters of three graphs, and where the inputs of the first two and of the third were."""

    first: Sequence[NodeParameters]
    second: Sequence[NodeParameters]
    third: Sequence[NodeParameters]
    here: Ranges
    there: Ranges
    names: Sequence[str] = ()
    """What messages call the nodes, such as the names of the kernels."""


def check_known(nodes: Sequence[NodeParameters], names: Sequence[str]) -> None:
    """Raise `NotFollowing` if a graph has a node of which nobody can say what it reads."""
    for number, node in enumerate(nodes):
        _check_known(_subject(number, node, names), node)


def _subject(number: int, node: NodeParameters, names: Sequence[str]) -> str:
    name = names[number] if names else ""
    return f"node {number}, a {node.kind}" + (f" ({name})" if name else "")


def _check_known(subject: str, node: NodeParameters) -> None:
    if node.kind == "host":
        raise NotFollowing(f"{subject} is a function of the host, and what that reads is not known")
    if node.blocks is None:
        raise NotFollowing(f"the parameters of {subject} are not known")
    for child in node.inside:
        _check_known(f"a {child.kind} inside {subject}", child)


def argument_words(captures: Captures) -> list[ArgumentWord]:
    """Return all words that are arguments; raise `NotFollowing` if there is a doubt about any word."""
    _check_ranges(captures.here, captures.there)
    searches = Search(captures.here), Search(captures.there)
    graphs = captures.first, captures.second, captures.third
    if len({len(each) for each in graphs}) > 1:
        raise NotFollowing(f"three captures have {', '.join(str(len(each)) for each in graphs)} nodes")
    found: list[ArgumentWord] = []
    for number, nodes in enumerate(zip(*graphs, strict=True)):
        subject = _subject(number, nodes[0], captures.names)
        for block, offset, argument, distance in _words_of(subject, nodes, searches):
            found.append(ArgumentWord(number, block, offset, argument, distance))
    return found


def _check_ranges(here: Ranges, there: Ranges) -> None:
    """Raise unless the inputs lie apart, and in the opposite order in the third capture."""
    every = sorted([*here, *there])
    if any(end > start for (_, end), (start, _) in pairwise(every)):
        raise NotFollowing("the inputs of the captures share memory")
    order = sorted(range(len(here)), key=lambda i: here[i])
    if sorted(range(len(there)), key=lambda i: there[i], reverse=True) != order:
        raise NotFollowing("the inputs can't be laid out in another order")


Found = tuple[int, int, int, int]
"""A word: its block, its offset there, the number of the input, and the distance from its beginning."""


def _words_of(
    subject: str, nodes: Sequence[NodeParameters], searches: tuple[Search, Search]
) -> Iterator[Found]:
    first, second, third = nodes
    if len({(each.kind, each.rest) for each in nodes}) > 1:
        raise NotFollowing(f"{subject} is another one in every capture")
    for each in nodes:
        _check_known(subject, each)
    assert first.blocks is not None
    assert second.blocks is not None
    assert third.blocks is not None
    _check_inside(subject, nodes, searches)
    sizes = [[len(block) for block in blocks] for blocks in (first.blocks, second.blocks, third.blocks)]
    if sizes[0] != sizes[1] or sizes[0] != sizes[2]:
        raise NotFollowing(f"the parameters of {subject} have another size in every capture")
    for number, blocks in enumerate(zip(first.blocks, second.blocks, third.blocks, strict=True)):
        for offset, argument, distance in _words_in(subject, blocks, searches):
            yield number, offset, argument, distance


def _check_inside(subject: str, nodes: Sequence[NodeParameters], searches: tuple[Search, Search]) -> None:
    """Raise if a graph inside a node has arguments: children are not changed."""
    inside = [each.inside for each in nodes]
    if len({len(each) for each in inside}) > 1:
        raise NotFollowing(f"{subject} holds another number of nodes in every capture")
    for children in zip(*inside, strict=True):
        for _ in _words_of(f"a {children[0].kind} inside {subject}", children, searches):
            raise NotFollowing(f"{subject} has a node inside that reads or writes an input")


def _words_in(
    subject: str, blocks: Sequence[bytes], searches: tuple[Search, Search]
) -> Iterator[tuple[int, int, int]]:
    """Yield the words of one block, once every other word is explained."""
    here, there = searches
    first, second, third = blocks
    alike = first == second == third
    hits = [here.hits(first)] if alike else [here.hits(first), here.hits(second), there.hits(third)]
    strange = there.hits(first) if alike else there.hits(first) | there.hits(second) | here.hits(third)
    if strange or (alike and hits[0]) or any(each != hits[0] for each in hits):
        raise NotFollowing(f"{subject} has an address in an input that does not follow the input")
    if any(offset % _WORD for offset, _, _ in hits[0]):
        raise NotFollowing(f"{subject} has the address of an input in a packed structure")
    if alike:
        return
    arguments = {offset for offset, _, _ in hits[0]}
    for offset in range(0, len(first), _HALF):
        if offset // _WORD * _WORD in arguments:
            continue
        halves = [each[offset : offset + _HALF] for each in blocks]
        if halves[0] == halves[1] != halves[2] and not _is_far(offset, blocks):
            raise NotFollowing(f"{subject} has a parameter that is derived from the address of an input")
    yield from sorted(hits[0])


def _is_far(offset: int, blocks: Sequence[bytes]) -> bool:
    """Return True for the upper half of an address whose lower half differs between the first two captures.

    Memory of the captures' own lies at three places, of which the third alone may be some gigabytes away.
    """
    if offset % _WORD == 0:
        return False
    lower = [each[offset - _HALF : offset] for each in blocks]
    upper = [int.from_bytes(each[offset : offset + _HALF], "little") for each in blocks]
    return lower[0] != lower[1] and min(upper) >= _FAR


class Search:
    """Finds addresses in ranges, at any offset."""

    def __init__(self, ranges: Ranges) -> None:
        self._wanted: list[tuple[bytes, int, int, int]] = []
        for number, (start, end) in enumerate(ranges):
            if end > start:
                low, high = start.to_bytes(_WORD, "little"), (end - 1).to_bytes(_WORD, "little")
                common = _WORD
                while common and low[_WORD - common :] != high[_WORD - common :]:
                    common -= 1
                self._wanted.append((low[_WORD - common :], start, end, number))

    def hits(self, block: bytes) -> set[tuple[int, int, int]]:
        """Return offset, number of the range and distance from its beginning of every address."""
        found = set()
        for pattern, start, end, number in self._wanted:
            before = _WORD - len(pattern)
            at = block.find(pattern, before)
            while at >= 0:
                address = int.from_bytes(block[at - before : at - before + _WORD], "little")
                if start <= address < end:
                    found.add((at - before, number, address - start))
                at = block.find(pattern, at + 1)
        return found
