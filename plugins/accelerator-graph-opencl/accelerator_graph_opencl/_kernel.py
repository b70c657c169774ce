"""Kernels: their arguments and sizes, checked when they are enqueued or recorded."""

from __future__ import annotations

import operator
from ctypes import c_size_t
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl

from ._commands import Command, check_context
from ._driver import failure, name_of, translated

if TYPE_CHECKING:
    from ._stream import Stream

_INVALID_ARG_SIZE = -51
_ARGUMENTS = (cl.MemoryObjectHolder, np.generic, cl.LocalMemory, cl.Sampler, cl.SVMPointer, type(None))


def launch(
    stream: Stream,
    kernel: Any,
    /,
    *values: Any,
    global_size: Any = None,
    local_size: Any = None,
    global_offset: Any = None,
) -> Command:
    """Return the command that runs a kernel, or raise TypeError or ValueError.

    It has a kernel object of its own, since OpenCL keeps the arguments in the kernel object: whatever is done
    with the user's object later has no effect.

    Parameters
    ----------
    stream : Stream
        Where to.
    kernel : pyopencl.Kernel
        Of the stream's context.
    *values
        All of its arguments: a `pyopencl.Buffer`, image, sampler or `LocalMemory`, shared virtual memory, an
        array that begins with its buffer, None for no memory, or a NumPy scalar of the declared type.
    global_size, local_size, global_offset : int or tuple of int
        How many work items, how many of them are a group, and the first global id. By default the runtime
        chooses the group.
    """
    if not isinstance(kernel, cl.Kernel):
        raise TypeError(f"backend 'opencl' launches a pyopencl.Kernel, not {type(kernel).__name__!r} object.")
    with translated("clGetKernelInfo"):
        name, count = kernel.function_name, kernel.num_args
    check_context(kernel, stream)
    if len(values) != count:
        raise TypeError(f"launch: {name!r} takes {count} arguments, not {len(values)}.")
    sizes = _sizes(stream, kernel, name, global_size, local_size, global_offset)
    own = _copy(kernel, name, stream)
    for index, value in enumerate(values):
        _set(own, name, index, value, stream)
    return Command("kernel", name, (own.int_ptr, *sizes), [own, *values])


def _copy(kernel: cl.Kernel, name: str, stream: Stream) -> cl.Kernel:
    """Return another kernel object for the same kernel.

    A clone is preferred: on Intel's runtime a kernel does not keep its program usable.
    """
    clones = stream.version >= (2, 1)
    with translated("clCloneKernel" if clones else "clCreateKernel"):
        return kernel.clone() if clones else cl.Kernel(kernel.program, name)


def _set(kernel: cl.Kernel, name: str, index: int, value: Any, stream: Stream) -> None:
    argument = getattr(value, "base_data", value)  # an array's
    if argument is not value and value.offset:
        raise ValueError(
            f"launch: argument {index} of {name!r} is an array that begins inside its buffer; "
            "pass its base_data and its offset, or a copy."
        )
    if not isinstance(argument, _ARGUMENTS) and not (isinstance(value, np.ndarray) and value.ndim == 0):
        raise TypeError(
            f"launch: argument {index} of {name!r} must be a memory object, a NumPy scalar such as "
            f"numpy.uint32(3), a pyopencl.LocalMemory, a sampler or None, not {type(value).__name__!r}."
        )
    if isinstance(argument, cl.MemoryObjectHolder):
        check_context(argument, stream)
    try:
        kernel.set_arg(index, argument)
    except cl.Error as error:
        cause = failure("clSetKernelArg", error.code)
        if error.code == _INVALID_ARG_SIZE:
            raise TypeError(
                f"launch: argument {index} of {name!r} has a type of another size than the "
                f"{type(value).__name__!r} object; pass what the kernel declares."
            ) from cause
        raise ValueError(
            f"launch: OpenCL refuses argument {index} of {name!r}: {name_of(error.code)}."
        ) from cause


def _sizes(
    stream: Stream, kernel: cl.Kernel, name: str, global_size: Any, local_size: Any, global_offset: Any
) -> tuple[Any, ...]:
    """Return dimensions, offset, global and local size, as OpenCL's functions take them."""
    if global_size is None:
        raise TypeError(f"launch: {name!r} needs a global_size, such as global_size=(1024,).")
    whole = _numbers("global_size", global_size, 1)
    if not 1 <= len(whole) <= 3:
        raise ValueError(f"launch: global_size must have 1 to 3 dimensions, not {len(whole)}.")
    offset = None if global_offset is None else _numbers("global_offset", global_offset, 0, len(whole))
    group = None if local_size is None else _numbers("local_size", local_size, 1, len(whole))
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


def _numbers(what: str, given: Any, least: int, count: int | None = None) -> tuple[int, ...]:
    try:
        numbers = tuple(map(operator.index, given if isinstance(given, tuple | list) else (given,)))
    except TypeError:
        raise TypeError(f"launch: {what} must be an int or a tuple of ints, not {given!r}.") from None
    for number in numbers:
        if not least <= number < 1 << 63:
            raise ValueError(f"launch: {what} must hold numbers from {least}, not {number}.")
    if count not in (None, len(numbers)):
        raise ValueError(
            f"launch: {what} must have as many dimensions as global_size: {count}, not {len(numbers)}."
        )
    return numbers
