"""What diagnosis adds to a capture: to each of the interpreter's events, and to a whole training step."""

import warnings
from contextlib import contextmanager
from functools import partial
from time import perf_counter_ns

from _peers import torch_on_gpu
from _scene import scene_of

import accelerator_graph as ag
from accelerator_graph.diagnosis._tracing import observation

OFF, IN_C, IN_PYTHON = "not diagnosed", "diagnosed", "diagnosed, without the C extension"
TIMES = 5  # what a capture may cost, in captures that are not diagnosed


def measure(plan):
    warnings.simplefilter("ignore", ag.EmptyGraphWarning)
    stream = scene_of(plan.backend).stream()
    for case, body in (("lines", lines), ("calls of Python", calls), ("calls into C", calls_into_c)):
        lives = {
            OFF: partial(captured, stream, body, False),
            IN_C: partial(captured, stream, body, True),
            IN_PYTHON: partial(without_extension, captured, stream, body, True),
        }
        plan.compare_lives(case, 1000, lives, OFF, seconds=1.5, of="times")
    _torch(plan)


def lines():
    a = b = 0
    for _ in range(250):
        a = b
        b = a
        a = b


def calls():
    for _ in range(1000):
        nothing()


def nothing():
    pass


def calls_into_c():
    call = abs
    for _ in range(1000):
        call(-1)


def captured(stream, body, diagnose):
    """Run a body inside a capture, twice: the first time, the interpreter prepares its code."""
    graph = ag.Graph(stream=stream, observe=ag.diagnose() if diagnose else ())
    with graph:
        body()
        begin = perf_counter_ns()
        body()
        taken = perf_counter_ns() - begin
    graph.reset()
    return {"": taken}


@contextmanager
def no_extension():
    fast, observation.fast = observation.fast, None
    try:
        yield
    finally:
        observation.fast = fast


def without_extension(run, *args):
    with no_extension():
        return run(*args)


def _torch(plan):
    torch = torch_on_gpu(plan)
    if torch is None:
        return
    model = torch.nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, device="cuda")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, capturable=True)
    x = torch.randn(4, 16, 128, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(x).square().mean().backward()
        optimizer.step()

    def captured_step(diagnose):
        graph = ag.Graph(stream=side, observe=ag.diagnose() if diagnose else ())
        with graph:
            begin = perf_counter_ns()
            step()
            taken = perf_counter_ns() - begin
        graph.reset()
        return {"": taken}

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    lives = {
        OFF: partial(captured_step, False),
        IN_C: partial(captured_step, True),
        IN_PYTHON: partial(without_extension, captured_step, True),
    }
    case = "a training step of a transformer layer"
    times = plan.compare_lives(case, None, lives, OFF, seconds=4)
    ratios = [a[""] / b[""] for a, b in zip(times[IN_C], times[OFF], strict=True)]
    plan.goal(f"{case}, diagnosed, to the same capture that is not", ratios, TIMES)
