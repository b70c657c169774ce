"""Code as users write it, for type checkers; it never runs.

Each line with ignore comments is a mistake. A checker that does not see the mistake reports the comment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, assert_type

import accelerator_graph as ag


def library(stream: ag.Stream) -> None:
    """Enqueue the work of a library."""
    stream.fill(bytearray(4), 7)


# ---- graphs and streams ----------------------------------------------------------------------------


def capture() -> None:
    with ag.Stream(backend="cpu") as s, ag.Graph() as g:
        assert_type(s, ag.Stream)
        assert_type(g, ag.Graph)
        library(s)
    g.replay()
    g.replay(s)
    assert_type(g.bind(), Callable[[], None])
    assert_type(g.stream, ag.Stream | None)
    assert_type(g.pool(), tuple[int, int])
    assert_type(g.retain([1]), list[int])
    assert_type(g.watch(b"data"), bytes)
    assert_type(ag.current_graph(), ag.Graph | None)
    assert_type(s.record(), ag.Event)
    assert_type(s.record(timing=True).elapsed_time(s.record(timing=True)), float)
    assert_type(s.record().query(), bool)
    assert_type(g.profile(state=[b"data"]), ag.GraphProfile)
    assert_type(g.profile(kernels=True).kernels, tuple[ag.KernelTime, ...])
    g.debug_dump("step.html", profile=g.profile())
    assert_type(g.memory(), ag.GraphMemory)
    assert_type(ag.memory_report({"this": g}).graphs[0].touched.nbytes, int | None)
    with ag.graph(g, stream=s) as same:
        assert_type(same, ag.Graph)
    g.replays()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    s.wait()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    ag.current_stream().synchronize()
    ag.current_stream(required=False).synchronize()  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess]


def modes(mode: ag.CaptureMode, pool: ag.AnyPool, text: str) -> None:
    g = ag.Graph(capture_error_mode=mode, pool=pool)
    assert_type(g.capture_error_mode, Literal["default", "global", "thread_local", "relaxed"])
    g.capture_error_mode = "relaxed"
    assert_type(g.state, Literal["empty", "capturing", "captured", "ready"])
    g.capture_begin(capture_error_mode="lax")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ag.graph(g, capture_error_mode=text)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ag.Graph(pool=7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    g.state == "done"  # type: ignore[comparison-overlap]  # pyright: ignore[reportUnnecessaryComparison, reportUnusedExpression]  # noqa: B015


def failures() -> ag.Reason:
    try:
        capture()
    except ag.CaptureError as error:
        error.reason == "lost"  # type: ignore[comparison-overlap]  # pyright: ignore[reportUnnecessaryComparison, reportUnusedExpression]  # noqa: B015
        return error.reason
    return "other"


# ---- graphed functions -----------------------------------------------------------------------------


@ag.label("scale")
def labelled(x: bytearray, factor: float = 1) -> bytearray:
    ag.current_stream().launch(x.reverse)
    return x


@ag.graphed
def scale(x: bytearray, factor: float, *, times: int = 1) -> bytearray:
    return x


@ag.graphed(warmup=0, outputs="static", on_capture_error="eager")
def shift(x: bytearray) -> bytearray:
    return x


class Model:
    @ag.graphed
    def step(self, x: bytearray) -> int:
        return len(x)

    @ag.graphed(max_graphs=2)
    def run(self, x: bytearray, *, times: int = 1) -> str:
        return str(times)


def functions(x: bytearray) -> None:
    assert_type(scale(x, 2.0, times=3), bytearray)
    assert_type(shift(x), bytearray)
    assert_type(scale.cache_info(), ag.CacheInfo)
    assert_type(scale.explain(), list[ag.GraphInputs])
    assert_type(scale.cache_info().replays, int)
    scale.cache_clear()
    assert_type(labelled(x, factor=2.0), bytearray)
    labelled(x, "2")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    function: ag.Graphed[[bytearray], bytearray] = shift
    assert_type(function(x), bytearray)
    scale(x, "2")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    scale(x, 2.0, 3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    shift()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    shift.clear()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    ag.graphed(outputs="none")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]


def methods(model: Model, x: bytearray) -> None:
    assert_type(model.step(x), int)
    assert_type(model.run(x, times=2), str)
    assert_type(Model.step(model, x), int)
    assert_type(model.step.cache_info(), ag.CacheInfo)
    assert_type(Model.step.cache_info(), ag.CacheInfo)
    model.step("x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    model.run(x, 2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def callables(forward: Callable[[int], str], model: Model) -> None:
    class Module:
        def __call__(self, x: int) -> bytes:
            return bytes(x)

    assert_type(ag.make_graphed_callables(forward, (1,)), Callable[[int], str])
    assert_type(ag.make_graphed_callables(Module(), (1,)), Module)
    both = ag.make_graphed_callables((forward, Module()), ((1,), (2,)))
    assert_type(both[0](1), str)
    assert_type(both[1], Module)
    ag.make_graphed_callables(model, (1,))  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


# ---- backends --------------------------------------------------------------------------------------


@ag.use_backend("cpu")
def solve(steps: int) -> float:
    return float(steps)


def choice() -> None:
    assert_type(solve(3), float)
    assert_type(ag.backends.names(), list[str])
    assert_type(ag.backends.resolve(), ag.backends.base.AnyBackend)
    assert_type(ag.is_graph_available("cuda"), bool)
    solve("3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ag.backend  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]  # noqa: B018


class TestMine(ag.testing.BackendConformance):
    def work(self) -> ag.testing.Work:
        raise NotImplementedError


def check(work: ag.testing.Work) -> list[ag.testing.CheckResult]:
    return ag.testing.check_backend(work)
