"""What is verified: a function, and the graph that is captured from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from ..._arrays.arrays import clear_autocast_caches
from ..._arrays.containers import rebuild
from ..._arrays.signatures import Reader
from ..._core import stream_stack
from ..._core.side_streams import side_of
from ..._core.streams import Stream, describe
from ..._graphed.arguments import Arguments
from ..._graphed.python_state import PythonState
from ...api import Graph, graph
from .arrays import arrays_in, arrays_in_state, is_module, named_state
from .places import Place, readable
from .randomness import RandomState


class Program:
    """A function, run eagerly on a stream, and as a graph that is captured here, into a pool of its own.

    Parameters
    ----------
    function : callable
        The function.
    inputs : sequence
        Its arguments.
    state : object
        What the caller has named as the state; None to look for it.
    stream : Stream
        Where eager runs and replays go.
    """

    inputs: list[Place]
    """The arrays that the eager runs are given."""
    fed: list[Place]
    """The arrays that the graph reads in their place."""
    state: list[Place]
    """The other arrays that runs may change."""
    outputs: list[Place]
    """The arrays in the graph's result, once it is captured."""
    left_out: list[str]
    """The names of arrays in the result that can't be read here."""
    python: PythonState
    random: RandomState
    graph: Graph | None = None
    given_graph = False
    """Whether the graph was captured by the caller."""
    copies_arguments = False
    """Whether replays copy the arguments to arrays of the graph."""

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
        for leaf, label in unique.values():
            if not readable(leaf, stream):
                raise TypeError(
                    f"verify: argument {label} is in memory that the {describe(stream)} can't read; move it "
                    "there, or make a stream of its device the current one."
                )
        self.inputs = [
            Place(leaf, reader.array_types[type(leaf)], label) for leaf, label in reversed(unique.values())
        ]
        self._leaves = [leaf for leaf, _ in reversed(unique.values())]
        self.fed = self.inputs
        self.outputs = []
        self.left_out = []
        self._captured: list[Graph] = []
        self._state = None if state is None else named_state(state)
        self.look_again()

    def look_again(self) -> None:
        """Find the state of the function as it is now."""
        function, state = self._function, self._state
        self.python = PythonState(function, self._is_array)
        reachable = list(self.python.values())
        self.random = RandomState(self.stream, [value for _, value in reachable])
        named = list(reachable if state is None else state)
        if state is None and is_module(function):
            named.insert(0, ("", function))
        self.state = [
            place
            for place in arrays_in_state(named, self._reader, self.stream)
            if not any(place.overlaps(each) for each in self.inputs)
        ]

    def arrays_of(self, value: Any, name: str) -> list[Place]:
        """Return the arrays in a result, but for those in memory that can't be read here."""
        found: list[Place] = []
        for label, array, array_type in arrays_in(value, name, self._reader):
            try:
                place = Place(array, array_type, label) if readable(array, self.stream) else None
            except (TypeError, ValueError):  # it holds Python objects
                place = None
            if place is None:
                self.left_out.append(label)
            else:
                found.append(place)
        return found

    def _is_array(self, x: Any) -> bool:
        with suppress(Exception):  # an object that is not what it says
            return not isinstance(x, type) and self._reader.array_type(x) is not None
        return False

    def eager(self) -> list[Place]:
        """Run eagerly, and return the arrays in the result."""
        return self.eager_on(self.stream)

    def replay(self) -> list[Place]:
        """Replay, and return the arrays in the result."""
        assert self.graph is not None
        self.graph.replay(self.stream)
        return self.outputs

    def eager_on(self, stream: Stream) -> list[Place]:
        """Run the function on a stream."""
        result = stream_stack.within(stream, self._call, {})
        return self.arrays_of(result, "result")

    def _call(self, instead: dict[int, Any]) -> Any:
        """Call the function, with other arrays in the place of some of the arguments."""
        values = [rebuild(value, lambda x: instead.get(id(x), x)) for value in self._values]
        count, names = self._shape
        return self._function(*values[:count], **dict(zip(names, values[count:], strict=True)))

    def capture(self) -> None:
        """Capture the function beside the current stream, with arrays of its own for the arguments."""
        self.capture_function()

    def capture_function(self) -> None:
        """Capture the function, whatever graph there was before."""
        stream = self.stream
        statics = stream_stack.within(stream, self._static_inputs)
        by_id = {id(leaf): static for leaf, static in zip(self._leaves, statics, strict=True)}
        self.fed = [
            place if static is place.array else Place(static, place.array_type, place.name)
            for static, place in zip(statics, self.inputs, strict=True)
        ]
        made = self.graph = Graph(keep_graph=True)
        self._captured.append(made)
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
        self.outputs = self.arrays_of(result, "result")

    def close(self) -> None:
        """Reset the graphs that were captured here."""
        for captured in self._captured:
            captured.reset()

    def modules(self) -> dict[str, Any]:
        """Return the torch modules that the function can reach, each with those inside, by their names."""
        found: dict[str, Any] = {}
        own = [("", self._function)] if is_module(self._function) else []
        seen: set[int] = set()
        for name, value in (*own, *self.python.values()):
            if is_module(value) and id(value) not in seen:
                for inner, module in value.named_modules():
                    seen.add(id(module))
                    label = ".".join(filter(None, (name, inner))) or type(module).__name__
                    found.setdefault(label, module)
        return found

    def _static_inputs(self) -> list[Any]:
        made = []
        for leaf, place in zip(self._leaves, self.inputs, strict=True):
            static = place.array_type.static_copy(leaf)
            if getattr(leaf, "requires_grad", False):
                static.requires_grad_()
            made.append(place.array_type.as_argument(static, leaf))
        return made
