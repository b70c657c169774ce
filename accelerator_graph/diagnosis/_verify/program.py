"""What is verified: a function, and the graph that is captured from it, here or by somebody else."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from ..._arrays.containers import rebuild
from ..._arrays.signatures import Reader
from ..._core import stream_stack
from ..._core.current_stream import side_of
from ..._core.streams import Stream, describe
from ..._graphed.arguments import Arguments
from ..._graphed.python_state import PythonState
from ..._graphed.recorded_call import Capturable, RecordedCall
from ...api import Graph, graph
from ...interop import registry as interop
from .places import Place, read_all, readable, wait


class CantBePutBack(TypeError):
    """What a run would change for good."""


class Program:
    """A function, run eagerly on a stream, and as a graph that is captured here, into a pool of its own.

    `state` is what the caller has named as the state; None to look for it.
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
    begins_anew = True
    """Whether the graph is captured here, after two eager runs, and not known already."""
    given_graph = False
    """Whether the graph was captured by the caller."""
    copies_arguments = False
    """Whether replays copy the arguments to arrays of the graph."""

    def __init__(
        self, function: Callable[..., Any], inputs: Sequence[Any], state: Any, stream: Stream
    ) -> None:
        self._arguments = Arguments(getattr(function, "forward", function), 0)
        self._shape, self._values = self._arguments.ordered(tuple(inputs), {})
        self._begin(function, self._arguments.names(self._shape), state, stream)

    def _begin(self, function: Callable[..., Any], names: Sequence[str], state: Any, stream: Stream) -> None:
        """Find the arrays in the arguments, and the state."""
        self.stream = stream
        self.name = getattr(function, "__qualname__", None) or type(function).__qualname__
        self._function, self._names = function, names
        self.reader = Reader(by_value=False)
        found = self._arrays_in(self._values)
        ids = [id(leaf) for leaf, _ in found]
        self._firsts = [i for i, each in enumerate(ids) if ids.index(each) == i]
        self._leaves = [found[i][0] for i in self._firsts]
        self.fed = self.inputs = [found[i][1] for i in self._firsts]
        self.outputs = []
        self.left_out = []
        self._captured: list[Graph] = []
        self._state = None if state is None else self._named(state)
        self.look_again()
        if self.python.lost:
            raise CantBePutBack(
                f"verify: the function can reach {self.python.lost[0]!r}, an iterator that can't be put back "
                "after a run; pass what it yields as an argument."
            )

    def _arrays_in(self, values: Sequence[Any]) -> list[tuple[Any, Place]]:
        """Return the arrays in arguments, and where they lie."""
        found = []
        for name, value in zip(self._names, values, strict=True):
            for label, array, array_type in self.reader.arrays_in(value, name):
                if not readable(array, self.stream):
                    raise TypeError(
                        f"verify: argument {label} is in memory that the {describe(self.stream)} can't read; "
                        "move it there, or make a stream of its device the current one."
                    )
                found.append((array, Place(array, array_type, label)))
        return found

    def contents_of(self, example: Sequence[Any], name: str) -> list[bytes]:
        """Return the contents of the arrays in further arguments, which differ in nothing else."""
        shape, values = self._arguments.ordered(tuple(example), {})
        found = self._arrays_in(values) if shape == self._shape else []
        chosen = [found[i][1] for i in self._firsts if i < len(found)]
        alike = len(chosen) == len(self.inputs) and all(map(Place.like, chosen, self.inputs))
        if not alike or self._plain(values) != self._plain(self._values):
            raise ValueError(
                f"verify: {name} may differ from the arguments in the contents of arrays only; verify other "
                "shapes, types and numbers by a call of their own."
            )
        return read_all(self.stream, chosen)

    def _plain(self, values: Sequence[Any]) -> list[Any]:
        """Return arguments without the arrays in them."""
        return [rebuild(value, lambda x: None if self.reader.is_array(x) else x) for value in values]

    def look(self) -> tuple[PythonState, RandomState]:
        """Return the references and the random numbers as they are now."""
        named = list(zip(self._names, self._values, strict=True))
        python = PythonState(self._function, self.reader.is_array, grads=True, contents=True, arguments=named)
        return python, RandomState(self.stream, [value for _, value in python.values()])

    def look_again(self) -> None:
        """Find the state of the function as it is now."""
        self.python, self.random = self.look()
        named = list(self.python.values() if self._state is None else self._state)
        if self._state is None and is_module(self._function):
            named.insert(0, ("", self._function))
        self.state = [
            place
            for place in arrays_in_state(named, self.reader, self.stream)
            if not any(place.overlaps(each) for each in self.inputs)
        ]

    def arrays_of(self, value: Any, name: str) -> list[Place]:
        """Return the arrays in a result, but for those in memory that can't be read here."""
        found: list[Place] = []
        for label, array, array_type in self.reader.arrays_in(value, name):
            with suppress(TypeError, ValueError):  # it holds Python objects
                if readable(array, self.stream):
                    found.append(Place(array, array_type, label))
                    continue
            self.left_out.append(label)
        return found

    def _named(self, state: Any) -> list[tuple[str, Any]]:
        """Return what the caller has named as state; TypeError if a part is neither an array nor a module."""
        if isinstance(state, dict):
            named = [(str(key), value) for key, value in state.items()]
        else:
            one = is_module(state) or self.reader.is_array(state) or not isinstance(state, Iterable)
            named = [(f"state[{i}]", value) for i, value in enumerate([state] if one else state)]
        for name, value in named:
            if value is not None and not is_module(value) and not self.reader.is_array(value):
                raise TypeError(f"verify: {name} must be an array or a module, not {value!r}.")
        return named

    def captured_on(self) -> Stream:
        """Return the stream that captures are made on."""
        return side_of(self.stream)

    def eager(self) -> list[Place]:
        """Run eagerly as in a capture, on the stream that captures are made on; return the result's arrays.

        So libraries use the workspaces, and choose the kernels, that they do in a capture.
        """
        stream = self.captured_on()
        stream._follow(self.stream)
        result = stream_stack.within(stream, self._call, {})
        wait(stream)  # this raises what work of the function has raised
        return self.arrays_of(result, "result")

    def replay(self) -> list[Place]:
        """Replay, and return the arrays in the result."""
        assert self.graph is not None
        self.graph.replay(self.stream)
        return self.outputs

    def _call(self, instead: dict[int, Any]) -> Any:
        """Call the function, with other arrays in the place of some of the arguments."""
        values = list(self._values)
        for i, value in enumerate(values):
            if any(instead.get(id(x), x) is not x for _, x, _ in self.reader.arrays_in(value, "")):
                values[i] = rebuild(value, lambda x: instead.get(id(x), x))
        count, names = self._shape
        return self._function(*values[:count], **dict(zip(names, values[count:], strict=True)))

    def capture(self) -> None:
        """Capture the function beside the current stream, with arrays of its own for the arguments."""
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
        with graph(made, None, side):
            result = self._call(by_id)
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


# ---- where there is a graph already -------------------------------------------------------------


class GraphProgram(Program):
    """A graph that the caller has captured, and the function that it has to agree with."""

    given_graph = True

    def __init__(
        self, g: Graph, reference: Callable[..., Any], inputs: Sequence[Any], outputs: Any, state: Any
    ) -> None:
        stream = g._runner_for("replay()").destination().held()
        super().__init__(reference, inputs, state, stream)
        self.graph = g
        self.outputs = self.arrays_of(outputs, "outputs")

    def captured_on(self) -> Stream:
        """Return the stream of the caller's graph."""
        return self.stream


class RecordedProgram(Program):
    """A call of a graphed function, and the graph that is captured for calls like it, after this was made."""

    begins_anew = False
    copies_arguments = True

    def __init__(self, wanted: Capturable) -> None:
        function, call = wanted.function, wanted.call
        self._shape, self._values, self._call_leaves = call.shape, call.values, call.leaves
        bound = function if not call.instance else partial(function, *call.instance)
        self._begin(bound, wanted.names, None, wanted.stream)
        self.name = getattr(function, "__qualname__", self.name)

    def attach(self, recorded: RecordedCall) -> None:
        """Take the graph, which was captured while everything was as when this was made."""
        self._recorded = recorded
        self.graph = recorded.graph
        self.outputs = self.arrays_of(recorded.result.in_place(self._call_leaves), "result")

    def replay(self) -> list[Place]:
        """Replay as the graphed function does, which copies arguments and results."""
        if self.graph is not self._recorded.graph:
            return super().replay()
        result = stream_stack.within(self.stream, self._run_recorded)
        return self.arrays_of(result, "result")

    def _run_recorded(self) -> Any:
        where = self._recorded.streams.ready(self.stream)
        assert where is not None
        return self._recorded.run(self._call_leaves, where)


# ---- modules, state and random numbers ------------------------------------------------------------


def is_module(x: Any) -> bool:
    """Return True for a torch module. Only its type is asked: an attribute of an object may raise."""
    return hasattr(type(x), "named_parameters") and hasattr(type(x), "named_buffers")


def arrays_in_state(named: Iterable[tuple[str, Any]], reader: Reader, stream: Stream) -> Iterator[Place]:
    """Yield the arrays among named values once each, with the parameters and buffers of modules."""
    seen: set[int] = set()
    for name, value in named:
        parts = [(name, value)]
        if is_module(value):
            prefix = f"{name}." if name else ""
            parts = [(prefix + key, x) for key, x in (*value.named_parameters(), *value.named_buffers())]
        for label, array in parts:
            if not reader.is_array(array):
                continue
            grad = array.grad if getattr(array, "is_leaf", False) else None
            for text, x in ((label, array), (f"{label}.grad", grad)):
                if x is None or id(x) in seen:
                    continue
                seen.add(id(x))
                with suppress(Exception):  # its memory can't be found
                    array_type = reader.array_type(x)
                    if array_type is not None and readable(x, stream):
                        # another tensor, which stays where it is if a run gives this one other memory
                        yield Place(x.detach() if array_type.kind == "tensor" else x, array_type, text)


class RandomState:
    """The random numbers that a function draws next, when this is made.

    Those of Python's and NumPy's generators, of the frameworks that take part, and of the generators among
    the values that the function can reach.
    """

    def __init__(self, stream: Stream, reachable: Iterable[Any]) -> None:
        values = list(reachable)
        self.generators: list[Any] = []
        """The generators of frameworks, which have to be registered with a graph."""
        self._restores: list[Callable[[], object]] = []
        numpy = getattr(sys.modules.get("numpy"), "random", None)
        for each in (random, numpy, *values):
            if each is random or isinstance(each, random.Random):
                self._restores.append(partial(each.setstate, each.getstate()))
            elif numpy is not None and (each is numpy or isinstance(each, numpy.RandomState)):
                self._restores.append(partial(each.set_state, each.get_state()))
            elif numpy is not None and isinstance(each, numpy.Generator):
                bits = each.bit_generator
                self._restores.append(partial(setattr, bits, "state", bits.state))
        for framework in interop.inspectable(stream.backend):
            own = [value for value in values if framework.takes_generator(value)]
            self.generators += own
            restore = framework.random_state(stream.device, own)
            if restore is not None:
                self._restores.append(restore)

    def restore(self) -> None:
        """Set all random numbers back."""
        for restore in self._restores:
            restore()
