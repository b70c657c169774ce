"""Changes of the nodes of an executable: `Graph.set_node` and `Graph.set_nodes`, all of them or none."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from numbers import Number
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias, TypedDict

from .._interpreter import boolean, integer
from .._interpreter.interruptions import Section
from ..backends.base import Argument, Capability, Change, GraphContents, GraphNode, NodeSetter, word
from ..backends.memory import memory_of
from ..errors import AcceleratorGraphError, GraphStateError, UnsupportedError
from .observers import recorded_at
from .replay import Changing, Runner

if TYPE_CHECKING:
    from ..backends.base import AnyBackend as Backend
    from .capture import Captured
    from .graph import BaseGraph

_HALF_DONE = "changes of its nodes could not be undone; call instantiate(), and make them again"


class NodeChange(TypedDict, total=False):
    """The keywords of `Graph.set_node`."""

    arguments: Sequence[object] | Mapping[int, object]
    """All arguments of a kernel in order, or some by their positions."""
    source: object
    target: object
    """The memory that a copy or a fill reads and writes, as in `Stream.copy`, or an address."""
    value: int
    """The value that a fill gives each element."""
    enabled: bool
    """Whether later runs do the node's work."""


_NAMES = tuple(NodeChange.__annotations__)

Path: TypeAlias = tuple[int, ...]
"""A node: its number in the graph, or that of a child graph and the number inside it, as deep as need be."""


class Step(NamedTuple):
    """One call that changes a node, and the one that undoes it."""

    do: Callable[[], None]
    undo: Callable[[], None]
    done: Callable[[], None]
    """Notes the change, once all steps are done."""
    where: str
    """Which node, for messages."""


class NodeChanges:
    """What has been set in one executable, beside what its graph says.

    Parameters
    ----------
    backend : Backend
        Changes the executable, and says what may be memory.
    graph, executable : object
        The backend's own.
    """

    __slots__ = (
        "_backend",
        "_disabled",
        "_executable",
        "_kept",
        "_set",
        "graph",
        "setters",
    )

    def __init__(self, backend: Backend, graph: Any, executable: Any) -> None:
        self.graph = graph
        self._backend = backend
        self._executable = executable
        self.setters: dict[Path, NodeSetter] = {}
        """What changes the nodes that were changed, or were to be."""
        self._set: dict[Path, set[str]] = {}
        self._disabled: set[Path] = set()
        self._kept: dict[tuple[Path, str], object] = {}

    # ---- asking --------------------------------------------------------------------------------

    def seen(self, contents: GraphContents, around: Path = ()) -> GraphContents:
        """Return the contents of the graph, or of one inside it, as the executable has them."""
        nodes, edges = contents
        return [self._seen(node, (*around, node.id)) for node in nodes], edges

    def _seen(self, node: GraphNode, path: Path) -> GraphNode:
        if node.bodies:
            node = node._replace(bodies=tuple(self.seen(body, path) for body in node.bodies))
        if path not in self._set:
            return node
        names, setter = self._set[path], self.setters[path]
        blocks = setter.blocks
        new: dict[str, Any] = {
            name: int.from_bytes(blocks[setter.block_of(name)], "little")
            for name in names - {"arguments", "enabled"}
        }
        if "arguments" in names:
            values = (blocks[at.block][at.offset :][: at.nbytes].hex() for at in setter.arguments or ())
            new["values"] = tuple(values)
        changed = tuple(name for name in _NAMES if name in names)
        return node._replace(changed=changed, enabled=path not in self._disabled, **new)

    @property
    def kept(self) -> tuple[object, ...]:
        """The objects that the changed nodes use."""
        return tuple(self._kept.values())

    @property
    def made(self) -> bool:
        """Whether something has been set."""
        return bool(self._set)

    @property
    def disables(self) -> bool:
        """Whether there are disabled nodes."""
        return bool(self._disabled)

    # ---- changing ------------------------------------------------------------------------------

    def prepare(self, what: str, wanted: Mapping[Any, NodeChange], runner: Runner) -> list[Step]:
        """Return the steps that make these changes. Raises for what can't be changed so; touches nothing."""
        count = runner.num_nodes()
        if not isinstance(wanted, Mapping):
            raise TypeError(f"Graph.{what}: the changes must be a dict by node, not {wanted!r}.")
        steps: list[Step] = []
        for node, change in wanted.items():
            given = node if isinstance(node, tuple) and len(node) > 1 else (node,)
            number, *inside = path = tuple(integer(each, f"Graph.{what}: node") for each in given)
            if not 0 <= number < count:
                raise ValueError(
                    f"Graph.{what}: the graph has the nodes 0 to {count - 1}, not {number}; see describe()."
                )
            name = "".join(f"node {each} inside " for each in reversed(inside)) + f"node {number}"
            where = f"Graph.{what}: {name}{recorded_at(runner.observations, number)}"
            steps += self._of_node(where, path, change)
        return steps

    def _of_node(self, where: str, path: Path, change: NodeChange) -> Iterable[Step]:
        if not isinstance(change, Mapping) or not change or not set(change) <= set(_NAMES):
            raise TypeError(
                f"{where}: pass what to change: one or more of {', '.join(_NAMES)}, not {change!r}."
            )
        setter = self._setter(path) if min(path) >= 0 else None
        if setter is None:
            raise ValueError(
                f"{where} can't be changed, or is not there; see settable in describe().nodes[{path[0]}]."
            )
        for name in change:
            if name not in setter.settable:
                raise ValueError(
                    f"{where} has no {name} that can be changed; of this node, "
                    f"{', '.join(setter.settable)} can be."
                )
        enabled = boolean(change.get("enabled", True), f"{where}: enabled")
        parameters = {name: given for name, given in change.items() if name != "enabled"}
        changes: list[Change] = []
        kept: dict[tuple[Path, str], object] = {}
        for name, given in parameters.items():
            if name == "arguments":
                arguments = setter.arguments or ()
                values = _by_position(where, len(arguments), given)
                changes += _argument_changes(where, arguments, values)
                kept |= {(path, f"argument {position}"): value for position, value in values.items()}
            elif name == "value":
                changes.append(self._value(where, setter, given))
            else:
                changed, kept[path, name] = self._address(where, setter, name, given)
                changes.append(changed)
        if changes:
            before, after = setter.blocks, setter.after(changes)
            if setter.check is not None:
                setter.check(after)
            done = partial(self._note, path, parameters, kept)
            yield Step(partial(setter.write, after), partial(setter.write, before), done, where)
        enable, was = setter.enable, path not in self._disabled
        if enable is not None and "enabled" in change:
            done = partial(self._enabled, path, enabled)
            yield Step(partial(enable, enabled), partial(enable, was), done, where)

    def _setter(self, path: Path) -> NodeSetter | None:
        if path not in self.setters:
            found = self._backend.node_setter(self.graph, self._executable, *path)
            if found is None or not found.settable:
                return None
            self.setters[path] = found
        return self.setters[path]

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

    def _note(self, path: Path, names: Iterable[str], kept: Mapping[tuple[Path, str], object]) -> None:
        self._set.setdefault(path, set()).update(names)
        self._kept.update(kept)

    def _enabled(self, path: Path, enabled: bool) -> None:
        self._set.setdefault(path, set()).add("enabled")
        (self._disabled.discard if enabled else self._disabled.add)(path)


class _Changing(Section):
    """Does all steps on entry, or none. If some were done and can't be undone, drops the executable.

    The launch lock is held. A signal handler of this thread can't replay the graph meanwhile.
    """

    __slots__ = ("_before", "_begun", "_complete", "_runner", "_steps", "_under_way")

    def __init__(self, steps: Sequence[Step], runner: Runner) -> None:
        self._steps = steps
        self._runner = runner
        self._begun: list[Step] = []
        self._complete = False
        self._before = runner.launching.owner
        self._under_way = self._before.checked(_refuse)

    def begin(self) -> None:
        """Do the steps."""
        self._runner.launching.owner = self._under_way
        for step in self._steps:
            self._begun.append(step)
            try:
                step.do()
            except AcceleratorGraphError as error:
                self._begun.pop()  # it has changed nothing
                error.add_note(f"{step.where} was to be changed.")
                raise
        self._complete = True

    def end(self) -> None:
        """Note what was done, or undo it."""
        if self._complete:
            for step in self._steps:
                step.done()
        else:
            try:
                for step in reversed(self._begun):
                    step.undo()
            except Exception:  # whatever it was, nobody knows any more what the nodes would do
                self._runner.launching.owner = self._before
                self._runner.refuse(_HALF_DONE, "instantiate")
        if self._runner.launching.owner is self._under_way:
            self._runner.launching.owner = self._before


def _refuse() -> NoReturn:
    raise GraphStateError("the graph's nodes are being changed by this thread; replay it afterwards.")


def _by_position(where: str, count: int, given: object) -> dict[int, object]:
    """Return the new arguments of a kernel by their positions: all of them, or some.

    Raises
    ------
    TypeError, ValueError
        They are not of that form, or too few or too many. The message begins with `where`.
    """
    if isinstance(given, Mapping):
        by_position = {integer(at, f"{where}: a position"): value for at, value in given.items()}
        if not by_position or not all(0 <= at < count for at in by_position):
            raise ValueError(
                f"{where}: the positions of its arguments are 0 to {count - 1}, not {list(given)}."
            )
        return by_position
    if isinstance(given, Sequence) and not isinstance(given, str | bytes):
        if len(given) != count:
            raise ValueError(
                f"{where} takes {count} arguments, not {len(given)}; pass some of them by position."
            )
        return dict(enumerate(given))
    raise TypeError(f"{where}: arguments must be a sequence of all, or a dict by position, not {given!r}.")


def _argument_changes(
    where: str, arguments: Sequence[Argument], by_position: Mapping[int, object]
) -> Iterator[Change]:
    """Yield the changes that give a kernel new arguments.

    Raises
    ------
    TypeError, ValueError
        One can't be passed, or is of another size. The message begins with `where`.
    """
    for position, value in by_position.items():
        place = arguments[position]
        yield Change(place.block, place.offset, _bytes(f"{where}: argument {position}", value, place.nbytes))


def _bytes(where: str, value: object, nbytes: int) -> bytes:
    data = _bytes_of(where, value, nbytes)
    if len(data) != nbytes:
        raise ValueError(f"{where} has {nbytes} bytes, and {value!r} has {len(data)}; pass one of that size.")
    return data


def _bytes_of(where: str, value: object, nbytes: int) -> bytes:
    try:
        return ctypes.string_at(ctypes.addressof(value), ctypes.sizeof(value))  # type: ignore[arg-type]
    except TypeError:
        pass
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is not None:
        try:
            address = index(interface["data"][0] or 0)
            return address.to_bytes(8, "little")
        except (LookupError, TypeError, OverflowError):
            raise TypeError(
                f"{where} has a __cuda_array_interface__ without an address; pass an array in device memory."
            ) from None
    if hasattr(value, "dtype"):
        if getattr(value, "shape", None) != () or not hasattr(value, "tobytes"):
            raise TypeError(f"{where} is an array in host memory; pass an array in device memory.")
        data: bytes = value.tobytes()
        return data
    if (isinstance(value, Number) and not hasattr(value, "__index__")) or not hasattr(value, "__int__"):
        raise TypeError(
            f"{where} can't be a {type(value).__name__!r} object; pass a ctypes or NumPy scalar, such as "
            "ctypes.c_float(1.5), an int, or an object with __cuda_array_interface__."
        )
    number = int(value)
    if not -1 << 8 * nbytes - 1 <= number < 1 << 8 * nbytes:
        raise ValueError(f"{where} has {nbytes} bytes, and {number} does not fit into them.")
    return (number % (1 << 8 * nbytes)).to_bytes(nbytes, "little")


def _changes_of(runner: Runner, captured: Captured, what: str) -> NodeChanges:
    executable = runner.launchable()
    if executable.made_of is not captured.value:
        raise GraphStateError(
            f"Graph.{what}: the executable was updated in place with the work of another graph, whose nodes "
            "it does not know; call instantiate() first."
        )
    if executable.changes is None:
        executable.changes = NodeChanges(captured.backend, captured.native, executable.native)
    return executable.changes


# last: a signal handler may come in the middle of the first import
def set_nodes(graph: BaseGraph, what: str, wanted: Mapping[Any, NodeChange]) -> None:
    """Change nodes of a graph's executable: all changes, or none.

    If changes can't be undone, the graph has no executable any more.
    """
    runner = graph._runner_for(what)
    with runner.lock, Changing(runner, what):
        captured = graph._kept(what)
        if Capability.SET_NODE not in captured.backend.capabilities(runner.home.device):
            raise UnsupportedError(
                f"Graph.{what}: backend {captured.backend.name!r} can't change nodes of an executable; "
                "capture the work again, with recapture()."
            )
        changes = _changes_of(runner, captured, what)
        steps = changes.prepare(what, wanted, runner)
        try:
            with runner.launching, _Changing(steps, runner):
                pass
        except BaseException as error:
            if runner.dropped:
                error.add_note(
                    "The executable was changed in part, so the graph has none now; call instantiate(), and "
                    "make the changes again."
                )
            raise
