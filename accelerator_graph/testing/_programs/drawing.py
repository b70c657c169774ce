"""Hypothesis draws the steps of programs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from accelerator_graph.backends.base import Backend, Capability

from .model import BUFFER_BYTES, Copy, Fill, Piece
from .program import Program
from .steps import (
    STREAMS,
    Again,
    Aside,
    Call,
    Capture,
    Check,
    Close,
    Instantiate,
    Nested,
    Op,
    Options,
    Release,
    Replay,
    Reset,
    Step,
    Together,
    Traits,
    Wait,
)

T = TypeVar("T")

CELLS, BUFFERS, GRAPHS = 3, 2, 3
"""The most that a program has of each."""


def programs(backend: Backend, devices: int = 1, crosses: bool = True) -> SearchStrategy[Program]:
    """Return the strategy for programs that use what a backend can do.

    Parameters
    ----------
    backend : Backend
        The backend.
    devices : int
        How many devices a program may use: 1 or 2.
    crosses : bool
        Whether streams of two devices can wait for each other.
    """
    capabilities = backend.capabilities(0)
    traits = Traits(
        backend.name,
        events=Capability.EVENTS in capabilities,
        nested=Capability.CHILD_GRAPHS in capabilities,
        nested_kept=backend.records_graphs,
        modes=("default", *backend.capture_modes),
    )
    streams = _below(STREAMS if traits.events else 2)
    width = st.integers(1, STREAMS if traits.events else 1)
    body = _several(_op(traits, Capability.ENQUEUE in capabilities), 3, 10)
    options = st.builds(
        Options, keep_graph=st.booleans(), mode=_below(len(traits.modes)), stream=st.none() | streams
    )
    replays = st.lists(st.none() | streams, max_size=3)
    capture = st.builds(
        Capture,
        graph=_graph,
        stream=streams,
        body=body,
        width=width,
        way=st.sampled_from(["with", "by hand", "graph", "side stream"]),
        raises=_weighted((4, st.none()), (1, _below(8))),
        eager=st.booleans(),
        retain=st.booleans(),
        replays=replays,
        route=_route,
    )
    call = st.builds(Call, stream=streams, body=body, width=width, route=_route)
    return st.builds(
        lambda used, options, first, steps: Program(
            replace(traits, devices=used, crosses=crosses), options, [*filter(None, [first]), *steps]
        ),
        st.just(1) if devices == 1 else st.integers(1, devices),
        st.tuples(*[options] * GRAPHS),
        _weighted((1, st.none()), (9, capture)),
        _several(_step(capture, call, replays, streams), 2, 8),
    )


def _op(traits: Traits, memory: bool) -> SearchStrategy[Op | None]:
    """Return the strategy for what a function does."""
    stream = _below(STREAMS)
    nbytes = st.none() | st.integers(0, BUFFER_BYTES)
    piece = st.builds(
        Piece,
        stream=stream,
        cell=_below(CELLS),
        a=st.sampled_from([1, 3, 5, 7]),
        b=_below(8),
        slow=st.booleans(),
        route=_route,
    )
    fill = st.builds(
        Fill, stream=stream, buffer=_below(BUFFERS), value=_below(10), nbytes=nbytes, route=_route
    )
    copy = st.builds(
        lambda pair, **how: Copy(dst=pair[0], src=pair[1], **how),
        st.permutations(range(BUFFERS)),
        stream=stream,
        nbytes=nbytes,
        route=_route,
    )
    return _weighted(
        (1, st.none()),
        (8, piece),
        (2 * memory, fill),
        (2 * memory, copy),
        (traits.events, st.builds(Wait, stream=stream, other=stream, event=st.booleans(), route=_route)),
        (
            2 * traits.nested,
            st.builds(Nested, stream=stream, graph=_graph, bound=st.booleans(), route=_route),
        ),
        (1, st.builds(Aside, a=st.sampled_from([1, 3]), b=_below(4))),
        (1, st.builds(Release, _graph)),
    )


def _step(
    capture: SearchStrategy[Capture],
    call: SearchStrategy[Call],
    replays: SearchStrategy[list[int | None]],
    streams: SearchStrategy[int],
) -> SearchStrategy[Step | None]:
    replay = st.builds(
        Replay,
        graph=_graph,
        stream=st.none() | streams,
        bound=st.booleans(),
        times=st.integers(1, 3),
        route=_route,
    )
    return _weighted(
        (1, st.none()),
        (4, replay),
        (5, capture),
        (2, st.builds(Again, graph=_graph, shift=st.integers(1, 3), replays=replays)),
        (1, call),
        (1, st.builds(Together, st.lists(replay, min_size=2, max_size=3))),
        (2, st.builds(Instantiate, _graph)),
        (2, st.builds(Reset, _graph, st.booleans())),
        (1, st.builds(Close, streams)),
        (1, st.builds(Check)),
    )


def _weighted(*choices: tuple[int, SearchStrategy[Any]]) -> SearchStrategy[Any]:
    """Return the strategy for one of several, the first being the simplest."""
    kinds = [kind for weight, kind in choices for _ in range(weight)]
    return _below(len(kinds)).flatmap(kinds.__getitem__)


def _several(each: SearchStrategy[T | None], least: int, most: int) -> SearchStrategy[list[T]]:
    """Return the strategy for lists. An entry that is None counts as none, so shrinking can take it away."""
    return st.lists(each, min_size=least, max_size=most).map(
        lambda entries: [entry for entry in entries if entry is not None]
    )


def _below(count: int) -> SearchStrategy[int]:
    return st.integers(0, count - 1)


_graph = st.sampled_from([0, 0, 1, 2])
_route = _below(6)
