"""Random functions of torch tensors on the CPU: `graphed` with each `inputs=` equals eager runs."""

import random
import threading

import pytest
import torch

import accelerator_graph as ag
from graphed.torch_programs import MODES, compare, random_program

from .framework import taking_part

pytestmark = pytest.mark.needs("torch")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(4))
def test_random_functions_are_equal_to_eager(seed, mode):
    draw = random.Random(f"{seed} {mode}")
    with taking_part(), ag.Stream(backend="cpu"):
        for _ in range(20):
            program = random_program(draw)
            compare(program, mode, draw.choice(["copy", "static"]), draw, "cpu")


@pytest.mark.filterwarnings("ignore:.*copies its inputs:RuntimeWarning")
@pytest.mark.parametrize("mode", ["copy", "node", "bind"])
def test_tensors_that_are_dropped_before_their_run_begins(mode):
    def function(x):
        out = torch.empty_like(x)
        ag.current_stream().launch(torch.mul, x, 2, out=out)
        return out

    with ag.Stream(backend="cpu") as stream:
        f = ag.graphed(function, warmup=0, inputs=mode)
        f(torch.ones(1000))
        gate = threading.Event()
        stream.launch(gate.wait)
        results = [f(torch.full((1000,), float(i))) for i in range(5)]
        others = [torch.full((1000,), -7.0) for _ in range(50)]
        gate.set()
        stream.synchronize()
    assert [each.unique().tolist() for each in results] == [[2.0 * i] for i in range(5)]
    del others


@pytest.mark.parametrize("warmup", [0, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.int16, torch.bool])
def test_what_enqueued_work_writes_to_a_tensor_reaches_the_caller(dtype, warmup):
    """In the capture it has not run, so the tensor does not count it."""

    def step(x, y, z):
        ag.current_stream().launch(torch.logical_not if dtype is torch.bool else torch.neg, x, out=x)
        ag.current_stream().launch(y[:1].add_, 1)

    f = ag.graphed(step, warmup=warmup)
    ours = [torch.tensor([0, 1, -2]).to(dtype), torch.zeros(2), torch.ones(3)]
    theirs = [each.clone() for each in ours]
    with ag.Stream(backend="cpu") as stream:
        for _ in range(6):
            f(*ours), step(*theirs)
            stream.synchronize()
            assert [str(each) for each in ours] == [str(each) for each in theirs]
    assert ours[2]._version == 0
