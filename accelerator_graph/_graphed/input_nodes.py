"""Copies to static inputs that are nodes of the graph: a call only changes where they read from.

C changes nodes where it can: see `patches`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any, NamedTuple

from .._arrays.arrays import ArrayType
from .._arrays.placement import same_bytes
from .._arrays.signatures import Leaves
from .._core.current_stream import give_back, take_branches
from .._core.extension import fast
from .._core.streams import Stream
from ..api import Graph
from ..backends.base import Capability, NodeSetter
from ..errors import DriverError

if TYPE_CHECKING:
    from .._core._fast import Patches

Ranges = Sequence[tuple[int, int]]
"""Where memory begins and ends."""

Word = tuple[int, int, int, int]
"""The block and the offset of an address, the number of the array, and the distance from its beginning."""

_MOST_ARRAYS = 128


def addresses(values: Iterable[int]) -> array[int]:
    """Return addresses in memory that C reads."""
    return array("Q", values)


class Memory:
    """Ranges of addresses."""

    def __init__(self, ranges: Ranges) -> None:
        self._starts: list[int] = []  # in order
        self._ends: list[int] = []
        for start, end in sorted(ranges):
            if start == end:
                continue
            if self._ends and start <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._starts.append(start)
                self._ends.append(end)

    def has(self, address: int, nbytes: int) -> bool:
        """Return True if an array has some of this memory."""
        place = bisect_right(self._ends, address)
        return place < len(self._ends) and self._starts[place] < address + nbytes


def patches(
    now: array[int],
    sizes: Iterable[int],
    captured: Iterable[int],
    alignment: int,
    own: Ranges,
    nodes: Sequence[tuple[NodeSetter, Sequence[Word]]],
) -> Patches | None:
    """Return what changes nodes in C; None if they can't be changed there.

    Parameters
    ----------
    now : array of int
        Where the executable has each array, which C changes; 0 if that is not known.
    sizes : iterable of int
        Of each array, in bytes.
    captured : iterable of int
        The addresses of the arrays that were captured.
    alignment : int
        The difference of an address and the captured one must be a multiple of this number.
    own : sequence of (int, int)
        The memory of the graph, where no array may be.
    nodes : sequence of tuples
        The nodes, and the addresses in their parameters.
    """
    functions = [setter.function for setter, _ in nodes]
    first = functions[0] if functions else None
    if fast is None or first is None or len(now) > _MOST_ARRAYS:
        return None
    found: list[tuple[object, ...]] = []
    for function, (setter, words) in zip(functions, nodes, strict=True):
        if function is None or function.guard != first.guard or function.arguments[0] != first.arguments[0]:
            return None
        _, node, parameters, *context = function.arguments
        cells = tuple((setter.address_of(*at), number, distance) for *at, number, distance in words)
        found.append((function.address, node, parameters, *(context or (0,)), cells))
    owner = tuple(setter for setter, _ in nodes)
    ranges = addresses(each for pair in own for each in pair)
    condition = () if first.guard is None else (first.guard.address, first.guard.context)
    made: Patches = fast.Patches(
        owner,
        first.arguments[0],
        now,
        addresses(sizes),
        addresses(captured),
        alignment,
        ranges,
        tuple(found),
        *condition,
    )
    return made


# ---- the copies ------------------------------------------------------------------------------------

_SOURCE = (1, 0)
"""The block and the offset of the address that a copy reads from."""

_BRANCHES, _COPIES = 4, 4
"""The most branches for the copies, and how many copies are worth one: a small copy takes the device about
as long as a branch takes the launch."""


class InputNode(NamedTuple):
    """A copy to the static array of one argument."""

    argument: int
    """Its place among the arrays of a call."""
    address: Callable[[Any], int]
    altered: Callable[[Any], bool] | None
    static: int
    """The address of the static array."""
    nbytes: int
    array_type: ArrayType


class InputNodes:
    """The first nodes of a graph, each a copy from the caller's array to the static one.

    Parameters
    ----------
    stream : Stream
        Beside it the graph is captured.
    leaves, statics : sequence of arrays
        The arrays of the call that is captured, and the static ones.
    array_types : sequence of ArrayType, or a mapping
        Their types.
    indices : sequence of int
        Which of them are copied.
    """

    def __init__(
        self,
        stream: Stream,
        leaves: Leaves,
        statics: Sequence[Any],
        array_types: Sequence[ArrayType] | Mapping[int, ArrayType],
        indices: Sequence[int],
    ) -> None:
        self._nodes: list[InputNode] = []  # in the order of recording
        if Capability.SET_NODE in stream._backend.capabilities(stream.device):
            for i in indices:
                self._add(i, leaves[i], statics[i], array_types[i])
        branches = min(_BRANCHES, len(self._nodes) // _COPIES)
        if Capability.EVENTS not in stream._backend.capabilities(stream.device):
            branches = 1
        self._branches = take_branches(stream, branches - 1)
        self.arguments = {node.argument: number for number, node in enumerate(self._nodes)}
        """The arguments that are copied by nodes, and which node that is."""
        self._sources = addresses([0] * len(self._nodes))
        """Where each node reads; 0 if that is not known, or a copy."""
        self._setters: list[Callable[[int], None]] = []
        self._enablers: list[Callable[[bool], None] | None] = []
        self._enabled: list[bool | None] = [True] * len(self._nodes)
        """Whether later runs have each node; None if an interrupt has left that unknown."""
        self.statics = addresses(node.static for node in self._nodes)
        """The addresses of their static arrays."""
        self._sizes = [node.nbytes for node in self._nodes]
        self._own = [(node.static, node.static + node.nbytes) for node in self._nodes]
        self._memory = Memory(self._own)
        self.patches: Patches | None = None
        """What has the nodes read elsewhere in C."""

    def _add(self, i: int, leaf: Any, static: Any, array_type: ArrayType) -> None:
        address, altered = array_type.address, array_type.altered
        nbytes = 0 if address is None else same_bytes(leaf, static)
        if address is not None and nbytes and not (altered and altered(leaf)):
            self._nodes.append(InputNode(i, address, altered, address(static), nbytes, array_type))

    def record(self, stream: Stream, leaves: Leaves) -> None:
        """Record the copies, as the first work of a capture, on branches that it joins again."""
        branches = self._branches
        for each in branches:
            each.wait(stream)
        for node, each in zip(self._nodes, cycle([stream, *branches])):
            source = node.address(leaves[node.argument])
            stream._backend.copy(each._native, node.static, source, node.nbytes)
        for each in branches:
            stream.wait(each)

    def connect(self, graph: Graph) -> bool:
        """Find the nodes in the executable. Return False if their sources can't be changed."""
        give_back(self._branches)  # the capture has ended
        if not self._nodes:
            return True
        graph.instantiate()
        runner = graph._runner_for("set_nodes()")
        found = [runner.node_setter(number) for number in range(len(self._nodes))]
        settable = [each for each in found if each is not None and each.blocks]
        self._setters = [each.words([_SOURCE]) for each in settable]
        self._enablers = [each.enable for each in settable]
        if len(settable) < len(self._nodes):
            return False
        words = [(each, [(*_SOURCE, number, 0)]) for number, each in enumerate(settable)]
        self.patches = patches(self._sources, self._sizes, self.statics, 1, self._own, words)
        return True

    def read_from(self, leaves: Leaves) -> None:
        """Have the next run read these arrays."""
        given = addresses([_address(node, leaves[node.argument]) for node in self._nodes])
        self.read_at(given, leaves)

    def read_at(self, given: array[int], leaves: Leaves) -> None:
        """Have the next run read arrays at these addresses, or copies of those with address 0."""
        sources = self._sources
        if 0 not in given and (given == sources or self._move(given)):
            return
        for number, node in enumerate(self._nodes):
            address = given[number]
            if address != sources[number] or address == 0:
                sources[number] = 0  # nobody knows, if this is interrupted
                if address == node.static and self._enable(number, wanted=False):
                    continue
                self._enable(number, wanted=True)
                own = address == 0 or self._memory.has(address, node.nbytes)
                if not own and self._set(number, address):
                    sources[number] = address
                else:  # another copy may write there first
                    leaf = leaves[node.argument]
                    copy = node.array_type.empty_like(leaf)  # freed in the order of the stream
                    node.array_type.assign(copy, leaf)
                    self._setters[number](node.address(copy))

    def addresses(self, count: int) -> array[int] | None:
        """Return where the nodes read `count` arrays; None if they do not, or from copies of them."""
        return self._sources if len(self._sources) == count and all(self._sources) else None

    def _move(self, given: array[int]) -> bool:
        """Have all nodes read at these addresses; return False if that can't be done at once."""
        return self.patches is not None and self.patches.move_apart(given)

    def _set(self, number: int, address: int) -> bool:
        try:
            self._setters[number](address)
        except DriverError:  # memory of another kind than that of the first call
            return False
        return True

    def _enable(self, number: int, *, wanted: bool) -> bool:
        """Have later runs make a copy or leave it out; return False if that can't be changed."""
        enable = self._enablers[number]
        if enable is not None and self._enabled[number] is not wanted:
            self._enabled[number] = None
            enable(wanted)
            self._enabled[number] = wanted
        return enable is not None


def _address(node: InputNode, leaf: Any) -> int:
    """Return where an array is; 0 if its elements are not what its bytes say."""
    return 0 if node.altered is not None and node.altered(leaf) else node.address(leaf)
