"""Inputs without copies: each call writes the addresses of its arrays into the parameters of the graph."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..._arrays.arrays import ALIGNMENT, ArrayType
from ..._arrays.placement import extent, same_bytes
from ..._arrays.signatures import Leaves
from ...backends.base import NodeSetter
from ...errors import AcceleratorGraphError, DriverError
from ..input_nodes import Memory, Ranges, addresses, patches
from .argument_words import ArgumentWord

if TYPE_CHECKING:
    from ..._core._fast import Patches

_ALL = (0, 1 << 64)


class Bindable(NamedTuple):
    """An argument whose tensor a graph may use where it lies."""

    argument: int
    """Its number among the arrays of a call."""
    address: Callable[[Any], int]
    altered: Callable[[Any], bool] | None
    static: int
    """The address of the static array, which the graph was captured with."""
    nbytes: int
    current_stream: Callable[[Any], Any]
    """Returns its library's current stream on a device."""


class Inputs(NamedTuple):
    """The arrays of the call that is captured."""

    leaves: Leaves
    statics: Sequence[Any]
    """Those that the graph was captured with."""
    array_types: Sequence[ArrayType]
    firsts: Sequence[int]
    """Which of them are not given before."""


def bindables(inputs: Inputs, kept: Iterable[Any]) -> list[Bindable]:
    """Return the arguments that a graph may use where they lie, if some arrays stay in use after a call.

    Those are dense tensors, like torch's, whose library can note which streams use their memory. But an
    argument is copied if the result, or what the function keeps, has a view of it: that is one of the static
    array.
    """
    leaves, statics, array_types, firsts = inputs
    spans = [extent(each) for each in kept]
    found = []
    for i in firsts:
        array_type = array_types[i]
        address, altered = array_type.address, array_type.altered
        current = getattr(getattr(array_type.package, "accelerator", None), "current_stream", None)
        if array_type.kind != "tensor" or address is None or not callable(current):
            continue
        nbytes = same_bytes(leaves[i], statics[i])
        if not nbytes or (altered is not None and altered(leaves[i])):
            continue
        start = address(statics[i])
        if all(each is not None and (each[1] <= start or start + nbytes <= each[0]) for each in spans):
            found.append(Bindable(i, address, altered, start, nbytes, current))
    return found


class Unpatchable(AcceleratorGraphError):
    """The parameters of the executable are not known any more, so it must not be launched again."""


class _Node(NamedTuple):
    """A node with addresses of arguments."""

    set_words: Callable[..., None]
    places: list[tuple[int, int]]
    """The block and the offset of each address."""
    words: list[tuple[int, int]]
    """Of each: the number of the bindable argument, and the distance from its beginning."""


class BoundInputs:
    """The arguments that a graph reads and writes in the caller's own arrays.

    Parameters
    ----------
    bindables : sequence of Bindable
        The arguments.
    words : sequence of ArgumentWord
        Where their addresses stand in the parameters.
    setters : dict of int to callable
        What changes the nodes that have such words.
    own : sequence of tuples
        The memory that the graph uses for itself. Arrays in it are copied.
    firsts : sequence of int
        The arrays of a call, without those that are given again.
    """

    def __init__(
        self,
        bindables: Sequence[Bindable],
        words: Sequence[ArgumentWord],
        setters: dict[int, NodeSetter],
        own: Ranges,
        firsts: Iterable[int],
    ) -> None:
        self._bindables = bindables
        self._setters = setters
        self._own = [*own]
        self._own_memory = Memory(own)
        self._nodes: dict[int, _Node] = {}
        self._nodes_of: list[set[int]] = [set() for _ in bindables]
        for number, setter in setters.items():
            own_words = [each for each in words if each.node == number]
            places = [(each.block, each.offset) for each in own_words]
            arrays = [(each.argument, each.distance) for each in own_words]
            self._nodes[number] = _Node(setter.words(places), places, arrays)
            for each in own_words:
                self._nodes_of[each.argument].add(number)
        self._statics = addresses(each.static for each in bindables)
        self._sizes = [each.nbytes for each in bindables]
        self._now = addresses(self._statics)
        """Where the executable reads and writes each argument; 0 if an interrupt has left that unknown."""
        self._addresses = [(each.argument, each.address) for each in bindables]
        self._altered = [(each.argument, each.altered) for each in bindables if each.altered is not None]
        self._latest = addresses(())
        """Where the arrays of the latest call were, `_now` itself if none was copied.

        Empty if those of the next can't be compared.
        """
        self._copied: frozenset[int] = frozenset()
        """Which of them were copied."""
        self.arguments: frozenset[int] = frozenset(each.argument for each in bindables)
        self.in_order: list[int] = sorted(self.arguments)
        self._users = list(dict.fromkeys(each.current_stream for each in bindables))
        self._others = [i for i in firsts if i not in self.arguments]
        self.patches: Patches | None = self._in_c()
        """What changes the nodes in C."""

    def addresses(self, count: int) -> array[int] | None:
        """Return where the arrays of the latest call were, all `count` of them; None if any was copied."""
        return None if self._copied or len(self._latest) < count else self._latest

    def _in_c(self) -> Patches | None:
        nodes = [
            (self._setters[number], [(*at, *of) for at, of in zip(places, words, strict=True)])
            for number, (_, places, words) in self._nodes.items()
        ]
        return patches(self._now, self._sizes, self._statics, ALIGNMENT, self._own, nodes)

    def keep(self, leaves: Leaves) -> None:
        """Keep the tensors of a run until it is over, by telling their library where they are used.

        When the owner of a tensor drops it, the next tensor made on the same stream gets its memory, and the
        run may be on another stream.
        """
        streams = {each: each(leaves[self.in_order[0]].device) for each in self._users}
        for each in self._bindables:
            leaves[each.argument].record_stream(streams[each.current_stream])

    def user(self, device: Any) -> Any:
        """Return the library's current stream; None if the tensors are of several libraries."""
        return self._users[0](device) if len(self._users) == 1 else None

    def add_own(self, memory: tuple[int, int]) -> None:
        """Copy the arrays in this memory as well, from now on: the graph writes it."""
        self._own.append(memory)
        self._own_memory = Memory(self._own)
        self._latest, self.patches = addresses(()), self._in_c()

    def patch(self, leaves: Leaves) -> frozenset[int]:
        """Have the next run use these arrays; return the arguments that have to be copied all the same.

        Raises `Unpatchable` if the executable can't be used any more.
        """
        given = addresses(address(leaves[argument]) for argument, address in self._addresses)
        altered = {argument for argument, test in self._altered if test(leaves[argument])}
        if given == self._latest and not altered and not self._others:
            return self._copied
        self._latest = addresses(())
        wanted, copied = self._wanted(leaves, given, altered)
        if wanted != self._now and not self._set(wanted):
            if not self._set(self._statics):
                raise Unpatchable("the driver refuses to change the parameters of a graph back.")
            return self.arguments
        if not altered:
            self._copied, self._latest = copied, given if copied else self._now
        return copied

    def _wanted(
        self, leaves: Leaves, given: Sequence[int], altered: set[int]
    ) -> tuple[array[int], frozenset[int]]:
        """Return the addresses for a call, and which arguments are copied to their static arrays."""
        wanted = addresses(())
        copied = set(altered)
        for each, address in zip(self._bindables, given, strict=True):
            if not self._is_usable(each, address):
                copied.add(each.argument)
            wanted.append(each.static if each.argument in copied else address)
        if copied or self._others or self._overlap(wanted):
            self._copy_overlapping(leaves, wanted, copied)
        return wanted, frozenset(copied)

    def _is_usable(self, bindable: Bindable, address: int) -> bool:
        """Return True if an array there is aligned as the captured one, and not in the graph's memory."""
        distance = address - bindable.static
        if distance == 0:
            return True
        if distance % ALIGNMENT or address == 0:
            return False
        return not self._own_memory.has(address, bindable.nbytes)

    def _overlap(self, wanted: Sequence[int]) -> bool:
        """Return True if arrays at these addresses share memory."""
        before = 0
        for address, nbytes in sorted(zip(wanted, self._sizes, strict=True)):
            if address < before:
                return True
            before = address + nbytes
        return False

    def _copy_overlapping(self, leaves: Leaves, wanted: array[int], copied: set[int]) -> None:
        """Copy the arguments that share memory with another one: the captured arrays do not."""
        spans = [
            (address, address + each.nbytes, number)
            for number, (each, address) in enumerate(zip(self._bindables, wanted, strict=True))
            if each.argument not in copied
        ]
        spans += [(*(extent(leaves[i]) or _ALL), -1) for i in (*self._others, *copied)]
        spans.sort()
        furthest = (0, -1)
        for start, end, number in spans:
            if start < furthest[0] and start < end:
                for each in (number, furthest[1]):
                    if each >= 0:
                        wanted[each] = self._statics[each]
                        copied.add(self._bindables[each].argument)
            if end > furthest[0]:
                furthest = (end, number)

    def _set(self, wanted: array[int]) -> bool:
        """Write addresses into the nodes that have others; return False if the driver refuses one."""
        if self.patches is not None and self.patches.move(wanted):
            return True
        moved = [i for i, address in enumerate(wanted) if address != self._now[i]]
        for i in moved:
            self._now[i] = 0
        try:
            for node in sorted(set().union(*(self._nodes_of[i] for i in moved))):
                set_words, _, words = self._nodes[node]
                set_words(*[wanted[i] + distance for i, distance in words])
        except DriverError:
            return False
        self._now[:] = wanted
        return True
