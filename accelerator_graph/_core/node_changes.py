"""The changes made to the nodes of an executable, and the steps that make more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from .._interpreter.integers import boolean, integer
from ..backends.base import Change, GraphContents, GraphNode, NodeSetter, Recorder, word
from ..backends.memory import memory_of
from .node_arguments import argument_changes, arguments_by_position
from .node_change import NodeChange

if TYPE_CHECKING:
    from ..backends.base import Backend

_NAMES = tuple(NodeChange.__annotations__)


class Step(NamedTuple):
    """One call that changes a node, and the one that undoes it."""

    do: Callable[[], None]
    undo: Callable[[], None]
    done: Callable[[], None]
    """Notes the change, once all steps are done."""


class NodeChanges:
    """What has been set in one executable, beside what its graph says.

    Parameters
    ----------
    recorder : Recorder
        Has made the executable.
    backend : Backend
        What may be memory is up to it.
    graph, executable : object
        The recorder's own.
    """

    __slots__ = (
        "_backend",
        "_disabled",
        "_executable",
        "_kept",
        "_recorder",
        "_set",
        "_setters",
        "graph",
        "under_way",
    )

    def __init__(self, recorder: Recorder, backend: Backend, graph: Any, executable: Any) -> None:
        self.graph = graph
        self.under_way = False
        """Some of several steps have been done."""
        self._recorder = recorder
        self._backend = backend
        self._executable = executable
        self._setters: dict[int, NodeSetter] = {}
        self._set: dict[int, set[str]] = {}
        self._disabled: set[int] = set()
        self._kept: dict[tuple[int, str], object] = {}

    # ---- asking --------------------------------------------------------------------------------

    def seen(self, contents: GraphContents) -> GraphContents:
        """Return the contents of the graph as the executable has them."""
        nodes, edges = contents
        return [self._seen(node) if node.id in self._set else node for node in nodes], edges

    def _seen(self, node: GraphNode) -> GraphNode:
        names, setter = self._set[node.id], self._setters[node.id]
        blocks = setter.blocks
        new: dict[str, Any] = {
            name: int.from_bytes(blocks[setter.block_of(name)], "little")
            for name in names - {"arguments", "enabled"}
        }
        if "arguments" in names:
            values = (blocks[at.block][at.offset :][: at.nbytes].hex() for at in setter.arguments or ())
            new["values"] = tuple(values)
        changed = tuple(name for name in _NAMES if name in names)
        return node._replace(changed=changed, enabled=node.id not in self._disabled, **new)

    @property
    def disables(self) -> bool:
        """Whether there are disabled nodes."""
        return bool(self._disabled)

    # ---- changing ------------------------------------------------------------------------------

    def prepare(self, what: str, wanted: Mapping[int, NodeChange], count: int) -> list[Step]:
        """Return the steps that make these changes. Raises for what can't be changed so; touches nothing."""
        if not isinstance(wanted, Mapping):
            raise TypeError(f"Graph.{what}: the changes must be a dict by node, not {wanted!r}.")
        steps: list[Step] = []
        for number, change in wanted.items():
            number = integer(number, f"Graph.{what}: node")
            if not 0 <= number < count:
                raise ValueError(
                    f"Graph.{what}: the graph has the nodes 0 to {count - 1}, not {number}; see describe()."
                )
            steps += self._of_node(f"Graph.{what}: node {number}", number, change)
        return steps

    def _of_node(self, where: str, number: int, change: NodeChange) -> Iterable[Step]:
        if not isinstance(change, Mapping) or not change or not set(change) <= set(_NAMES):
            raise TypeError(
                f"{where}: pass what to change: one or more of {', '.join(_NAMES)}, not {change!r}."
            )
        setter = self._setter(number)
        if setter is None:
            raise ValueError(f"{where} can't be changed, as describe().nodes[{number}].settable says.")
        for name in change:
            if name not in setter.settable:
                raise ValueError(
                    f"{where} has no {name} that can be changed; of this node, "
                    f"{', '.join(setter.settable)} can be."
                )
        enabled = boolean(change.get("enabled", True), f"{where}: enabled")
        parameters = {name: given for name, given in change.items() if name != "enabled"}
        changes: list[Change] = []
        kept: dict[tuple[int, str], object] = {}
        for name, given in parameters.items():
            if name == "arguments":
                arguments = setter.arguments or ()
                values = arguments_by_position(where, len(arguments), given)
                changes += argument_changes(where, arguments, values)
                kept |= {(number, f"argument {position}"): value for position, value in values.items()}
            elif name == "value":
                changes.append(self._value(where, setter, given))
            else:
                changed, kept[number, name] = self._address(where, setter, name, given)
                changes.append(changed)
        if changes:
            before, after = setter.blocks, setter.after(changes)
            if setter.check is not None:
                setter.check(after)
            done = partial(self._note, number, parameters, kept)
            yield Step(partial(setter.write, after), partial(setter.write, before), done)
        if "enabled" in change:
            enable, was = setter.enable, number not in self._disabled
            assert enable is not None
            done = partial(self._enabled, number, enabled)
            yield Step(partial(enable, enabled), partial(enable, was), done)

    def _setter(self, number: int) -> NodeSetter | None:
        if number not in self._setters:
            found = self._recorder.node_setter(self.graph, self._executable, number)
            if found is None:
                return None
            self._setters[number] = found
        return self._setters[number]

    def _value(self, where: str, setter: NodeSetter, given: object) -> Change:
        block = setter.block_of("value")
        size = len(setter.blocks[block])
        value = integer(given, f"{where}: value")
        if not 0 <= value < 1 << 8 * size:
            raise ValueError(f"{where}: value must be 0 to {(1 << 8 * size) - 1}, not {value}.")
        return Change(block, 0, value.to_bytes(size, "little"))

    def _address(self, where: str, setter: NodeSetter, name: str, given: object) -> tuple[Change, object]:
        """Return the change, and the owner of the memory."""
        writable, device = name == "target", self._backend.cuda_like
        memory = memory_of(given, setter.nbytes, writable=writable, device=device)
        if memory.address == 0:
            raise ValueError(f"{where}: {name} has no memory; pass an array that has, or an address.")
        return Change(setter.block_of(name), 0, word(memory.address)), memory.owner

    def _note(self, number: int, names: Iterable[str], kept: Mapping[tuple[int, str], object]) -> None:
        self._set.setdefault(number, set()).update(names)
        self._kept.update(kept)

    def _enabled(self, number: int, enabled: bool) -> None:
        self._set.setdefault(number, set()).add("enabled")
        (self._disabled.discard if enabled else self._disabled.add)(number)
