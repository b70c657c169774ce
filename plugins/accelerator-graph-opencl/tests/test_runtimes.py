"""What the runtimes do where the specification leaves it open, or where they differ from it.

The backend is written for these answers. A runtime that gives another one makes a test here fail, and what is
said about it in the backend can go then.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyopencl as cl
import pytest
from accelerator_graph_opencl._command_buffer import CommandBuffer
from accelerator_graph_opencl._kernel import launch

import accelerator_graph as ag
from conftest import TURNS, Place

IN_ORDER, OUT_OF_ORDER = False, True


def recorded(place: Place, cell: cl.Buffer, out_of_order: bool) -> CommandBuffer:
    """Return a command buffer of ten slow kernels without points to wait for."""
    extension = ag.backends.get("opencl")._devices.extension(0)  # type: ignore[attr-defined]
    buffer = CommandBuffer(extension, place.stream.native, out_of_order=out_of_order)
    for _ in range(10):
        turns = np.uint32(200_000)
        command = launch(place.stream.native, place.kernels["slow"], cell, turns, global_size=1)
        command.record(buffer, ())
        buffer_keeps.append(command)
    buffer.finalize()
    return buffer


buffer_keeps: list[object] = []


@pytest.mark.parametrize("made", [IN_ORDER, OUT_OF_ORDER])
@pytest.mark.parametrize("used", [IN_ORDER, OUT_OF_ORDER])
def test_which_queue_decides_the_order(
    place: Place, version: tuple[int, int, int], needs_command_buffers: None, made: bool, used: bool
) -> None:
    """Commands run out of order only if both queues do. Before 0.9.7 two different queues are an error."""
    cell, queue = place.buffer(), cl.CommandQueue(place.context, properties=int(used))
    buffer = recorded(place, cell, made)
    queues = ctypes.byref(ctypes.c_void_p(queue.int_ptr))
    code = buffer.extension.functions["enqueue"](1, queues, buffer.handle, 0, None, None)
    queue.finish()
    if made != used and version < (0, 9, 7):
        assert code == -1140, "CL_INCOMPATIBLE_COMMAND_QUEUE_KHR"
        return
    assert code == 0
    if not (made and used):
        assert place.read(cell) == [2**10 - 1]


CRASH = """
import sys; sys.path.insert(0, sys.argv[1])
import accelerator_graph as ag
from accelerator_graph_opencl import _kernel
from conftest import Place

_kernel._check_group = lambda *arguments: None
place = Place()
out = place.buffer()
with ag.Graph(stream=place.stream):
    try:
        place.launch("fixed", out, global_size=4, local_size=2)
    except ValueError:
        place.launch("fixed", out, global_size=4, local_size=4)
        print("refused")
"""


def test_sizes_that_a_command_buffer_can_not_have(runtime: str, needs_command_buffers: None) -> None:
    """PoCL 3.1 ends the process, and Intel's does not look. That is why the sizes are checked before."""
    tests = str(Path(__file__).parent)
    done = subprocess.run([sys.executable, "-c", CRASH, tests], capture_output=True, text=True, check=False)
    if runtime == "pocl":
        assert done.returncode < 0
    else:
        assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_a_program_that_only_its_kernel_keeps(place: Place, runtime: str) -> None:
    """On Intel's runtime it can't be used any more. That is why kernels are cloned."""
    kernel = place.kernels["add"]
    if runtime == "intel":
        with pytest.raises(cl.LogicError, match="INVALID_PROGRAM"):
            kernel.program  # noqa: B018
    else:
        assert kernel.program.num_devices == 1


def test_a_context_that_only_its_queue_keeps(place: Place, runtime: str) -> None:
    """On Intel's runtime it can't be used any more. That is why a stream keeps it."""
    queue = cl.CommandQueue(cl.Context([place.queue.device]))
    if runtime == "intel":
        with pytest.raises(ValueError, match="released"):
            ag.Graph(stream=queue)
    else:
        assert ag.Graph(stream=queue).device == 0


def test_runs_in_progress_outlive_their_command_buffer(place: Place, needs_command_buffers: None) -> None:
    """A command buffer that is released while it runs completes."""
    cell = place.buffer()
    buffer = recorded(place, cell, IN_ORDER)
    for call in buffer.calls(place.stream.native, ctypes.c_void_p(), ctypes.c_void_p()):
        assert call() == 0
    place.launch("slow", cell, TURNS)
    del buffer
    assert place.read(cell) == [2**11 - 1]
