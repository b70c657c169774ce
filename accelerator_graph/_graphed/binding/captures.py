"""Finding the arguments of a captured graph: by capturing the function again, at least twice."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from ..._arrays.arrays import alias, elsewhere
from ..._arrays.placement import extent
from ..._core import stream_stack
from ..._core.memory import pool_contents
from ..._core.streams import Stream
from ...api import Graph
from ...backends.base import GraphNode, NodeParameters, NodeSetter
from .argument_words import ArgumentWord, Captures, Doubt, NotFollowing, argument_words, check_known
from .bound_inputs import Bindable, BoundInputs, Inputs

_COLLECTIVE = re.compile(
    r"nccl|rccl|nvshmem|rocshmem|symm_?mem|cross_device|multimem"
    r"|(all|one_?shot|two_?shot)_?(reduce|gather|to_?all)|reduce_?scatter",
    re.IGNORECASE,
)
"""Kernels that may read memory of other devices, or memory that was registered with a library."""

_SHOWN = 60

_MORE = (False, True, True, False, False, True, False)
"""Whether each further capture has the first one's inputs, in an order without a period: bytes that nobody
has set hold what earlier captures have left there."""


def bound_inputs(
    captured: Graph,
    inputs: Inputs,
    bindables: Sequence[Bindable],
    outputs: Sequence[Any],
    stream: Stream,
    capture: Callable[[Sequence[Any]], Graph],
) -> BoundInputs:
    """Find where the addresses of static arrays stand in a graph, which is kept.

    `capture` captures the function again, with other arrays in the place of the static ones; those of the
    `bindables` are to be followed. `outputs` are the graph's own arrays in the result. Raises `NotFollowing`
    if calls have to copy.
    """
    if not bindables:
        raise NotFollowing("no argument is a dense tensor, like torch's")
    _, statics, array_types, firsts = inputs
    again: list[Graph] = []
    try:
        names = _names_of_nodes(captured)
        first = _parameters(captured)
        check_known(first, names)
        moved = [each.argument for each in bindables]
        arrays, kinds = [statics[i] for i in moved], [array_types[i] for i in moved]
        others = stream_stack.within(stream, elsewhere, arrays, kinds)
        places = {True: arrays, False: others}
        aliases: list[Any] = []

        def capture_at(here: bool) -> Graph:
            """Capture with arrays that are new, since bytes that nobody has set may be addresses of those."""
            new = [alias(x, kind) for x, kind in zip(places[here], kinds, strict=True)]
            aliases.extend(new)
            instead = {id(x): other for x, other in zip(arrays, new, strict=True)}
            return _captured(capture, [instead.get(id(x), x) for x in statics])

        for here in (True, False):
            again.append(capture_at(here))
        there = [each.address(x) for each, x in zip(bindables, others, strict=True)]
        captures = Captures(
            [first, _parameters(again[0])],
            [_parameters(again[1])],
            _ranges([each.static for each in bindables], bindables),
            _ranges(there, bindables),
            names,
        )
        words = _words(captures, capture_at)
        own = [*_own_memory(captured, first), *filter(None, map(extent, [*statics, *outputs]))]
        return BoundInputs(bindables, words, _setters(captured, words, names), own, firsts)
    except NotFollowing:
        raise
    except Exception as error:
        raise NotFollowing(_with("its arguments can't be found", error)) from error
    finally:
        for each in again:
            each.reset()


def _words(captures: Captures, capture_at: Callable[[bool], Graph]) -> list[ArgumentWord]:
    """Return all words that are arguments, from as many captures as that takes."""
    for here in _MORE:
        try:
            return argument_words(captures)
        except Doubt:
            graph = capture_at(here)
            try:
                (captures.here if here else captures.there).append(_parameters(graph))
            finally:
                graph.reset()
    return argument_words(captures)


def _captured(capture: Callable[[Sequence[Any]], Graph], arrays: Sequence[Any]) -> Graph:
    try:
        return capture(arrays)
    except Exception as error:
        raise NotFollowing(_with("it can't be captured again", error)) from error


def _with(fact: str, error: Exception) -> str:
    return f"{fact}: {type(error).__name__}: {error}".rstrip(".")


def _ranges(starts: Sequence[int], bindables: Sequence[Bindable]) -> list[tuple[int, int]]:
    return [(start, start + each.nbytes) for start, each in zip(starts, bindables, strict=True)]


def _names_of_nodes(graph: Graph) -> list[str]:
    """Return the names of a graph's nodes; raise `NotFollowing` if one of them is a collective."""
    captured = graph._kept("describe()")
    if graph.collectives:
        raise NotFollowing("its work asks for a collective, which may know memory by other means")
    nodes, _ = captured.backend.nodes(captured.native)
    for node in nodes:
        _check_name(f"node {node.id}", node)
    return [node.name[:_SHOWN] for node in nodes]


def _check_name(subject: str, node: GraphNode) -> None:
    if _COLLECTIVE.search(node.name):
        raise NotFollowing(f"{subject} ({node.name[:_SHOWN]}) is a collective")
    for nodes, _ in node.bodies:
        for each in nodes:
            _check_name(f"a {each.kind} inside {subject}", each)


def _parameters(graph: Graph) -> Sequence[NodeParameters]:
    captured = graph._kept("describe()")
    return captured.backend.parameters(captured.native)


def _setters(graph: Graph, words: Sequence[ArgumentWord], names: Sequence[str]) -> dict[int, NodeSetter]:
    """Return what changes the nodes that have such words, in an executable that is made now."""
    graph.instantiate()
    runner = graph._runner_for("set_nodes()")
    found: dict[int, NodeSetter] = {}
    for number in sorted({each.node for each in words}):
        setter = runner.node_setter(number)
        if setter is None or not setter.blocks:
            raise NotFollowing(f"the parameters of node {number} ({names[number]}) can't be changed")
        found[number] = setter
    return found


def _own_memory(graph: Graph, nodes: Sequence[NodeParameters]) -> list[tuple[int, int]]:
    """Return the memory that a graph has for itself: that of its pools, and what its nodes allocate."""
    runner = graph._runner_for("memory()")
    contents = pool_contents(runner.home, runner.lease.with_others(runner.retained))
    if contents is None:
        raise NotFollowing("a framework does not report what memory the pools of the graph have")
    found = [(each.address, each.address + each.nbytes) for each in contents.segments]
    for node in nodes:
        if node.kind == "mem_alloc" and node.blocks and isinstance(node.rest, int):
            address = int.from_bytes(node.blocks[0], "little")
            found.append((address, address + node.rest))
    return found
