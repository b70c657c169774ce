"""Which words of a graph's parameters are addresses of its inputs, by several captures of one function.

Some captures have the inputs of the graph, in the others every input lies elsewhere. What follows the inputs
is an argument. What differs between captures with the same inputs is of no account: unused bytes, or memory
of the capture's own. Whatever can't be explained makes the graph unfit, and its inputs have to be copied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from ...backends.base import NodeParameters
from ..input_nodes import Ranges

_WORD, _HALF = 8, 4
_FAR = 0x100
"""The upper half of an address, if memory of a capture's own may lie there: from one tebibyte on."""

_ENOUGH = 6
"""How many captures show that addresses were left in bytes that nobody has set: most have none there."""


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


class Doubt(NotFollowing):
    """Why they can't be replaced, as far as so few captures show."""


class Captures(NamedTuple):
    """The parameters of captured graphs, and where their inputs were."""

    here: list[Sequence[NodeParameters]]
    """With the inputs of the graph that is kept, which is the first."""
    there: list[Sequence[NodeParameters]]
    """With all inputs elsewhere."""
    inputs_here: Ranges
    inputs_there: Ranges
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
    """Return all words that are arguments.

    Raises `NotFollowing` if there is a doubt about any word; `Doubt` if more captures may clear it.
    """
    _check_ranges(captures.inputs_here, captures.inputs_there)
    searches = Searches(len(captures.here), Search(captures.inputs_here), Search(captures.inputs_there))
    graphs = *captures.here, *captures.there
    if len({len(each) for each in graphs}) > 1:
        raise NotFollowing(f"its captures have {', '.join(str(len(each)) for each in graphs)} nodes")
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


class Searches(NamedTuple):
    """How addresses are found in the parameters of several captures."""

    first: int
    """How many captures are the first ones, with the inputs here."""
    here: Search
    there: Search


def _words_of(subject: str, nodes: Sequence[NodeParameters], searches: Searches) -> Iterator[Found]:
    if len({(each.kind, each.rest) for each in nodes}) > 1:
        raise NotFollowing(f"{subject} is a different one in every capture")
    for each in nodes:
        _check_known(subject, each)
    captures = [each.blocks or () for each in nodes]
    if len({tuple(map(len, blocks)) for blocks in captures}) > 1:
        raise NotFollowing(f"the parameters of {subject} have a different size in every capture")
    for number, blocks in enumerate(zip(*captures, strict=True)):
        for offset, argument, distance in _words_in(subject, blocks, searches):
            yield number, offset, argument, distance
    yield from _words_inside(subject, nodes, searches)


def _words_inside(subject: str, nodes: Sequence[NodeParameters], searches: Searches) -> Iterator[Found]:
    """Yield the words in a child graph, whose blocks are those of its nodes, one after another."""
    inside = [each.inside for each in nodes]
    if len({len(each) for each in inside}) > 1:
        raise NotFollowing(f"{subject} holds a different number of nodes in every capture")
    first = len(nodes[0].blocks or ())
    for children in zip(*inside, strict=True):
        name = f"a {children[0].kind} inside {subject}"
        for block, offset, argument, distance in _words_of(name, children, searches):
            yield first + block, offset, argument, distance
        first += _block_count(children[0])


def _block_count(node: NodeParameters) -> int:
    return len(node.blocks or ()) + sum(map(_block_count, node.inside))


def _words_in(subject: str, blocks: Sequence[bytes], searches: Searches) -> Iterator[tuple[int, int, int]]:
    """Yield the words of one block, once every other word is explained."""
    count, here, there = searches
    if len(set(blocks)) == 1 and not here.hits(blocks[0]) and not there.hits(blocks[0]):
        return
    own = [(here if i < count else there).hits(block) for i, block in enumerate(blocks)]
    strange = [(there if i < count else here).hits(block) for i, block in enumerate(blocks)]
    following = set.intersection(*own)
    _check_others(subject, [a | b for a, b in zip(own, strange, strict=True)], following, blocks, count)
    if any(offset % _WORD for offset, _, _ in following):
        raise Doubt(f"{subject} has the address of an input in a packed structure")
    arguments = {offset for offset, _, _ in following}
    for offset in range(0, len(blocks[0]), _HALF):
        if offset // _WORD * _WORD in arguments or _varies(offset, _HALF, blocks, count):
            continue
        halves = {each[offset : offset + _HALF] for each in blocks}
        if len(halves) > 1 and not _is_far(offset, blocks, count):
            raise Doubt(f"{subject} has a parameter that is derived from the address of an input")
    yield from sorted(following)


def _varies(offset: int, size: int, blocks: Sequence[bytes], count: int) -> bool:
    """Return True if some bytes differ between captures with the same inputs."""
    parts = [each[offset : offset + size] for each in blocks]
    return len(set(parts[:count])) > 1 or len(set(parts[count:])) > 1


def _check_others(
    subject: str,
    hits: Sequence[set[tuple[int, int, int]]],
    following: set[tuple[int, int, int]],
    blocks: Sequence[bytes],
    count: int,
) -> None:
    """Raise if the captures have addresses in inputs that do not follow.

    Some captures may find such addresses in bytes that nobody has set, where earlier work has left them.
    """
    why = f"{subject} has an address in an input that does not follow the input"
    captures = Counter(offset for each in hits for offset in {offset for offset, _, _ in each - following})
    for offset, number in captures.items():
        if len(blocks) < _ENOUGH or 2 * number >= len(blocks) or not _varies(offset, _WORD, blocks, count):
            raise (NotFollowing if number == len(blocks) else Doubt)(why)


def _is_far(offset: int, blocks: Sequence[bytes], count: int) -> bool:
    """Return True for the upper half of an address whose lower half is of no account.

    Memory of the captures' own lies at other places each time, of which one may be some gigabytes away.
    """
    if offset % _WORD == 0 or not _varies(offset - _HALF, _HALF, blocks, count):
        return False
    return all(int.from_bytes(each[offset : offset + _HALF], "little") >= _FAR for each in blocks)


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
