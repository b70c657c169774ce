"""Captures with breaks of torch's work on a GPU, against eager runs."""

import random
import statistics
import time

import pytest

import lanes

pytestmark = lanes.require("gpu", "torch")
torch = pytest.importorskip("torch")

import accelerator_graph as ag
from breaks.torch_programs import OPERATORS, PROGRAMS, check, check_operator


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)
    with torch.no_grad():
        ones = torch.ones(2, 2, device="cuda")
        torch.mm(ones, ones)  # has cuBLAS begin, which no capture bears
        yield
    torch.cuda.synchronize()


def attention(h, lengths):
    """Reads its lengths on the host."""
    return torch.stack([h[i, : n * 8].sum().expand(h.shape[1]) for i, n in enumerate(lengths.tolist())])


class Step:
    """A step that changes its own input."""

    def __init__(self, call):
        generator = torch.Generator("cuda").manual_seed(1)
        self.weights = [torch.randn(64, 64, device="cuda", generator=generator) / 8 for _ in range(2)]
        self.x = torch.randn(8, 64, device="cuda", generator=generator)
        self.lengths = torch.arange(1, 9, device="cuda")
        self.out = torch.zeros(8, 64, device="cuda")
        self.call = call

    def __call__(self):
        hidden = torch.relu(self.x @ self.weights[0])
        y = (self.call(hidden, self.lengths) @ self.weights[1]).tanh()
        self.out.copy_(y)
        self.x.add_(0.01 * y)


def test_replays_are_eager_steps():
    eager, broken, graph = Step(attention), Step(ag.eager(attention)), ag.Graph()
    with ag.graph(graph, breaks=True):
        broken()
    eager()
    for i in range(5):
        assert torch.equal(broken.out, eager.out)
        for each in (eager, broken):
            each.lengths.fill_(i + 1)
        graph.replay()
        eager()
        junk = [torch.full((1 << 20,), float("nan"), device="cuda") for _ in range(8)]
        del junk


def test_graphs_of_one_pool_are_replayed_in_between():
    steps = [Step(ag.eager(attention)) for _ in range(3)]
    graphs = [ag.Graph(pool=pool) for pool in [ag.graph_pool_handle()] * 3]
    for step, graph in zip(steps, graphs, strict=True):
        with ag.graph(graph, breaks=True):
            step()
    wanted = Step(attention)
    for _ in range(3):
        wanted()
        for graph, step in zip(graphs, steps, strict=True):
            assert torch.equal(step.out, wanted.out)
            graph.replay()


def test_random_numbers_are_those_of_eager_runs():
    dropout = torch.nn.functional.dropout
    x = torch.ones(256, device="cuda")

    def work(call):
        return dropout(call(dropout(x, 0.5)), 0.5)

    torch.manual_seed(5)
    wanted = [work(lambda x: dropout(x, 0.5)) for _ in range(3)]
    torch.manual_seed(5)
    graph = ag.Graph()
    with ag.graph(graph, breaks=True):
        found = work(ag.eager(lambda x: dropout(x, 0.5)))
    for each in wanted:
        assert torch.equal(found, each)
        graph.replay()


def test_random_numbers_in_the_body_of_a_loop_are_those_of_eager_runs():
    """Dropout draws anew in each run of the body: the host tests the flag, and torch runs the segments."""
    x, y = torch.ones(256, device="cuda"), torch.zeros(256, device="cuda")
    n = torch.zeros(1, dtype=torch.int32, device="cuda")

    def body():
        y.mul_(2).add_(torch.nn.functional.dropout(x, 0.5))
        n.sub_(1)

    def run(work, times):
        torch.manual_seed(5)
        y.zero_()
        n.fill_(times)
        work()
        return y.clone()

    wanted = {times: run(lambda: ag.while_(n, body), times) for times in (3, 0, 1, 4)}
    graph = ag.Graph()
    with ag.graph(graph):
        loop = ag.while_(n, body, native=False)
    for times, each in wanted.items():
        assert torch.equal(run(graph.replay, times), each)
        assert loop.count == times
    assert len({tuple(each.tolist()) for each in wanted.values()}) == 4


@pytest.mark.promise("breaks-keep-modes")
def test_modes_of_the_capture_hold_in_replays():
    seen = []

    @ag.eager
    def call(x):
        seen.append(
            (torch.is_inference_mode_enabled(), torch.is_grad_enabled(), torch.is_autocast_enabled("cuda"))
        )
        return x @ x

    x, graph = torch.randn(8, 8, device="cuda"), ag.Graph()
    with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16), ag.graph(graph, breaks=True):
        y = call(x * 2) + 1
    with torch.enable_grad():
        graph.replay()
    assert seen == [(True, False, True)] * 2
    assert y.dtype == torch.bfloat16
    assert torch.equal(y, (x * 2).bfloat16() @ (x * 2).bfloat16() + 1)


def test_gradients_through_a_break_are_refused():
    weight, graph = torch.nn.Parameter(torch.randn(8, device="cuda")), ag.Graph()
    call = ag.eager(lambda x: x * 2)
    with (
        torch.enable_grad(),
        pytest.raises(ag.UnsupportedError, match="takes a tensor that requires grad"),
        ag.graph(graph, breaks=True),
    ):
        call(weight * 2)
    assert graph.state == "empty"
    with torch.enable_grad(), ag.graph(graph, breaks=True):
        loss = (weight * weight).sum()
        loss.backward()
        ag.eager(lambda loss: loss.item())  # marked, and not called
        call(loss.detach())
    graph.replay()


@pytest.mark.promise("breaks-refuse-used-live-objects")
def test_a_tensor_that_captured_work_copies_can_not_be_live():
    x, y, graph = torch.ones(64, device="cuda"), torch.ones(64, device="cuda"), ag.Graph()
    call = ag.eager(lambda t: None)

    def capture(given):
        with ag.graph(graph, breaks=True):
            y.copy_(x)
            call(ag.live("given", given))
            y.add_(1)

    for given in (x, x[8:], [x.view(8, 8)], y[63:]):
        with pytest.raises(
            ag.CaptureError, match=r"'given' \(node 0 there, .*, has its address, in segment 1"
        ):
            capture(given)
        assert graph.state == "empty"
    capture(torch.ones(64, device="cuda"))
    graph.replay(live={"given": x})


@pytest.mark.parametrize("behind", ["in a call", "in a segment"])
def test_a_wait_for_an_event_of_torch_behind_a_break_is_not_dropped(behind):
    """It is refused, or it holds: the side stream copies what the segment has written."""
    side, event, graph = torch.cuda.Stream(), torch.cuda.Event(), ag.Graph()
    x, out, big = (torch.randn(2048, 2048, device="cuda") / 45 for _ in range(3))

    def copy(y):
        side.wait_event(event)
        with torch.cuda.stream(side):
            out.copy_(y)

    def body():
        with ag.graph(graph, breaks=True):
            y = x
            for _ in range(30):
                y = big @ y
            event.record()
            if behind == "in a call":
                ag.eager(streams=[side])(copy)(y)
            else:
                ag.graph_break()
                copy(y)
                torch.cuda.current_stream().wait_stream(side)
        return y

    try:
        y = body()
    except RuntimeError as error:
        print(f"{behind}: {type(error).__name__}: {error} {getattr(error, '__notes__', '')}")
        assert graph.state == "empty"
        return
    for value in (2.0, 3.0):
        x.fill_(value)
        torch.cuda.synchronize()
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(out, y)


def test_a_profile_and_the_memory_have_segments_and_calls():
    step, graph = Step(ag.eager(attention)), ag.Graph()
    with ag.graph(graph, breaks=True):
        step()
    profile = graph.profile(5, state=[step.x])
    print(profile)
    assert [each.is_call for each in profile.parts] == [False, True, False]
    assert min(each.time for each in profile.parts) > 0
    assert profile.parts[1].host > 1
    memory = graph.memory()
    print(memory)
    assert memory.results.nbytes == step.out.nbytes


class Program:
    """Random work on a few tensors, with breaks in random places and temporary tensors across them."""

    def __init__(self, seed):
        draw = random.Random(seed)
        generator = torch.Generator("cuda").manual_seed(seed)
        self.tensors = torch.randint(0, 97, (4, 256, 64), device="cuda", generator=generator).double()
        kinds = ["work", "break", "returned", "written", "across", "read"]
        self.steps = [
            (draw.choice(kinds), *(draw.randrange(4) for _ in range(3)), draw.randrange(2, 9))
            for _ in range(draw.randrange(4, 12))
        ]

    def run(self):
        t, kept = self.tensors, None
        for kind, x, y, z, number in self.steps:
            new = (t[x] * number + t[y]) % 97
            if kind == "break":
                ag.graph_break()
            elif kind == "returned":
                new = ag.eager(lambda new, number: (new * number + 1) % 89)(new, number)
            elif kind == "written":
                out = torch.empty_like(new)
                ag.eager(lambda new, out: torch.remainder(new * 5, 83, out=out) is None)(new, out)
                new = out
            elif kind == "across":  # lives over the breaks that follow
                kept, new = new, new if kept is None else new + kept
            elif kind == "read":
                new = ag.eager(lambda new: new % (int(new.max().item()) + 1))(new)
            t[z].copy_(new)
        if kept is not None:
            t[0].add_(kept).remainder_(97)


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_with_free_memory_of_the_pool_filled(seed):
    model, program, pool = Program(seed), Program(seed), ag.graph_pool_handle()
    graph, filler = ag.Graph(pool=pool), ag.Graph(pool=pool)
    with ag.graph(graph, breaks=True):
        program.run()
    with ag.graph(filler):
        junk = [torch.full((n << 10,), float("nan"), device="cuda") for n in (1, 16, 32, 128, 128, 512) * 4]
        del junk
    for _ in range(4):
        model.run()
        torch.cuda.synchronize()
        assert torch.equal(program.tensors, model.tensors)
        filler.replay()
        graph.replay()


def test_a_break_costs_little():
    call, x, graph = ag.eager(lambda x: None), torch.zeros(64, device="cuda"), ag.Graph()
    with ag.graph(graph, breaks=True):
        for _ in range(62):
            x.add_(1)
            call(x)
        x.add_(1)
    segments, pool = [], torch.cuda.graph_pool_handle()
    for _ in range(63):
        segments.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(segments[-1], pool=pool):
            x.add_(1)

    def bare():
        for each in segments:
            each.replay()

    def time_of(run):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(20):
            run()
        taken = time.perf_counter() - start
        torch.cuda.synchronize()
        return taken / 20

    rounds = [(time_of(bare), time_of(graph.replay)) for _ in range(15)]
    more = statistics.median(ours - theirs for theirs, ours in rounds) / 62
    print(f"a break costs {more * 1e6:.2f} us more than torch's replays of the segments")
    assert more < 10e-6


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_can_not_be_captured_is_left_out(program):
    torch.set_grad_enabled(True)
    check(program, "cuda", torch.cuda.synchronize, read=torch.Tensor.tolist)


def test_mixtral_is_captured_with_breaks():
    pytest.importorskip("transformers")
    from breaks.mixtral import mixtral

    logits = mixtral("cuda")
    f = ag.graphed(logits, warmup=1, on_capture_error="break")

    def compare():
        for _ in range(6):
            tokens = torch.randint(0, 128, (2, 16), device="cuda")
            assert torch.equal(f(tokens), logits(tokens))

    with pytest.warns(RuntimeWarning, match=r"is captured with breaks[\s\S]*MixtralExperts\.forward"):
        compare()
    assert f.cache_info() == ag.CacheInfo(3, 3, 1, 0, 1, 16)


@pytest.mark.parametrize("observe", [(), ag.ownership()], ids=["", "observed"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_calls_of_an_operator_are_eager(operator, observe):
    check_operator(operator, "cuda", torch.cuda.synchronize, observe)
