"""`Stream.launch`, `fill` and `copy`: what they take, what they refuse, and what a graph keeps."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest
from accelerator_graph_opencl._build import built_kernel
from accelerator_graph_opencl._devices import Devices

import accelerator_graph as ag
from conftest import Place

Way = Callable[[], AbstractContextManager[None]]


def in_a_graph(place: Place) -> Way:
    """Return a way to record work; it runs once at the end."""

    @contextmanager
    def way() -> Iterator[None]:
        with ag.Graph(stream=place.stream) as graph:
            yield
        graph.replay()
        place.stream.synchronize()

    return way


def at_once(place: Place) -> Way:
    """Return a way to run work at once."""

    @contextmanager
    def way() -> Iterator[None]:
        yield
        place.stream.synchronize()

    return way


@pytest.fixture(params=["at once", "in a graph", "in a graph without a command buffer"])
def way(request: pytest.FixtureRequest, place: Place, monkeypatch: pytest.MonkeyPatch) -> Way:
    if "without" in request.param:
        monkeypatch.setattr(Devices, "extension", lambda self, ordinal: None)
    return (at_once if request.param == "at once" else in_a_graph)(place)


def test_sizes_and_offsets(place: Place, way: Way) -> None:
    out = place.buffer(64)
    with way():
        place.launch("ids", out, global_size=(4, 2), local_size=(2, 1), global_offset=(2, 3))
    found = np.array(place.read(out)).reshape(8, 8)
    assert found[3:5, 2:6].tolist() == [[201, 202, 201, 202]] * 2
    assert found.sum() == 4 * (201 + 202)


def test_every_kind_of_argument(place: Place, way: Way) -> None:
    out, four = place.buffer(), cl.cltypes.make_float4(0, 0, 0, 20)
    arguments = (out, cl.LocalMemory(16), four, np.float64(300), None)
    with way():
        place.launch("sum", *arguments, global_size=4, local_size=4)
    assert place.read(out) == [1323]


def test_arrays_and_parts_of_buffers(place: Place, way: Way) -> None:
    array = pyopencl.array.zeros(place.queue, 8, np.uint32)
    part = place.buffer(256)[512:1024]
    place.queue.finish()
    with way():
        place.launch("add", array, 5)
        place.stream.copy(array[4:6], array[:2])
        place.stream.fill(array[7:], 1)
        place.stream.fill(part, 2)
        place.stream.copy(part, array, 4)
    assert array.get(place.queue).tolist() == [5, 0, 0, 0, 5, 0, 0, 0x01010101]
    assert place.read(part)[:2] == [5, 0x02020202]


def test_a_declared_group_is_used(place: Place, way: Way) -> None:
    out = place.buffer()
    with way():
        place.launch("fixed", out, global_size=4, local_size=4)
        for wrong in (None, 2):
            with pytest.raises(ValueError, match="compiled for"):
                place.launch("fixed", out, global_size=4, local_size=wrong)
    assert place.read(out) == [4]


def test_the_users_kernel_object_is_left_alone(place: Place, way: Way) -> None:
    mine, other, kernel = place.buffer(), place.buffer(), place.kernels["add"]
    kernel.set_args(other, np.uint32(100))
    with way():
        place.launch("add", mine, 3)
        kernel.set_args(other, np.uint32(7))
    cl.enqueue_nd_range_kernel(place.queue, kernel, (1,), None)
    assert (place.read(mine), place.read(other)) == ([3], [7])


@pytest.mark.parametrize(
    ("kind", "call", "match"),
    [
        (TypeError, lambda p, b: p.stream.launch(print), "pyopencl.Kernel"),
        (TypeError, lambda p, b: p.launch("add", b), "takes 2 arguments, not 1"),
        (TypeError, lambda p, b: p.launch("add", b, 1, 2), "takes 2 arguments, not 3"),
        (TypeError, lambda p, b: p.launch("add", b, 3.0), "NumPy scalar"),
        (TypeError, lambda p, b: p.launch("add", b, np.uint64(3)), "another size"),
        (TypeError, lambda p, b: p.launch("add", np.zeros(1, np.uint32), 3), "memory object"),
        (TypeError, lambda p, b: p.launch("add", b, 1, global_size=None), "needs a global_size"),
        (TypeError, lambda p, b: p.launch("add", b, 1, global_size="8"), "global_size"),
        (TypeError, lambda p, b: p.launch("add", b, 1, global_size=(8.0,)), "global_size"),
        (TypeError, lambda p, b: p.launch("add", b, 1, grid=(8,)), "grid"),
        (ValueError, lambda p, b: p.launch("add", b, 1, global_size=()), "dimensions"),
        (ValueError, lambda p, b: p.launch("add", b, 1, global_size=(1, 1, 1, 1)), "dimensions"),
        (ValueError, lambda p, b: p.launch("add", b, 1, global_size=0), "from 1, not 0"),
        (ValueError, lambda p, b: p.launch("add", b, 1, global_size=-1), "from 1, not -1"),
        (ValueError, lambda p, b: p.launch("add", b, 1, global_offset=-1), "from 0, not -1"),
        (ValueError, lambda p, b: p.launch("add", b, 1, local_size=(1, 1)), "as many dimensions"),
        (ValueError, lambda p, b: p.launch("add", b, 1, local_size=1 << 30), "group"),
        (ValueError, lambda p, b: p.launch("add", b, 1, global_size=6, local_size=4), "size"),
        (ValueError, lambda p, b: p.stream.copy(b, b, 4), "overlap"),
        (TypeError, lambda p, b: p.stream.fill(bytearray(4), 1), "host memory"),
        (TypeError, lambda p, b: p.stream.copy(np.zeros(4), b), "host memory"),
    ],
)
def test_wrong_arguments_are_refused_at_the_call(
    place: Place, way: Way, kind: type[Exception], call: Callable[[Place, Any], None], match: str
) -> None:
    buffer = place.buffer()
    with way():
        place.launch("add", buffer, 2)
        with pytest.raises(kind, match=match):
            call(place, buffer)
        place.launch("add", buffer, 2)
    assert place.read(buffer) == [4]


def test_memory_that_its_owner_releases_stays_in_the_graph(place: Place) -> None:
    """Other memory of the same size, made afterwards, must not be at the same place."""
    source, target = place.buffer(1 << 16), place.buffer(1 << 16)
    kernels = place.buffer()
    with ag.Graph(stream=place.stream) as graph:
        place.stream.fill(source, 1)
        place.stream.copy(target, source)
        place.launch("add", kernels, 3)
    shadow = [cl.Buffer.from_int_ptr(each.int_ptr) for each in (target, kernels, source)]
    for each, same in zip((target, kernels, source), shadow, strict=True):
        assert same.reference_count >= 3  # the owner's, the graph's, and this one
        each.release()
    others = [place.buffer(1 << 16) for _ in range(4)]
    graph.replay()
    assert place.read(shadow[0]) == [0x01010101] * (1 << 16)
    assert place.read(shadow[1]) == [3]
    assert not any(np.any(place.read(other)) for other in others)


def test_a_program_that_its_owner_drops_stays_in_the_graph(place: Place) -> None:
    out = place.buffer()
    kernel = built_kernel(place.context, "kernel void only(global uint *out) { out[0] += 5; }", "only")
    with ag.Graph(stream=place.stream) as graph:
        place.stream.launch(kernel, out, global_size=1)
    del kernel
    graph.replay()
    graph.replay()
    assert place.read(out) == [10]


def test_kernels_of_opencl_before_2_1(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without clCloneKernel another kernel is made from the program, which the user has to keep."""
    out, native = place.buffer(), place.stream.native
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cl.CompilerWarning)
        program = cl.Program(place.context, "kernel void only(global uint *out) { out[0] += 5; }").build()
    monkeypatch.setattr(native, "version", (1, 2))
    place.stream.launch(cl.Kernel(program, "only"), out, global_size=1)
    assert place.read(out) == [5]
