"""Hypothesis draws the steps of programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from accelerator_graph.backends.base import Backend, Capability

from .body import Aside, Nested, Op, Wait
from .memory import BUFFER_BYTES, Copy, Fill, Piece
from .program import Program, Traits
from .steps import Call, Capture, Check, Instantiate, Options, Replay, Reset, Step, Together

T = TypeVar("T")

STREAMS, CELLS, BUFFERS, GRAPHS = 4, 3, 2, 3
"""The most that a program has of each."""


def programs(backend: Backend) -> SearchStrategy[Program]:
    """Return the strategy for programs that use what a backend can do."""
    capabilities = backend.capabilities(0)
    traits = Traits(
        backend.name,
        events=Capability.EVENTS in capabilities,
        nested=Capability.CHILD_GRAPHS in capabilities,
        modes=("default", *backend.capture_modes),
    )
    streams = _below(STREAMS if traits.events else 2)
    body = _several(_ops(traits, Capability.ENQUEUE in capabilities), 10)
    options = st.builds(
        Options, keep_graph=st.booleans(), mode=_below(len(traits.modes)), stream=st.none() | streams
    )
    capture = st.builds(
        Capture,
        graph=_graph,
        stream=streams,
        body=body,
        way=st.sampled_from(["with", "by hand", "graph", "side stream"]),
        raises=st.one_of(st.none(), st.none(), st.none(), _below(8)),
        eager=st.booleans(),
        retain=st.booleans(),
        replays=st.lists(st.none() | streams, max_size=3),
        route=_route,
    )
    step = _steps(capture, streams, body)
    return st.builds(
        lambda options, first, steps: Program(traits, options, [first, *steps]),
        st.tuples(*[options] * GRAPHS),
        capture,
        _several(step, 7),
    )


def _ops(traits: Traits, memory: bool) -> SearchStrategy[Op]:
    """Return the strategy for what a function does; it has one stream where there are no events."""
    stream = _below(STREAMS) if traits.events else st.just(0)
    nbytes = st.none() | st.integers(0, BUFFER_BYTES)
    pairs = st.permutations(range(BUFFERS))
    piece = st.builds(
        Piece,
        stream=stream,
        cell=_below(CELLS),
        a=st.sampled_from([1, 3, 5, 7]),
        b=_below(8),
        slow=st.booleans(),
        route=_route,
    )
    kinds: list[SearchStrategy[Op]] = [piece, piece, piece]
    if memory:
        kinds.append(
            st.builds(
                Fill, stream=stream, buffer=_below(BUFFERS), value=_below(10), nbytes=nbytes, route=_route
            )
        )
        kinds.append(
            st.builds(
                lambda pair, **how: Copy(dst=pair[0], src=pair[1], **how),
                pairs,
                stream=stream,
                nbytes=nbytes,
                route=_route,
            )
        )
    if traits.events:
        kinds.append(st.builds(Wait, stream=stream, other=stream, event=st.booleans()))
    if traits.nested:
        kinds.append(st.builds(Nested, stream=stream, graph=_graph, bound=st.booleans(), route=_route))
    kinds.append(st.builds(Aside, a=st.sampled_from([1, 3]), b=_below(4)))
    return st.one_of(kinds)


def _steps(
    capture: SearchStrategy[Capture], streams: SearchStrategy[int], body: SearchStrategy[Sequence[Op]]
) -> SearchStrategy[Step]:
    replay = st.builds(
        Replay,
        graph=_graph,
        stream=st.none() | streams,
        bound=st.booleans(),
        times=st.integers(1, 3),
        route=_route,
    )
    return st.one_of(
        replay,
        replay,
        capture,
        capture,
        st.builds(Together, st.lists(replay, min_size=2, max_size=3)),
        st.builds(Call, stream=streams, body=body, route=_route),
        st.builds(Instantiate, _graph),
        st.builds(Reset, _graph, st.booleans()),
        st.builds(Check),
    )


def _several(each: SearchStrategy[T], most: int) -> SearchStrategy[list[T]]:
    """Return the strategy for lists. Hypothesis takes an entry away by making it None first."""
    return st.lists(st.none() | each, max_size=most).map(
        lambda entries: [entry for entry in entries if entry is not None]
    )


def _below(count: int) -> SearchStrategy[int]:
    return st.integers(0, count - 1)


_graph = _below(GRAPHS)
_route = _below(6)
