"""Programs for `verify` with Triton's kernels: right ones, and planted faults."""

from __future__ import annotations

from types import SimpleNamespace

import torch
import triton
from triton import language as tl

FAULTS = {}
RIGHT = {}
BLOCK = 256


@triton.jit
def scale(x, out, factor, count, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(out + i, tl.load(x + i, i < count) * factor, i < count)


@triton.jit
def add_up(x, out, count, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.atomic_add(out + i % 4, tl.load(x + i, i < count, 0.0), i < count)


def x_of(device, count=1000):
    torch.manual_seed(0)
    return torch.randn(count, device=device)


def launch(kernel, *args, count):
    kernel[(triton.cdiv(count, BLOCK),)](*args, count, BLOCK)


def a_kernel_and_an_uninitialised_tail(device):
    def f(x):
        out = torch.empty(2 * x.numel(), device=device)
        launch(scale, x, out, 2.0, count=x.numel())
        return out

    return (f, x_of(device)), {}


def atomics_of_a_kernel(device):
    def f(x):
        out = torch.zeros(4, device=device)
        launch(add_up, x, out, count=x.numel())
        return out

    return (f, x_of(device, 100_000)), {}


def a_factor_is_a_number(device):
    counter = SimpleNamespace(step=1.0)

    def f(x):
        counter.step += 0.5
        out = torch.empty_like(x)
        launch(scale, x, out, counter.step, count=x.numel())
        return out

    return (f, x_of(device)), {}


def a_part_is_written_by_another_stream(device):
    def f(x):
        out, half = torch.empty_like(x), x.numel() // 2
        launch(scale, x, out, 2.0, count=half)
        with torch.cuda.stream(torch.cuda.default_stream()):
            launch(scale, x[half:], out[half:], 2.0, count=half)
        if not torch.cuda.is_current_stream_capturing():
            torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
        return out

    return (f, x_of(device)), {}


RIGHT |= {each.__name__: each for each in (a_kernel_and_an_uninitialised_tail, atomics_of_a_kernel)}
FAULTS |= {
    "a_factor_is_a_number": (a_factor_is_a_number, "frozen"),
    "a_part_is_written_by_another_stream": (a_part_is_written_by_another_stream, "not_written"),
}
