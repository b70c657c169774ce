"""When a function of OpenCL fails: the error has its name, nothing is left half done, and all works again."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
from accelerator_graph_opencl import _driver as driver
from accelerator_graph_opencl import _stream
from accelerator_graph_opencl._devices import Devices

import accelerator_graph as ag
from conftest import Place

OUT_OF_RESOURCES, OUT_OF_HOST_MEMORY = -5, -6


def test_codes_have_names_and_reasons() -> None:
    error = driver.failure("clFlush", OUT_OF_HOST_MEMORY)
    assert isinstance(error, ag.errors.OutOfMemoryError)
    assert str(error).startswith("backend 'opencl': clFlush returned CL_OUT_OF_HOST_MEMORY (-6): ")
    names = [driver.name_of(code) for code in (OUT_OF_RESOURCES, -1138, -99999)]
    assert names == ["CL_OUT_OF_RESOURCES", "CL_INVALID_COMMAND_BUFFER_KHR", "an unknown code"]


def test_errors_of_pyopencl_are_translated(place: Place) -> None:
    code = "clBuildProgram failed"
    with pytest.raises(ag.DriverError, match="CL_INVALID_VALUE") as caught, driver.translated(code):
        driver.cl.CommandQueue(place.context, properties=1 << 40)
    assert caught.value.call == code
    assert caught.value.__cause__ is not None


def failing(code: int) -> Callable[..., int]:
    return lambda *arguments: code


def raising(code: int) -> Callable[..., int]:
    def call(*arguments: Any) -> int:
        raise driver.cl.LogicError(driver.cl._cl._ErrorRecord("clFoo failed", code, "clFoo"))

    return call


def creating(code: int) -> Callable[..., int]:
    def create(*arguments: Any) -> int:
        arguments[-1]._obj.value = code
        return 0

    return create


ENQUEUEING = ("enqueue_kernel", "enqueue_memset", "enqueue_memcpy")
OTHERS = ("retain", "clone", "flush")
RECORDING = ("create", "finalize", "kernel", "memset", "memcpy", "enqueue")


class Fault:
    """Makes a function of OpenCL fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def plant(self, name: str, code: int) -> None:
        patch = self._monkeypatch
        if name in RECORDING:
            original = Devices.extension
            function = (creating if name == "create" else failing)(code)

            def extension(devices: Devices, ordinal: int) -> Any:
                found = original(devices, ordinal)
                assert found is not None
                return found._replace(functions={**found.functions, name: function})

            patch.setattr(Devices, "extension", extension)
        elif name in ENQUEUEING:
            patch.setitem(driver.enqueue, name.removeprefix("enqueue_"), failing(code))
        elif name == "retain":
            patch.setattr(driver.cl.Buffer, "from_int_ptr", raising(code))
        elif name == "clone":
            patch.setattr(driver.cl.Kernel, "clone", raising(code))
        else:
            patch.setattr(_stream, "flush", failing(code))


@pytest.mark.parametrize("buffers", [True, False])
@pytest.mark.parametrize("name", [*ENQUEUEING, *OTHERS, *RECORDING])
def test_a_failing_function(place: Place, monkeypatch: pytest.MonkeyPatch, name: str, buffers: bool) -> None:
    has_buffers = ag.backends.get("opencl").command_buffer_version(0) is not None  # type: ignore[attr-defined]
    if name in RECORDING and not (buffers and has_buffers):
        pytest.skip("there are no command buffers")
    if not buffers:
        monkeypatch.setattr(Devices, "extension", lambda self, ordinal: None)
    cells = [place.buffer() for _ in range(2)]

    def work() -> None:
        place.launch("add", cells[0], 1)
        place.stream.fill(cells[1], 0)
        place.stream.copy(cells[1], cells[0])

    def once() -> None:
        with ag.Graph(stream=place.stream) as graph:
            work()
        graph.replay()
        work()

    Fault(monkeypatch).plant(name, OUT_OF_RESOURCES)
    with pytest.raises((ag.DriverError, ag.CaptureError), match="CL_OUT_OF_RESOURCES"):
        once()
    monkeypatch.undo()
    gc.collect()
    assert not ag.is_current_stream_capturing()
    before = place.read(cells[0])[0]
    once()
    assert place.read(cells[0])[0] == before + 2


def test_a_fault_in_a_replay_is_an_error_of_the_replay(
    place: Place, monkeypatch: pytest.MonkeyPatch, needs_command_buffers: None
) -> None:
    cell = place.buffer()
    Fault(monkeypatch).plant("enqueue", OUT_OF_RESOURCES)
    with ag.Graph(stream=place.stream) as graph:
        place.launch("add", cell, 1)
    for replay in (graph.replay, graph.bind()):
        with pytest.raises(ag.DriverError, match="clEnqueueCommandBufferKHR returned CL_OUT_OF_RESOURCES"):
            replay()
    assert place.read(cell) == [0]
