"""What a graph contains, the parameters of its nodes as bytes, and other facts that a backend reports."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Sized
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

from . import SetFunction


class Frame(NamedTuple):
    """A call that was under way when a node was recorded."""

    file: str
    line: int
    function: str
    own: bool = True
    """The line is in code that the user has written, rather than installed."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"

    @staticmethod
    def own_of(stack: tuple[Frame, ...]) -> Frame | None:
        """Return the innermost frame in the user's own code, or in a library if there is none."""
        return next((each for each in stack if each.own), stack[0] if stack else None)


class GraphNode(NamedTuple):
    """One node of a graph. What its kind does not have, or the vendor does not report, is None."""

    id: int
    """Its index in the list of nodes, in which each comes after those that it depends on."""
    kind: str
    """In lower case: ``"kernel"``, ``"memset"``, ``"memcpy"``, ``"host"``, ``"empty"``, ``"graph"``, ..."""
    name: str = ""
    """The name of the kernel or function, as the vendor spells it, if it is known. Of a conditional node:
    ``"if"``, ``"while"`` or ``"switch"``."""
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    """Of a kernel: its blocks, and the threads of a block, in each direction."""
    shared_bytes: int | None = None
    """Of a kernel: the dynamic shared memory of a block."""
    source: int | None = None
    target: int | None = None
    """What is read and written, as address or handle; `target` is also what is allocated, freed or called."""
    nbytes: int | None = None
    value: int | None = None
    """How many bytes are written, copied or allocated; of a fill, what each element is set to."""
    bodies: tuple[GraphContents, ...] = ()
    """Of a child graph or a conditional node: what is inside. A conditional node has at least one body: none
    means that the vendor does not report."""
    demangled: str = ""
    """The name as it is written in C++, if that differs. A description fills it in; a backend does not."""
    arguments: tuple[int, ...] | None = None
    """Of a kernel: the size of each argument in bytes."""
    settable: tuple[str, ...] = ()
    """What `Graph.set_node` can change, by its keywords; empty for nodes inside conditional ones."""
    changed: tuple[str, ...] = ()
    """What it has changed: `source`, `target` and `value` are the new ones. A description fills this in, and
    the following."""
    values: tuple[str, ...] | None = None
    """Of a kernel whose arguments were changed: the bytes of each, in hexadecimal."""
    enabled: bool = True
    """False if the executable leaves the node out."""
    call: str = ""
    """Of a function of Python: its arguments in parentheses, with ``...`` for those that are not small. Empty
    if none is small."""
    file: str = ""
    line: int | None = None
    """Of a function of Python: where it is defined."""
    stack: tuple[Frame, ...] = ()
    """The calls that recorded it, the innermost first, if the graph observes `stacks`. A description fills
    this in, and the following."""
    profiler_id: int | None = None
    """The number by which the vendor's profiler names the node in the executable; None if there is none, or
    the vendor does not report."""


class GraphEdge(NamedTuple):
    """One dependency: the node `target` runs after the node `source`."""

    source: int
    target: int
    kind: str = ""
    """``"programmatic"`` if the target may begin before the source has ended; otherwise empty."""


GraphContents: TypeAlias = tuple[list[GraphNode], list[GraphEdge]]


class DeviceMemory(NamedTuple):
    """The memory of a device at one moment, in bytes. All programs that use the device share it."""

    free: int
    total: int
    graphs_used: int | None = None
    graphs_reserved: int | None = None
    """What nodes that allocate have taken from the driver, and what the driver keeps for such nodes. Both are
    of all graphs of this process on the device; None if the driver does not report."""


MemoryState: TypeAlias = Literal["held", "there", "gone"]
"""What a driver says of an address: the graph keeps the memory alive, there is memory, or there is none."""


class Misfit(NamedTuple):
    """What did not fit when an executable was to get the work of another graph in place."""

    reason: str
    """A clause, such as "the kernels are different functions"."""
    node: int | None = None
    """The node in question, by its number in the new graph; None if it is not one node."""


class BackendReport(NamedTuple):
    """The facts about one backend."""

    name: str
    origin: str
    """``"built-in"``, ``"registered"``, or the distribution and its version."""
    loaded: bool = False
    """Its class is imported and fulfils the contract."""
    opened: bool = False
    """Its one instance is opened in this process."""
    usable: bool = False
    """Its probe says usable, and opening it has not failed."""
    reason: str = ""
    """Why it is not usable."""
    versions: Mapping[str, str] = MappingProxyType({})
    """Versions by component, from its probe."""
    devices: int | None = None
    """The number of devices, from its probe; None if the probe does not know it."""
    only_named: bool = False
    """It is used only if you name it: its `priority` is None."""
    warning: str = ""
    """A known defect of the installed software, with the way out, from its probe."""


# ---- parameters ------------------------------------------------------------------------------------

_WORD = 8


class NodeParameters(NamedTuple):
    """The parameters of one node."""

    kind: str
    """As `GraphNode.kind`."""
    blocks: tuple[bytes, ...] | None = ()
    """Of a kernel: its parameters in order, or one block that holds all. Of a copy: the addresses of target
    and source. Of a fill: the address of its target, and the value. Of an allocation or a release: the
    address. Addresses have 8 bytes, the lowest first. None if the vendor does not report all parameters."""
    rest: Hashable = None
    """What else the node consists of: a kernel's function and geometry, the size of a copy, ... Nodes with
    the same `rest` differ in their blocks at most."""
    inside: tuple[NodeParameters, ...] = ()
    """Of a child graph, its nodes. Of a conditional one, whose blocks are None, those of its bodies."""


class Change(NamedTuple):
    """New bytes for a part of a node's parameters."""

    block: int
    offset: int
    data: bytes


class Argument(NamedTuple):
    """The place of a kernel's argument among its parameters."""

    block: int
    offset: int
    nbytes: int


_BLOCKS = {"memcpy": ("target", "source"), "memset": ("target", "value")}
"""The names of the blocks of `NodeParameters`, by the kind of node."""


def settable_of(kind: str) -> tuple[str, ...]:
    """Return the names of a copy's or a fill's parameters, in alphabetical order; nothing for other kinds."""
    return tuple(sorted(_BLOCKS.get(kind, ())))


class NodeSetter:
    """Changes one node in later runs of one executable, and knows what it has set.

    Parameters
    ----------
    kind : str
        The kind of the node.
    blocks : sequence of (int, int)
        Address and size of each of the node's `NodeParameters.blocks`, in memory that `apply` keeps alive;
        empty if they can't be changed.
    apply : callable
        Makes later runs use what is in that memory now. Raises `DriverError` and changes nothing if the
        driver refuses.
    enable : callable, optional
        Leaves the node out of later runs if it is called with False, and puts it back with True.
    check : callable, optional
        Raises ValueError for new contents of the blocks that are wrong though the driver may take them.
    arguments : sequence of Argument, optional
        Of a kernel whose arguments are known: where they lie.
    nbytes : int, optional
        Of a copy or a fill: how many bytes it writes.
    function : SetFunction, optional
        Does in C what `apply` does.
    """

    __slots__ = ("_apply", "_blocks", "arguments", "check", "enable", "function", "kind", "nbytes")

    def __init__(
        self,
        kind: str,
        blocks: Iterable[tuple[int, int]],
        apply: Callable[[], None],
        enable: Callable[[bool], None] | None = None,
        check: Callable[[Sequence[bytes]], None] | None = None,
        arguments: Sequence[Argument] | None = None,
        nbytes: int | None = None,
        function: SetFunction | None = None,
    ) -> None:
        self.kind: str = kind
        self._blocks = [(ctypes.c_char * size).from_address(address) for address, size in blocks]
        self._apply = apply
        self.enable: Callable[[bool], None] | None = enable
        self.check: Callable[[Sequence[bytes]], None] | None = check
        self.arguments: Sequence[Argument] | None = arguments
        self.nbytes: int | None = nbytes
        self.function: SetFunction | None = function

    @property
    def settable(self) -> tuple[str, ...]:
        """What can be changed: the `GraphNode.settable` of the node."""
        names = settable_of(self.kind) if self._blocks else ()
        arguments = ("arguments",) if self.arguments else ()
        return (*arguments, *names, *(("enabled",) if self.enable else ()))

    @property
    def blocks(self) -> tuple[bytes, ...]:
        """The present parameters."""
        return tuple(block.raw for block in self._blocks)

    def block_of(self, name: str) -> int:
        """Return the number of the block that has the source, the target or the value."""
        return _BLOCKS[self.kind].index(name)

    def __call__(self, changes: Iterable[Change]) -> None:
        """Change some bytes; ValueError if there are no such bytes. If it raises, nothing is changed."""
        self.write(self.after(changes))

    def after(self, changes: Iterable[Change]) -> list[bytes]:
        """Return what the parameters would be after changes; ValueError if there are no such bytes."""
        return changed(self.blocks, changes)

    def write(self, contents: Sequence[bytes]) -> None:
        """Change whole blocks, all of them. If it raises, nothing is changed."""
        before = self.blocks
        try:
            self._fill(contents)
            self._apply()
        except BaseException:
            self._fill(before)
            raise

    def _fill(self, contents: Sequence[bytes]) -> None:
        for block, content in zip(self._blocks, contents, strict=True):
            block.raw = content

    def words(self, places: Iterable[tuple[int, int]]) -> Callable[..., None]:
        """Return a callable that changes some words of 8 bytes, given by block and offset, for hot loops.

        It takes as many ints. If it raises, nothing is changed. ValueError if there is no such word.
        """
        cells, apply = [self._cell(*place) for place in places], self._apply
        if len(cells) == 1:
            cell = cells[0]

            def set_word(value: int) -> None:
                before = cell.value
                try:
                    cell.value = value
                    apply()
                except BaseException:
                    cell.value = before
                    raise

            return set_word

        def set_words(*values: int) -> None:
            before = [cell.value for cell in cells]
            try:
                for cell, value in zip(cells, values, strict=True):
                    cell.value = value
                apply()
            except BaseException:
                for cell, value in zip(cells, before, strict=True):
                    cell.value = value
                raise

        return set_words

    def _cell(self, block: int, offset: int) -> ctypes.c_uint64:
        return ctypes.c_uint64.from_address(self.address_of(block, offset))

    def address_of(self, block: int, offset: int) -> int:
        """Return where a word of 8 bytes is in memory; ValueError if there is no such word."""
        _check_place(self._blocks, block, offset, _WORD)
        return ctypes.addressof(self._blocks[block]) + offset

    @classmethod
    def together(cls, kind: str, setters: Sequence[NodeSetter]) -> NodeSetter:
        """Return what changes several nodes as if they were one; its blocks are theirs, in order."""
        known: list[tuple[bytes, ...] | None] = [each.blocks for each in setters]
        """What the executable has; None if an interrupt has left that unknown."""

        def apply() -> None:
            changing = [i for i, each in enumerate(setters) if each.blocks != known[i]]
            before = [known[i] for i in changing]
            begun: list[int] = []
            try:
                for i in changing:
                    known[i] = None
                    begun.append(i)
                    setters[i]._apply()
            except BaseException:
                for i, contents in zip(begun, before, strict=False):
                    if contents is not None:
                        setters[i]._fill(contents)
                        setters[i]._apply()
                        known[i] = contents
                raise
            for i in changing:
                known[i] = setters[i].blocks

        blocks = [(ctypes.addressof(block), len(block)) for each in setters for block in each._blocks]
        return cls(kind, blocks, apply)


def word(number: int) -> bytes:
    """Return a number, such as an address, as a word of a block."""
    return number.to_bytes(_WORD, "little")


def changed(blocks: Sequence[bytes], changes: Iterable[Change]) -> list[bytes]:
    """Return blocks with some bytes changed; ValueError if they have no such bytes."""
    new = list(blocks)
    for block, offset, data in changes:
        _check_place(new, block, offset, len(data))
        new[block] = new[block][:offset] + data + new[block][offset + len(data) :]
    return new


def _check_place(blocks: Sequence[Sized], block: int, offset: int, size: int) -> None:
    if not (0 <= block < len(blocks) and 0 <= offset <= len(blocks[block]) - size):
        raise ValueError(f"a node has no {size} bytes at offset {offset} of its parameter {block}.")


def addresses_in(nodes: Iterable[NodeParameters]) -> set[int] | None:
    """Return every number among the parameters that could be an address: all aligned words.

    None if there is a node whose parameters are not known. A conditional node has none but those inside.
    """
    found: set[int] = set()
    for node in nodes:
        inside = addresses_in(node.inside)
        if inside is None or (node.blocks is None and not node.inside):
            return None
        found |= inside
        for block in node.blocks or ():
            found.update(memoryview(block)[: len(block) // _WORD * _WORD].cast("Q"))
    return found
