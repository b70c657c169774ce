"""Captures with breaks beside Meta's breakable-cuda-graphs, on a GPU, for the record.

python tests/gpu/breaks_beside_peers.py faults    faults that were reported of such captures, in both
python tests/gpu/breaks_beside_peers.py costs     replays, memory and set-up, beside those of others

The package is left out where it is not installed. The status is 1 if ours is wrong in one of the faults.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

import accelerator_graph as ag

N = 1024
SIZES, BREAKS, WIDTH = tuple(range(8, 0, -1)), 62, 2048
REFUSED = (ag.AcceleratorGraphError, RuntimeError, AssertionError, TypeError, ValueError)


class Ours:
    """`accelerator_graph.graph(g, breaks=True)`."""

    def __init__(self, pool: Any = None) -> None:
        self.graph = ag.Graph(pool=pool)
        self.replay = self.graph.replay

    handle = staticmethod(ag.graph_pool_handle)
    eager = staticmethod(ag.eager)

    def capture(self) -> contextlib.AbstractContextManager[object]:
        return ag.graph(self.graph, breaks=True)

    @staticmethod
    def leaves_work_on(stream: torch.cuda.Stream) -> Callable[[Any], Any]:
        return ag.eager(streams=[stream])


class Meta:
    """`breakable_cuda_graphs.breakable_graph(g)`."""

    def __init__(self, pool: Any = None) -> None:
        import breakable_cuda_graphs as package

        self.package = package
        self.graph = package.BreakableCUDAGraph(pool)
        self.replay = self.graph.replay
        self.eager = package.no_graph

    handle = staticmethod(torch.cuda.graph_pool_handle)

    def capture(self) -> contextlib.AbstractContextManager[object]:
        return self.package.breakable_graph(self.graph)

    def leaves_work_on(self, stream: torch.cuda.Stream) -> Callable[[Any], Any]:
        return self.eager  # it has no way to say so


PEERS: dict[str, type[Ours | Meta]] = {"ours": Ours}
if importlib.util.find_spec("breakable_cuda_graphs"):
    PEERS["Meta's"] = Meta


# ---- the faults ----------------------------------------------------------------------------------


class WrongError(Exception):
    """What went wrong without an error."""


def check(right: bool, what: str) -> None:
    torch.cuda.synchronize()
    if not right:
        raise WrongError(what)


def ones(count: int = N) -> Tensor:
    return torch.ones(count, device="cuda")


def what_it_reads_in_the_capture(peer: type[Any]) -> None:
    one, x, seen = peer(), ones(), []
    with one.capture():
        one.eager(lambda t: seen.append(t.sum().item()))(x * 4)
    check(seen == [4.0 * N], f"it read {seen}, not {4.0 * N}")


def an_input_that_the_program_drops(peer: type[Any]) -> None:
    one, x, seen = peer(), torch.full((N,), 5.0, device="cuda"), []
    keep = ones()
    with one.capture():
        keep.add_(1)
        one.eager(lambda t: seen.append(t.sum().item()))(x)
    del x
    others = [torch.full((N,), -1.0, device="cuda") for _ in range(64)]
    one.replay()
    check(seen[-1] == 5.0 * N, f"it read {seen[-1]} of another array, not {5.0 * N}")
    del others


def rows_of_the_pool_that_it_does_not_write(peer: type[Any]) -> None:
    """A later capture of the pool gets the block that an eager call fills in part (sglang#37606)."""
    pool = peer.handle()

    def captured(rows: int, value: float) -> tuple[Any, Tensor]:
        one, out = peer(pool), torch.zeros(N, device="cuda")

        def fill(t: Tensor) -> None:
            t[:rows].fill_(value)

        with one.capture():
            buffer = torch.empty(N, device="cuda")
            one.eager(fill)(buffer)
            out.copy_(buffer)
        return one, out.view(torch.int32)

    half, out = captured(N // 2, 2.0)
    half.replay()
    torch.cuda.synchronize()
    first = out.clone()
    full, _ = captured(N, 7.0)
    for _ in range(2):
        full.replay()
        half.replay()
        check(torch.equal(out, first), "they held the bytes of another graph")


def what_it_returns(peer: type[Any]) -> None:
    one, x, out = peer(), ones(), torch.zeros(N, device="cuda")
    with one.capture():
        out.copy_(one.eager(lambda t: t + float(t[0]))(x * 2) * 10)
    for value in (1.0, 2.0, 3.0):
        junk = [torch.full((N,), float("nan"), device="cuda") for _ in range(64)]
        x.fill_(value)
        one.replay()
        del junk
        check(torch.equal(out, 40 * value * ones()), "the next segment read something else")


def a_number_that_changes(peer: type[Any]) -> None:
    one, x, out = peer(), ones(), torch.zeros(N, device="cuda")
    with one.capture():
        scale = one.eager(lambda t: float(t[0]))(x)
        out.copy_(x * scale)
    x.fill_(3)
    one.replay()
    check(torch.equal(out, 9 * ones()), "the segment multiplied by the number of the capture")


def results_of_another_shape(peer: type[Any]) -> None:
    one, x, out = peer(), ones(), torch.zeros(N, device="cuda")
    with one.capture():
        out.copy_(one.eager(lambda t: t[t > 0])(x).sum().expand(N))
    x[0] = -1
    one.replay()
    check(torch.equal(out, (N - 1) * ones()), "the segment summed up rows that are not there")


def work_that_it_leaves_on_a_stream(peer: type[Any]) -> None:
    one, side = peer(), torch.cuda.Stream()
    big, out, x = torch.randn(4096, 4096, device="cuda"), torch.zeros(N, device="cuda"), ones()

    @one.leaves_work_on(side)
    def call(t: Tensor, buffer: Tensor) -> None:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(20):
                big @ big
            buffer.copy_(t)

    buffer = torch.zeros(N, device="cuda")
    with one.capture():
        call(x, buffer)
        out.copy_(buffer)
    torch.cuda.synchronize()
    for value in (2.0, 3.0):
        x.fill_(value)
        torch.cuda.synchronize()
        one.replay()
        check(torch.equal(out, value * ones()), "the next segment did not wait")


def modes_of_the_capture(peer: type[Any]) -> None:
    one, x, seen = peer(), ones(), []
    with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16), one.capture():
        one.eager(
            lambda t: seen.append((torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cuda")))
        )(x * 2)
    one.replay()
    check(seen[-1] == (True, True), f"inference mode and autocast were {seen[-1]} in the replay")


def a_body_that_raises(peer: type[Any]) -> None:
    one, x, out = peer(), ones(), torch.zeros(N, device="cuda")
    with contextlib.suppress(KeyError), one.capture():
        x.add_(1)
        one.eager(lambda t: None)(x)
        raise KeyError
    x.fill_(1)
    with one.capture():
        out.copy_(x * 2)
    x.fill_(1)
    one.replay()
    check(torch.equal(out, 2 * ones()) and torch.equal(x, ones()), "a segment of the capture that failed ran")


def a_call_that_raises_in_a_replay(peer: type[Any]) -> None:
    one, x, out, calls = peer(), ones(), torch.zeros(N, device="cuda"), []

    def call(t: Tensor) -> None:
        calls.append(1)
        if len(calls) == 6:
            raise KeyError

    with one.capture():
        y = x * 2
        one.eager(call)(y)
        out.copy_(y)
    for i in range(1, 9):
        x.fill_(i)
        with contextlib.suppress(KeyError):
            one.replay()
    check(torch.equal(out, 16 * ones()), "the replays after it are wrong")


def a_fork_at_a_break(peer: type[Any]) -> None:
    one, x, side = peer(), ones(), torch.cuda.Stream()
    try:
        with one.capture():
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                y = x * 2
            one.eager(lambda t: None)(x)
            torch.cuda.current_stream().wait_stream(side)
            y.add_(1)
    except REFUSED as error:
        again, out = peer(), torch.zeros(N, device="cuda")
        with again.capture():
            out.copy_(x * 3)
        again.replay()
        check(torch.equal(out, 3 * ones()), "no capture works any more after it")
        raise error from None
    one.replay()
    check(torch.equal(y, 3 * ones()), "the work of the fork is missing")


def a_replay_inside_of_a_replay(peer: type[Any]) -> None:
    one, x, on = peer(), ones(), []

    def call() -> None:
        if on:
            one.replay()

    with one.capture():
        x.add_(1)
        one.eager(call)()
    on.append(1)
    try:
        one.replay()
    except RecursionError:
        raise WrongError("it recursed until Python ended it") from None
    raise WrongError("nothing refused it")


def gradients_through_it(peer: type[Any]) -> None:
    one, w = peer(), torch.nn.Parameter(ones())

    def call(t: Tensor, to: Tensor) -> None:
        to.copy_(t.exp())

    with one.capture():
        to = torch.zeros(N, device="cuda")
        one.eager(call)(w * 3, to)
        (found,) = torch.autograd.grad(to.sum(), w)
    with torch.no_grad():
        w.fill_(0.5)
    one.replay()
    wanted = 3 * torch.exp(3 * w.detach())
    check(torch.allclose(found, wanted), "the gradient is that of the capture")


def random_numbers(peer: type[Any]) -> None:
    drop, x = torch.nn.functional.dropout, ones(256)
    one, out = peer(), torch.zeros(256, device="cuda")
    buffer = torch.zeros(256, device="cuda")

    def work(call: Callable[[Tensor, Tensor], None]) -> None:
        y = drop(x, 0.5)
        call(y, buffer)
        out.copy_(drop(buffer, 0.5))

    def call(t: Tensor, b: Tensor) -> None:
        b.copy_(drop(t, 0.5))

    torch.manual_seed(5)
    wanted = []
    for _ in range(3):
        work(call)
        wanted.append(out.clone())
    torch.manual_seed(5)
    with one.capture():
        work(one.eager(call))
    found = []
    for _ in range(3):
        torch.cuda.synchronize()
        found.append(out.clone())
        one.replay()
    firsts = all(torch.equal(a, b) for a, b in zip(wanted, found, strict=True))
    check(firsts or torch.equal(found[1], wanted[0]), "eager and replayed draw other numbers than eager runs")


def a_break_inside_a_break(peer: type[Any]) -> None:
    one, x, out = peer(), ones(), torch.zeros(N, device="cuda")
    inner = one.eager(lambda t: out.copy_(t).zero_() is None)

    def outer(t: Tensor) -> None:
        inner(t)
        out.copy_(t)

    with one.capture():
        one.eager(outer)(x * 2)
    x.fill_(4)
    one.replay()
    check(torch.equal(out, 8 * ones()), "it gave something else")


FAULTS = {
    "what the call reads in the capture": what_it_reads_in_the_capture,
    "an input that the program drops": an_input_that_the_program_drops,
    "rows of the pool that the call does not write": rows_of_the_pool_that_it_does_not_write,
    "arrays that the call returns": what_it_returns,
    "a number that the call returns changes": a_number_that_changes,
    "a result of another shape": results_of_another_shape,
    "work that the call leaves on a stream": work_that_it_leaves_on_a_stream,
    "modes of the capture at replay": modes_of_the_capture,
    "the body of the capture raises": a_body_that_raises,
    "the call raises in a replay": a_call_that_raises_in_a_replay,
    "a fork that is not joined at the break": a_fork_at_a_break,
    "a replay inside a replay": a_replay_inside_of_a_replay,
    "gradients through the call": gradients_through_it,
    "random numbers of segments and calls": random_numbers,
    "a break inside a break": a_break_inside_a_break,
}


def verdict(fault: str, peer: str) -> str:
    """Return what became of a fault, in this process."""
    try:
        FAULTS[fault](PEERS[peer])
        torch.cuda.synchronize()
    except WrongError as error:
        return f"wrong: {error}"
    except REFUSED as error:
        said = str(error).partition("\n")[0]
        return f"refused: {type(error).__name__}: {said[:240]}"
    return "right"


def verdicts() -> dict[tuple[str, str], str]:
    """Return the verdicts on all faults, each from a process of its own."""

    def verdict_of(pair: tuple[str, str]) -> str:
        done = subprocess.run(
            [sys.executable, __file__, "--one", *pair],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        found = [each for each in done.stdout.splitlines() if each.startswith("VERDICT ")]
        return (
            found[-1][8:]
            if found
            else f"wrong: the process ended with {done.returncode}: {done.stderr[-200:]}"
        )

    pairs = [(fault, peer) for fault in FAULTS for peer in PEERS]
    with ThreadPoolExecutor(4) as pool:
        return dict(zip(pairs, pool.map(verdict_of, pairs), strict=True))


def faults() -> int:
    found = verdicts()
    for fault in FAULTS:
        print(fault)
        for peer in PEERS:
            print(f"    {peer:<7} {found[fault, peer]}")
    wrong = {peer: sum(found[fault, peer].startswith("wrong") for fault in FAULTS) for peer in PEERS}
    print(f"\nwrong without an error, of {len(FAULTS)}: {wrong}")
    return 1 if wrong["ours"] else 0


# ---- costs ---------------------------------------------------------------------------------------


def microseconds(run: Callable[[], object], count: int = 20) -> float:
    """Return the time that the host needs for a call, with the device idle before."""
    torch.cuda.synchronize()
    start = perf_counter()
    for _ in range(count):
        run()
    taken = perf_counter() - start
    torch.cuda.synchronize()
    return taken / count * 1e6


def whole(run: Callable[[], object], count: int = 10) -> float:
    """Return the time of a call and all of its work, in microseconds."""
    torch.cuda.synchronize()
    start = perf_counter()
    for _ in range(count):
        run()
    torch.cuda.synchronize()
    return (perf_counter() - start) / count * 1e6


def interleaved(time_of: Callable[[Any], float], runs: dict[str, Any], rounds: int = 25) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            times[name].append(time_of(run))
    return {name: median(each) for name, each in times.items()}


def segments_of(peer: type[Any]) -> Any:
    """Return a capture of 63 segments with 62 breaks between them that do nothing."""
    one, x = peer(), torch.zeros(64, device="cuda")
    nothing = one.eager(lambda t: None)
    with one.capture():
        for _ in range(BREAKS):
            x.add_(1)
            nothing(x)
        x.add_(1)
    return one


def serving_set(peer: type[Any], *, shared: bool) -> tuple[list[Any], float]:
    """Capture eight sizes with 62 breaks each into one pool; return them, and the bytes that they took.

    The arrays of each call are new ones, or two that all sizes share.
    """
    weights = torch.randn(WIDTH, WIDTH, device="cuda") / WIDTH**0.5
    x, out, hidden, result = (torch.randn(SIZES[0] * 64, WIDTH, device="cuda") for _ in range(4))
    torch.mm(x, weights)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before, pool, made = torch.cuda.mem_get_info()[0], peer.handle(), []

    def halved(h: Tensor, to: Tensor) -> None:
        torch.mul(h, 0.5, out=to)

    for size in SIZES:
        one = peer(pool)
        call = one.eager(halved)
        rows = size * 64
        with one.capture():
            h = x[:rows]
            for _ in range(BREAKS):
                h = torch.mm(h, weights, out=hidden[:rows] if shared else None)
                to = result[:rows] if shared else torch.empty_like(h)
                call(h, to)
                h = to
            out[:rows].copy_(h)
        del h, to
        made.append(one)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return made, before - torch.cuda.mem_get_info()[0]


def beside_a_full_graph() -> Iterator[str]:
    """Compare a model with 62 breaks with its full graph and the calls alone."""
    weights, x = torch.randn(512, 512, device="cuda") / 23, torch.randn(64, 512, device="cuda")
    out, plain = torch.zeros_like(x), torch.cuda.CUDAGraph()
    buffers = [torch.empty_like(x) for _ in range(BREAKS)]

    def call(h: Tensor, to: Tensor) -> None:
        to.copy_(h)

    marked = ag.eager(call)

    def model(step: Callable[[Tensor, Tensor], None] | None) -> None:
        h = x
        for to in buffers:
            h = torch.relu(h @ weights)
            if step is not None:
                step(h, to)
                h = to
        out.copy_(h)

    model(call)
    torch.cuda.synchronize()
    with torch.cuda.graph(plain):
        model(None)
    broken = ag.Graph()
    with ag.graph(broken, breaks=True):
        model(marked)

    def calls() -> None:
        for to in buffers:
            call(x, to)

    found = interleaved(whole, {"full": plain.replay, "calls": calls, "breaks": broken.replay})
    most = found["full"] + found["calls"] + 2 * BREAKS
    yield (
        f"a model with {BREAKS} breaks, with all of its work: {found['breaks']:.0f} us; its full graph "
        f"without the calls {found['full']:.0f}, the calls {found['calls']:.0f}; wanted at most {most:.0f}"
    )


def set_up() -> Iterator[str]:
    """Compare the time until a function with 12 breaks is replayed with that of torch.compile's pieces."""
    weights, x = torch.randn(256, 256, device="cuda") / 16, torch.randn(16, 256, device="cuda")

    def call(h: Tensor) -> Tensor:
        return h * float(h[0, 0].item() * 0 + 1)

    def function(h: Tensor, step: Callable[[Tensor], Tensor]) -> Tensor:
        for _ in range(12):
            h = step(torch.relu(h @ weights))
        return h

    def ours() -> Callable[[], object]:
        graph, step = ag.Graph(), ag.eager(call)
        function(x, call)
        with ag.graph(graph, breaks=True):
            function(x, step)
        return graph.replay

    def compiled() -> Callable[[], object]:
        step = torch._dynamo.disable(call)
        found = torch.compile(lambda: function(x, step), mode="reduce-overhead")
        for _ in range(3):
            torch.compiler.cudagraph_mark_step_begin()
            found()
        return found

    runs = {}
    for name, make in (("a capture with breaks", ours), ("torch.compile's pieces", compiled)):
        start = perf_counter()
        try:
            runs[name] = make()
        except Exception as error:
            yield f"{name}: {type(error).__name__}: {str(error).splitlines()[0]}"
            continue
        torch.cuda.synchronize()
        yield f"set-up of {name}, 12 breaks: {(perf_counter() - start) * 1e3:.1f} ms"
    found = interleaved(whole, runs)
    yield "a run of it: " + ", ".join(f"{name} {each:.0f} us" for name, each in found.items())


def costs() -> int:
    with torch.no_grad():
        captures = {name: segments_of(peer) for name, peer in PEERS.items()}
        found = interleaved(microseconds, {name: each.replay for name, each in captures.items()})
        print(
            f"replay of {BREAKS} breaks: "
            + ", ".join(f"{name} {each:.1f} us" for name, each in found.items())
        )
        for shared, name in itertools.product((False, True), PEERS):
            with ag.measure_memory():
                made, taken = serving_set(PEERS[name], shared=shared)
            arrays = "two arrays that all share" if shared else "new arrays for each call"
            print(f"{len(SIZES)} sizes of {BREAKS} breaks, {arrays}, {name}: {taken / 2**20:.0f} MiB")
            if name == "ours":
                graphs = {f"rows {size * 64}": one.graph for size, one in zip(SIZES, made, strict=True)}
                print(ag.memory_report(graphs))
            made.clear()
        for line in (*beside_a_full_graph(), *set_up()):
            print(line)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=("faults", "costs"))
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        x = ones(16).reshape(4, 4)
        x @ x  # has cuBLAS begin
        with torch.set_grad_enabled("gradients" in options.one[0]):
            print("VERDICT", verdict(*options.one))
        return 0
    return faults() if options.what == "faults" else costs()


if __name__ == "__main__":
    sys.exit(main())
