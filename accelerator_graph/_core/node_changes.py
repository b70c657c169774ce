"""Changes of single nodes of an executable, all or none of them, and what has been set so far."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from .._interpreter.integers import integer
from ..backends.base import Change, GraphContents, GraphNode, NodeSetter, Recorder, word
from ..backends.memory import memory_of
from ..errors import AcceleratorGraphError, GraphStateError, UnsupportedError
from .launch_lock import launch_lock
from .node_arguments import argument_changes
from .node_change import NodeChange

if TYPE_CHECKING:
    from ..backends.base import Backend
    from .captured import Captured
    from .lifecycle import Lifecycle
    from .replay import Runner


_NAMES = tuple(NodeChange.__annotations__)
_BLOCKS = {"memcpy": {"target": 0, "source": 1}, "memset": {"target": 0, "value": 1}}
"""The block of the parameters, by the kind of node and the name of the change."""

_HALF_DONE = "changes of its nodes could not be undone; call instantiate(), and make them again"


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
        "_nodes",
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
        self._nodes: Sequence[GraphNode] = ()
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
            name: int.from_bytes(blocks[block], "little")
            for name, block in _BLOCKS.get(node.kind, {}).items()
            if name in names
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

    def prepare(self, what: str, wanted: Mapping[int, NodeChange]) -> list[Step]:
        """Return the steps that make these changes. Raises for what can't be changed so; touches nothing."""
        if not isinstance(wanted, Mapping):
            raise TypeError(f"Graph.{what}: the changes must be a dict by node, not {wanted!r}.")
        if not self._nodes:
            self._nodes = self._recorder.nodes(self.graph)[0]
        steps: list[Step] = []
        for number, change in wanted.items():
            number = integer(number, f"Graph.{what}: node")
            if not 0 <= number < len(self._nodes):
                raise ValueError(
                    f"Graph.{what}: the graph has the nodes 0 to {len(self._nodes) - 1}, not {number}; see "
                    "describe()."
                )
            steps += self._of_node(what, self._nodes[number], change)
        return steps

    def make(self, steps: Sequence[Step], runner: Runner) -> None:
        """Do all steps, or none; or else drop the executable. Called while nobody launches it."""
        begun: list[Step] = []
        self.under_way = True
        try:
            for step in steps:
                begun.append(step)
                step.do()
        except BaseException as error:
            if isinstance(error, AcceleratorGraphError):
                begun.pop()  # which has changed nothing
            try:
                for step in reversed(begun):
                    step.undo()
            except BaseException:
                runner.drop(_HALF_DONE)
                error.add_note("The executable was changed in part, and the graph has none now.")
                raise error from None
            raise
        finally:
            self.under_way = False
        for step in steps:
            step.done()

    def _of_node(self, what: str, node: GraphNode, change: NodeChange) -> Iterable[Step]:
        where = f"Graph.{what}: node {node.id} ({node.kind})"
        if not isinstance(change, Mapping) or not change or not set(change) <= set(_NAMES):
            raise TypeError(f"{where}: pass what to change, of {', '.join(_NAMES)}; not {change!r}.")
        for name in change:
            if name not in node.settable:
                can = ", ".join(node.settable) or "nothing"
                raise ValueError(f"{where} has no {name} that can be changed; of this node, {can} can be.")
        enabled = change.get("enabled", True)
        if not isinstance(enabled, bool):
            raise TypeError(f"{where}: enabled must be True or False, not {enabled!r}.")
        setter = self._setter(node.id)
        if setter is None:
            raise ValueError(f"{where} can't be changed.")
        changes: list[Change] = []
        if "arguments" in change:
            changes += argument_changes(where, setter.arguments or (), change["arguments"])
        for name, block in _BLOCKS.get(node.kind, {}).items():
            if name in change:
                size = len(setter.blocks[block])
                changes.append(Change(block, 0, self._data(where, node, name, change[name], size)))  # type: ignore[literal-required]
        if changes:
            before, after = setter.blocks, setter.after(changes)
            if setter.check is not None:
                setter.check(after)
            note = partial(self._note, node.id, {k: v for k, v in change.items() if k != "enabled"})
            yield Step(partial(setter.write, after), partial(setter.write, before), note)
        if "enabled" in change:
            enable = setter.enable
            assert enable is not None
            was = node.id not in self._disabled
            yield Step(
                partial(enable, enabled), partial(enable, was), partial(self._enabled, node.id, enabled)
            )

    def _setter(self, number: int) -> NodeSetter | None:
        if number not in self._setters:
            found = self._recorder.node_setter(self.graph, self._executable, number)
            if found is None:
                return None
            self._setters[number] = found
        return self._setters[number]

    def _data(self, where: str, node: GraphNode, name: str, given: object, size: int) -> bytes:
        """Return the bytes of an address or a value."""
        if name == "value":
            value = integer(given, f"{where}: value")
            if not 0 <= value < 1 << 8 * size:
                raise ValueError(f"{where}: value must be 0 to {(1 << 8 * size) - 1}, not {value}.")
            return value.to_bytes(size, "little")
        memory = memory_of(given, node.nbytes, writable=name == "target", device=self._backend.cuda_like)
        if memory.address == 0:
            raise ValueError(f"{where}: {name} has no memory; pass an array that has, or an address.")
        return word(memory.address)

    def _note(self, number: int, change: Mapping[str, object]) -> None:
        self._set.setdefault(number, set()).update(change)
        for name, given in change.items():
            for key, obj in given.items() if isinstance(given, Mapping) else [("", given)]:
                self._kept[number, f"{name}{key}"] = obj

    def _enabled(self, number: int, enabled: bool) -> None:
        self._set.setdefault(number, set()).add("enabled")
        (self._disabled.discard if enabled else self._disabled.add)(number)


def set_nodes(graph: Lifecycle, what: str, wanted: Mapping[int, NodeChange]) -> None:
    """Change nodes of a graph's executable: all that is wanted, or nothing.

    If changes can't be undone, the graph has no executable any more.
    """
    captured, runner = graph._kept(what), graph._runner_for(what)
    if type(captured.backend).node_setter is Recorder.node_setter:
        raise UnsupportedError(
            f"Graph.{what}: backend {captured.backend.name!r} can't change nodes of an executable; capture "
            "the work again, with recapture()."
        )
    changes = _changes_of(runner, captured, what)
    steps = changes.prepare(what, wanted)
    lock = launch_lock(runner)
    if lock is None:
        raise GraphStateError(
            f"Graph.{what}: a launch goes on in another thread; wait for it, and try again."
        )
    with lock:
        changes.make(steps, runner)


def _changes_of(runner: Runner, captured: Captured, what: str) -> NodeChanges:
    executable = runner.executable
    assert executable is not None
    if executable.made_of is not captured.value:
        raise GraphStateError(
            f"Graph.{what}: the executable was updated in place with the work of another graph, whose nodes "
            "it does not know; call instantiate() first."
        )
    if executable.changes is None:
        backend = captured.backend
        executable.changes = NodeChanges(captured.recorder, backend, captured.value, executable.value)
    return executable.changes
