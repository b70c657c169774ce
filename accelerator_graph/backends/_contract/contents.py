"""What a graph contains, and other facts that a backend or the registry reports."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeAlias


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
    """What `Graph.set_node` can change, by its keywords; empty for nodes inside others."""
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
