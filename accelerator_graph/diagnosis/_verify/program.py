"""What is verified: a function and the graph that is captured from it, or a graph and its reference."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from ..._core import stream_stack
from ..._core.side_streams import side_of
from ..._core.streams import Stream
from ..._graphed.arguments import Arguments
from ..._graphed.arrays import ArrayType, array_type_of, clear_autocast_caches
from ..._graphed.containers import is_container, parts_of, rebuild
from ..._graphed.signature import Reader
from ...api import Graph, graph
from .places import Place
from .python_state import PythonState
from .randomness import RandomState


class Program(ABC):
    """Runs eagerly, and as a graph, on one stream.

    `inputs` are the arrays that the eager runs are given, `fed` those that the graph reads in their place.
    `state` are the other arrays that runs may change.
    """

    stream: Stream
    graph: Graph | None = None
    inputs: list[Place]
    fed: list[Place]
    state: list[Place]
    outputs: list[Place]
    """The arrays that the graph returns, once it is captured."""
    python: PythonState
    random: RandomState
    name: str
    given_graph: bool
    """Whether the graph was captured by the caller."""

    def eager(self) -> list[Place]:
        """Run eagerly, and return the arrays in the result."""
        return self.eager_on(self.stream)

    @abstractmethod
    def eager_on(self, stream: Stream) -> list[Place]:
        """Run eagerly on a stream."""

    @abstractmethod
    def look_again(self) -> None:
        """Find the state anew, since a run may have made some."""

    @abstractmethod
    def capture(self) -> None:
        """Capture the graph, unless there is one."""

    @abstractmethod
    def close(self) -> None:
        """Give up what was captured here."""

    def replay(self) -> list[Place]:
        """Replay, and return the arrays in the result."""
        assert self.graph is not None
        self.graph.replay(self.stream)
        return self.outputs


class FunctionProgram(Program):
    """A function, whose graph is captured here, into a pool of its own."""

    given_graph = False

    def __init__(
        self, function: Callable[..., Any], inputs: Sequence[Any], state: Any, stream: Stream
    ) -> None:
        self.stream = stream
        self.name = getattr(function, "__qualname__", None) or type(function).__qualname__
        self._function = function
        self._reader = reader = Reader(by_value=False)
        arguments = Arguments(getattr(function, "forward", function), 0)
        self._shape, self._values = arguments.ordered(tuple(inputs), {})
        leaves: list[Any] = []
        reader.read(self._values, leaves)
        names = reader.array_names(self._values, arguments.names(self._shape))
        unique = {id(leaf): (leaf, name) for leaf, name in reversed([*zip(leaves, names, strict=True)])}
        self._leaves = [leaf for leaf, _ in unique.values()]
        types = [reader.array_types[type(leaf)] for leaf in self._leaves]
        found = zip(self._leaves, types, (name for _, name in unique.values()), strict=True)
        self.inputs = [Place(leaf, array_type, name) for leaf, array_type, name in found]
        self.fed = self.inputs
        self.outputs = []
        self._state = state
        self.look_again()

    def look_again(self) -> None:
        """Find the state of the function as it is now."""
        function, state = self._function, self._state
        self.python = PythonState(function, lambda x: self._reader.array_type(x) is not None)
        reachable = list(self.python.values())
        self.random = RandomState(self.stream, [value for _, value in reachable])
        named = reachable if state is None else list(named_state(state))
        if state is None and is_module(function):
            named.insert(0, ("", function))
        self.state = [
            place
            for place in arrays_in_state(named, self._reader)
            if not any(place.overlaps(each) for each in self.inputs)
        ]

    def eager_on(self, stream: Stream) -> list[Place]:
        """Run the function on a stream."""
        result = stream_stack.within(stream, self._call, {})
        return list(arrays_in(result, "result", self._reader))

    def _call(self, instead: dict[int, Any]) -> Any:
        """Call the function, with other arrays in the place of some of the arguments."""
        values = [rebuild(value, lambda x: instead.get(id(x), x)) for value in self._values]
        count, names = self._shape
        return self._function(*values[:count], **dict(zip(names, values[count:], strict=True)))

    def capture(self) -> None:
        stream = self.stream
        statics = stream_stack.within(stream, self._static_inputs)
        by_id = {id(leaf): static for leaf, static in zip(self._leaves, statics, strict=True)}
        self.fed = [
            place if static is place.array else Place(static, place.array_type, place.name)
            for static, place in zip(statics, self.inputs, strict=True)
        ]
        made = self.graph = Graph(keep_graph=True)
        for generator in self.random.generators:
            made.register_generator_state(generator)
        side = side_of(stream)
        side._follow(stream)
        clear_autocast_caches()
        try:
            with graph(made, None, side):
                result = self._call(by_id)
        finally:
            clear_autocast_caches()
        self.outputs = list(arrays_in(result, "result", self._reader))

    def close(self) -> None:
        """Reset the graph."""
        if self.graph is not None:
            self.graph.reset()

    def _static_inputs(self) -> list[Any]:
        made = []
        for leaf, place in zip(self._leaves, self.inputs, strict=True):
            static = place.array_type.static_copy(leaf)
            if getattr(leaf, "requires_grad", False):
                static.requires_grad_()
            made.append(place.array_type.as_argument(static, leaf))
        return made


class GraphProgram(FunctionProgram):
    """A graph that the caller has captured, and the function that it has to agree with."""

    given_graph = True

    def __init__(
        self, g: Graph, reference: Callable[..., Any], inputs: Sequence[Any], outputs: Any, state: Any
    ) -> None:
        stream = g._runner_for("replay()").destination().held()
        super().__init__(reference, inputs, state, stream)
        self.graph = g
        self.outputs = list(arrays_in(outputs, "outputs", self._reader))

    def capture(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Leave the graph to the caller."""


def is_module(x: Any) -> bool:
    """Return True for a torch module."""
    return not isinstance(x, type) and hasattr(x, "named_parameters") and hasattr(x, "named_buffers")


def arrays_in(value: Any, name: str, reader: Reader) -> Iterator[Place]:
    """Yield the arrays in nested containers."""
    if is_container(type(value)):
        for step, part in parts_of(value):
            yield from arrays_in(part, name + step, reader)
    else:
        array_type = reader.array_type(value)
        if array_type is not None:
            yield Place(value, array_type, name)


def named_state(state: Any) -> Iterator[tuple[str, Any]]:
    """Yield what the caller has named as state."""
    parts = state if isinstance(state, Iterable) and not _is_array(state) else [state]
    if isinstance(parts, dict):
        yield from ((str(key), value) for key, value in parts.items())
    else:
        yield from ((f"state[{i}]", value) for i, value in enumerate(parts))


def _is_array(x: Any) -> bool:
    found: ArrayType | None = None
    with suppress(Exception):
        found = array_type_of(x)
    return found is not None


def arrays_in_state(named: Iterable[tuple[str, Any]], reader: Reader) -> Iterator[Place]:
    """Yield the arrays among named values once each, with the parameters and buffers of modules."""
    seen: set[int] = set()
    for name, value in named:
        for label, array in _parts_of_state(name, value):
            array_type = reader.array_type(array)
            if array_type is None or id(array) in seen:
                continue
            seen.add(id(array))
            with suppress(TypeError, ValueError, RuntimeError):  # sparse, or its memory can't be found
                yield Place(array, array_type, label)
            grad = getattr(array, "grad", None) if getattr(array, "is_leaf", False) else None
            if grad is not None and id(grad) not in seen:
                seen.add(id(grad))
                yield Place(grad, array_type, f"{label}.grad")


def _parts_of_state(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if is_module(value):
        prefix = f"{name}." if name else ""
        for key, array in (*value.named_parameters(), *value.named_buffers()):
            yield f"{prefix}{key}", array
    elif is_container(type(value)) and not name:
        for step, part in parts_of(value):
            yield from _parts_of_state(f"{name}{step}", part)
    else:
        yield name, value
