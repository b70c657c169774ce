"""What is verified: a function and the graph that is captured from it, or a graph and its reference."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from ..._core import stream_stack
from ..._core.side_streams import side_of
from ..._core.streams import Stream
from ..._graphed.arguments import Arguments
from ..._graphed.arrays import ArrayType, array_type_of, clear_autocast_caches
from ..._graphed.containers import is_container, parts_of, rebuild
from ..._graphed.recorded_call import RecordedCall
from ..._graphed.signature import Call, Reader
from ...api import Graph, graph
from .places import Place, readable
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
    left_out: list[str]
    """The names of arrays in the result that can't be read here."""
    python: PythonState
    random: RandomState
    name: str
    given_graph = False
    """Whether the graph was captured by the caller."""
    copies_arguments = False
    """Whether replays copy the arguments to arrays of the graph."""

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

    def __init__(
        self, function: Callable[..., Any], inputs: Sequence[Any], state: Any, stream: Stream
    ) -> None:
        arguments = Arguments(getattr(function, "forward", function), 0)
        self._shape, self._values = arguments.ordered(tuple(inputs), {})
        self._begin(function, arguments.names(self._shape), state, stream)

    def _begin(self, function: Callable[..., Any], names: Sequence[str], state: Any, stream: Stream) -> None:
        """Find the arrays in the arguments, and the state."""
        self.stream = stream
        self.name = getattr(function, "__qualname__", None) or type(function).__qualname__
        self._function = function
        self._reader = reader = Reader(by_value=False)
        leaves: list[Any] = []
        reader.read(self._values, leaves)
        labels = reader.array_names(self._values, names)
        unique = {id(leaf): (leaf, label) for leaf, label in reversed([*zip(leaves, labels, strict=True)])}
        self.inputs = [
            Place(leaf, reader.array_types[type(leaf)], label) for leaf, label in reversed(unique.values())
        ]
        self._leaves = [leaf for leaf, _ in reversed(unique.values())]
        self.fed = self.inputs
        self.outputs = []
        self.left_out = []
        self._state = state
        self.look_again()

    def look_again(self) -> None:
        """Find the state of the function as it is now."""
        function, state = self._function, self._state
        self.python = PythonState(function, self._is_array)
        reachable = list(self.python.values())
        self.random = RandomState(self.stream, [value for _, value in reachable])
        named = reachable if state is None else list(named_state(state))
        if state is None and is_module(function):
            named.insert(0, ("", function))
        self.state = [
            place
            for place in arrays_in_state(named, self._reader, self.stream)
            if not any(place.overlaps(each) for each in self.inputs)
        ]

    def _arrays_in(self, value: Any, name: str) -> list[Place]:
        """Return the arrays in a result, but for those in memory that can't be read here."""
        found: list[Place] = []
        for label, array, array_type in arrays_in(value, name, self._reader):
            if readable(array, self.stream):
                found.append(Place(array, array_type, label))
            else:
                self.left_out.append(label)
        return found

    def _is_array(self, x: Any) -> bool:
        with suppress(Exception):  # an object that is not what it says
            return not isinstance(x, type) and self._reader.array_type(x) is not None
        return False

    def eager_on(self, stream: Stream) -> list[Place]:
        """Run the function on a stream."""
        result = stream_stack.within(stream, self._call, {})
        return self._arrays_in(result, "result")

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
        self.outputs = self._arrays_in(result, "result")

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
        self.outputs = self._arrays_in(outputs, "outputs")

    def capture(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Leave the graph to the caller."""


class RecordedProgram(FunctionProgram):
    """A call of a graphed function, and the graph that was captured for calls like it."""

    copies_arguments = True

    def __init__(
        self,
        function: Callable[..., Any],
        call: Call,
        names: Sequence[str],
        recorded: RecordedCall,
        stream: Stream,
    ) -> None:
        self._shape, self._values = call.shape, call.values
        self._recorded, self._call_leaves = recorded, call.leaves
        bound = function if not call.instance else partial(function, *call.instance)
        self._begin(bound, names, None, stream)
        self.name = getattr(function, "__qualname__", self.name)
        self.graph = recorded.graph
        self.outputs = self._arrays_in(recorded.result.in_place(call.leaves), "result")

    def capture(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Leave the graph to the function."""

    def replay(self) -> list[Place]:
        """Replay as the graphed function does, which copies arguments and results."""
        result = stream_stack.within(self.stream, self._run_recorded)
        return self._arrays_in(result, "result")

    def _run_recorded(self) -> Any:
        where = self._recorded.streams.ready(self.stream)
        assert where is not None
        return self._recorded.run(self._call_leaves, where)


def is_module(x: Any) -> bool:
    """Return True for a torch module."""
    return not isinstance(x, type) and hasattr(x, "named_parameters") and hasattr(x, "named_buffers")


def arrays_in(value: Any, name: str, reader: Reader) -> Iterator[tuple[str, Any, ArrayType]]:
    """Yield the arrays in nested containers, with their names."""
    if is_container(type(value)):
        for step, part in parts_of(value):
            yield from arrays_in(part, name + step, reader)
    else:
        array_type = reader.array_type(value)
        if array_type is not None:
            yield name, value, array_type


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


def arrays_in_state(named: Iterable[tuple[str, Any]], reader: Reader, stream: Stream) -> Iterator[Place]:
    """Yield the arrays among named values once each, with the parameters and buffers of modules."""
    seen: set[int] = set()
    for name, value in named:
        for label, array in _parts_of_state(name, value):
            if isinstance(array, type) or id(array) in seen:
                continue
            seen.add(id(array))
            with suppress(Exception):  # it is no array, or its memory can't be found
                array_type = reader.array_type(array)
                if array_type is not None and readable(array, stream):
                    yield Place(array, array_type, label)
            grad = getattr(array, "grad", None) if getattr(array, "is_leaf", False) else None
            if grad is not None and id(grad) not in seen:
                seen.add(id(grad))
                with suppress(Exception):
                    yield Place(grad, reader.array_types[type(grad)], f"{label}.grad")


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
