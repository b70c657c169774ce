"""Tensors of torch at other places, as the captures and the proof of bound inputs need them."""

from itertools import pairwise

import pytest

import accelerator_graph as ag
import lanes
from accelerator_graph._arrays.arrays import ALIGNMENT, array_type_of, elsewhere
from accelerator_graph._arrays.placement import extent, same_bytes

pytestmark = [lanes.require("torch", "no_gpu"), pytest.mark.usefixtures("torch_stream")]

import torch


def tensors():
    return [
        torch.randn(3, 4),
        torch.randn(5, 6).t(),
        torch.arange(7),
        torch.ones(()),
        torch.randn(4, 4).to(torch.bfloat16)[1:],
        torch.ones(3, dtype=torch.bool),
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    ]


@pytest.mark.parametrize("inference", [False, True])
def test_tensors_elsewhere_are_alike_and_lie_in_the_opposite_order(inference):
    with torch.inference_mode(inference):
        found = tensors()
        kinds = [array_type_of(x) for x in found]
        assert all(same_bytes(x, kind.static_copy(x)) for x, kind in zip(found, kinds, strict=True))
        others = elsewhere(found, kinds)
        for x, other, kind in zip(found, others, kinds, strict=True):
            assert type(other) is type(x)
            assert (other.shape, other.stride(), other.dtype) == (x.shape, x.stride(), x.dtype)
            assert (kind.address(other) - kind.address(x)) % ALIGNMENT == 0
            kind.assign(other, x)
            assert torch.equal(other, x)
        order = sorted(range(len(found)), key=lambda i: found[i].data_ptr())
        assert sorted(range(len(found)), key=lambda i: -others[i].data_ptr()) == order
        spans = sorted((x.data_ptr(), x.data_ptr() + x.nbytes) for x in others)
        assert all(end + ALIGNMENT <= start for (_, end), (start, _) in pairwise(spans))


def test_where_tensors_end_whatever_their_elements_are():
    for dtype in (torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.bool):
        x = torch.zeros(6, 4).to(dtype)
        size = x.element_size()
        assert extent(x) == (x.data_ptr(), x.data_ptr() + 24 * size)
        assert extent(x[1:, 1]) == (x.data_ptr() + 5 * size, x.data_ptr() + 22 * size)
    assert extent(torch.nn.Parameter(torch.ones(2)))


def test_a_tensor_counts_writes_that_torch_does_not_see():
    x, kind = torch.ones(3), array_type_of(torch.ones(3))
    before = x._version
    kind.count_write(x)
    assert x._version == before + 1
    with torch.inference_mode():
        kind.count_write(torch.ones(3))


@pytest.mark.filterwarnings("ignore:.*copies its inputs:RuntimeWarning")
def test_torch_on_the_cpu_copies(torch_stream):
    f = ag.graphed(lambda x: x * 2, warmup=0, inputs="bind")
    for i in range(3):
        y = f(torch.arange(4.0) + i)
        torch_stream.synchronize()
        assert y.tolist() == [2 * i, 2 * i + 2, 2 * i + 4, 2 * i + 6]
    ((inputs, why),) = [(each.inputs, each.why) for each in f.explain()]
    assert inputs == "copy"
    assert "is a function of the host" in why
