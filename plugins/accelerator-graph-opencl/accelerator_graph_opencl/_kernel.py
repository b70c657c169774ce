"""Kernels: their arguments and sizes, checked when they are enqueued or recorded."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from ctypes import byref, c_int32, c_size_t, c_void_p
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl

from . import _driver as driver
from ._commands import Command
from ._driver import Owned, check, translated
from ._memory import check_context

if TYPE_CHECKING:
    from ._command_buffer import CommandBuffer
    from ._stream import Stream

_INVALID_ARG_SIZE = -51
_HANDLE_SIZE = 8


class Kernel(Command):
    """A kernel with its arguments.

    It has a kernel object of its own, since OpenCL keeps the arguments in the kernel object: whatever is done
    with the user's object later has no effect.
    """

    __slots__ = ("_arguments", "_kernel", "_retain", "name")

    kind = "kernel"
    call = "clEnqueueNDRangeKernel"

    def __init__(
        self, kernel: cl.Kernel, name: str, values: Sequence[Any], sizes: Sequence[Any], stream: Stream
    ) -> None:
        super().__init__(*values)
        self.name = name
        self._kernel = _new(kernel, name, stream.version >= (2, 1))
        self._arguments = (self._kernel.handle, *sizes)
        self._retain: list[tuple[Callable[[int], Owned], int]] = []
        for index, value in enumerate(values):
            self._set(index, value, stream)

    def on(self, queue: int) -> Callable[[], int]:
        """Return the launch."""
        return partial(driver.enqueue_kernel, queue, *self._arguments, 0, None, None)

    def record(self, buffer: CommandBuffer, after: Sequence[int]) -> int:
        """Record it."""
        return buffer.kernel(after, *self._arguments)

    def retain(self) -> None:
        """Retain the memory objects and samplers among the arguments. A command buffer does not."""
        self._retained = [retain(handle) for retain, handle in self._retain]

    def _set(self, index: int, value: Any, stream: Stream) -> None:
        kernel, function = self._kernel.handle, "clSetKernelArg"
        if isinstance(value, cl.MemoryObjectHolder):
            check_context(value, stream)
            code = driver.set_kernel_arg(kernel, index, _HANDLE_SIZE, byref(c_void_p(value.int_ptr)))
            self._retain.append((driver.retained_memory, value.int_ptr))
        elif isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
            code = driver.set_kernel_arg(kernel, index, value.nbytes, value.tobytes())
        elif value is None:
            code = driver.set_kernel_arg(kernel, index, _HANDLE_SIZE, byref(c_void_p()))
        elif isinstance(value, cl.LocalMemory):
            code = driver.set_kernel_arg(kernel, index, value.size, None)
        elif isinstance(value, cl.Sampler):
            code = driver.set_kernel_arg(kernel, index, _HANDLE_SIZE, byref(c_void_p(value.int_ptr)))
            self._retain.append((driver.retained_sampler, value.int_ptr))
        elif isinstance(value, cl.SVMPointer):
            function = "clSetKernelArgSVMPointer"
            code = driver.set_kernel_arg_svm(kernel, index, value.svm_ptr)
        elif isinstance(getattr(value, "base_data", None), cl.Buffer):
            if value.offset:
                raise ValueError(
                    f"launch: argument {index} of {self.name!r} is an array that begins inside its buffer; "
                    "pass its base_data and its offset, or a copy."
                )
            self._set(index, value.base_data, stream)
            return
        else:
            raise TypeError(
                f"launch: argument {index} of {self.name!r} must be a memory object, a NumPy scalar such as "
                f"numpy.uint32(3), a pyopencl.LocalMemory, a sampler or None, not {type(value).__name__!r}."
            )
        if code == _INVALID_ARG_SIZE:
            raise TypeError(
                f"launch: argument {index} of {self.name!r} has a type of another size than the "
                f"{type(value).__name__!r} object; pass what the kernel declares."
            ) from driver.failure(function, code)
        if code:
            raise ValueError(
                f"launch: OpenCL refuses argument {index} of {self.name!r}: {driver.name_of(code)}."
            ) from driver.failure(function, code)


def kernel_command(
    stream: Stream,
    kernel: Any,
    /,
    *values: Any,
    global_size: Any = None,
    local_size: Any = None,
    global_offset: Any = None,
    **unknown: Any,
) -> Kernel:
    """Return the command that runs a kernel, or raise TypeError or ValueError."""
    if not isinstance(kernel, cl.Kernel):
        raise TypeError(f"backend 'opencl' launches a pyopencl.Kernel, not {type(kernel).__name__!r} object.")
    if unknown:
        raise TypeError(
            f"launch: there is no argument {next(iter(unknown))!r}, only global_size, local_size and "
            "global_offset."
        )
    with translated("clGetKernelInfo"):
        name, count, context = kernel.function_name, kernel.num_args, kernel.context.int_ptr
    if context != stream.context:
        raise ValueError(
            f"launch: {name!r} belongs to another context than the stream; build its program with "
            "stream.native.queue.context."
        )
    if len(values) != count:
        raise TypeError(f"launch: {name!r} takes {count} arguments, not {len(values)}.")
    return Kernel(
        kernel, name, values, _sizes(stream, kernel, name, global_size, local_size, global_offset), stream
    )


def _new(kernel: cl.Kernel, name: str, clones: bool) -> Owned:
    """Return another kernel object for the same kernel.

    A clone is preferred: on Intel's runtime a kernel does not keep its program usable.
    """
    code = c_int32()
    with translated("clGetKernelInfo"):
        if clones:
            call, handle = "clCloneKernel", driver.clone_kernel(kernel.int_ptr, byref(code))
        else:
            program = kernel.program.int_ptr
            call, handle = "clCreateKernel", driver.create_kernel(program, name.encode(), byref(code))
    check(call, code.value)
    return Owned(handle, driver.release_kernel)


def _sizes(
    stream: Stream, kernel: cl.Kernel, name: str, global_size: Any, local_size: Any, global_offset: Any
) -> tuple[Any, ...]:
    """Return dimensions, offset, global and local size, as OpenCL's functions take them."""
    if global_size is None:
        raise TypeError(f"launch: {name!r} needs a global_size, such as global_size=(1024,).")
    device = stream.queue.device
    whole = _numbers("global_size", global_size, 1)
    if not 1 <= len(whole) <= device.max_work_item_dimensions:
        raise ValueError(
            f"launch: global_size must have 1 to {device.max_work_item_dimensions} dimensions, not "
            f"{len(whole)}."
        )
    group = None if local_size is None else _numbers("local_size", local_size, 1)
    offset = None if global_offset is None else _numbers("global_offset", global_offset, 0)
    for what, numbers in (("local_size", group), ("global_offset", offset)):
        if numbers is not None and len(numbers) != len(whole):
            raise ValueError(
                f"launch: {what} must have as many dimensions as global_size, which has {len(whole)}, not "
                f"{len(numbers)}."
            )
    _check_group(stream, kernel, name, whole, group)
    array = c_size_t * len(whole)
    return len(whole), *(None if each is None else array(*each) for each in (offset, whole, group))


def _check_group(
    stream: Stream, kernel: cl.Kernel, name: str, whole: tuple[int, ...], group: tuple[int, ...] | None
) -> None:
    """Refuse a local size that OpenCL would refuse, too late or, on PoCL 3.1, by ending the process."""
    device, about = stream.queue.device, cl.kernel_work_group_info
    with translated("clGetKernelWorkGroupInfo"):
        declared = tuple(kernel.get_work_group_info(about.COMPILE_WORK_GROUP_SIZE, device))
        most = kernel.get_work_group_info(about.WORK_GROUP_SIZE, device)
    if any(declared) and group != declared[: len(whole)]:
        raise ValueError(f"launch: {name!r} was compiled for local_size={declared[: len(whole)]}; pass that.")
    if group is None:
        return
    if prod(group) > most or any(map(operator.gt, group, device.max_work_item_sizes)):
        raise ValueError(f"launch: a group of {name!r} can have {most} work items here, not {prod(group)}.")
    if any(map(operator.mod, whole, group)):
        raise ValueError(f"launch: global_size must be a multiple of local_size, not {whole} of {group}.")


def _numbers(what: str, given: Any, least: int) -> tuple[int, ...]:
    try:
        numbers = tuple(map(operator.index, given if isinstance(given, tuple | list) else (given,)))
    except TypeError:
        raise TypeError(f"launch: {what} must be an int or a tuple of ints, not {given!r}.") from None
    for number in numbers:
        if not least <= number < 1 << 63:
            raise ValueError(f"launch: {what} must hold numbers from {least}, not {number}.")
    return numbers
