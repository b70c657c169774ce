"""Arrays of anybody's, told by what they can do: how each type is described and copied."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Hashable
from contextlib import nullcontext
from math import prod
from typing import TYPE_CHECKING, Any, Literal

from ..interop import registry as interop

if TYPE_CHECKING:
    from ..interop.base import Framework

_HOST = (1, 3, 11)  # of DLPack's kinds of devices: the CPU, and host memory that CUDA or ROCm pinned


class Family:
    """How the arrays of one type are handled.

    Attributes
    ----------
    kind : {"tensor", "array", "buffer", "place"}
        Like a torch tensor; like a NumPy array; a Python buffer that can be copied; or memory of which no
        copy can be made, so that a graph is bound to the place.
    root : str
        The top-level package that the type comes from, as a framework is named.
    read : callable
        Returns the part of a signature that an array makes, and appends the array to a list.
    empty_like : callable
        Returns a new array like a given one, with any contents.
    assign : callable
        ``assign(target, source)`` copies, on the framework's current stream or now.
    assign_all : callable, optional
        The same for two lists.
    """

    __slots__ = ("assign", "assign_all", "empty_like", "kind", "module", "read", "root")

    def copy(self, x: Any) -> Any:
        """Return a copy of an array, on the framework's current stream or now; or the place itself."""
        if self.kind == "tensor":
            return x.detach().clone()
        new = self.empty_like(x)
        self.assign(new, x)
        return new

    def static(self, x: Any) -> Any:
        """The same, but a copy that counts how often it is written, if any array of the type does."""
        inference = getattr(self.module, "inference_mode", None)  # a mode in which none does
        with nullcontext() if inference is None else inference(False):
            return self.copy(x)

    def like(self, static: Any, x: Any) -> Any:
        """Return a static copy of an array as a function gets it: it can't be written if the array can't."""
        if self.kind != "array" or writable(x):
            return static
        view = static.view()
        view.flags.writeable = False
        return view

    def __init__(
        self,
        kind: Literal["tensor", "array", "buffer", "place"],
        module: Any,
        read: Callable[[Any, list[Any]], Hashable],
        empty_like: Callable[[Any], Any],
        assign: Callable[[Any, Any], object],
    ) -> None:
        self.kind = kind
        self.module = module
        self.root: str = getattr(module, "__name__", "")
        self.read = read
        self.empty_like = empty_like
        self.assign = assign
        self.assign_all: Any = getattr(module, "_foreach_copy_", None) if kind == "tensor" else None


def family_of(x: Any) -> Family | None:
    """Return how an object's type is handled; None if it is no array.

    Told by the type and, where that says nothing, by this one object: all of a type are alike.
    """
    cls = type(x)
    if all(callable(getattr(cls, name, None)) for name in ("copy_", "detach", "clone", "stride")):
        module = _home(cls)
        if module is not None:
            return _tensor(cls, module)
    on_device = hasattr(x, "__cuda_array_interface__")
    if (on_device or hasattr(cls, "__array_interface__")) and hasattr(cls, "__array_ufunc__"):
        module = _home(cls)
        if module is not None and not issubclass(cls, Hashable):  # a scalar of NumPy's has a hash
            if not on_device:
                return _array(cls, module, _read_like_numpy)
            if module.__name__ in interop.names():  # else nobody can say on which stream it copies
                return _array(cls, module, _read_with_device)
    if on_device:
        return _place(cls)
    if hasattr(x, "__dlpack__"):  # it may say where it is if it is on a device
        return _buffer(cls, x) or _place(cls)
    return _buffer(cls, x) if not issubclass(cls, Hashable) and _has_memory(x) else None


def _tensor(cls: type, module: Any) -> Family:
    def read(x: Any, leaves: list[Any]) -> Hashable:
        leaves.append(x)
        return cls, x.shape, x.stride(), x.dtype, x.device, x.requires_grad

    return Family("tensor", module, read, lambda x: module.empty_like(x.detach()), cls.copy_)  # type: ignore[attr-defined]


def _array(cls: type, module: Any, read: Callable[[Any, list[Any]], Hashable]) -> Family:
    return Family("array", module, read, module.empty_like, _assign)


def _read_like_numpy(x: Any, leaves: list[Any]) -> Hashable:
    leaves.append(x)
    return type(x), x.shape, x.strides, x.dtype, getattr(getattr(x, "flags", None), "writeable", True)


def _read_with_device(x: Any, leaves: list[Any]) -> Hashable:
    leaves.append(x)
    return type(x), x.shape, x.strides, x.dtype, x.__dlpack_device__()


def _place(cls: type) -> Family:
    def read(x: Any, leaves: list[Any]) -> Hashable:
        leaves.append(x)
        return cls, _interface(x)

    return Family("place", None, read, _same, _nothing)


def _buffer(cls: type, x: Any) -> Family | None:
    """Return how a Python buffer is handled; None if no copy can be made of it."""
    try:
        if memoryview(copy.copy(x)).readonly:
            return None
    except (TypeError, BufferError):
        return None

    def read(x: Any, leaves: list[Any]) -> Hashable:
        leaves.append(x)
        view = memoryview(x)
        return cls, view.format, view.shape, view.strides

    return Family("buffer", None, read, copy.copy, _assign_bytes)


def _home(cls: type) -> Any:
    """Return the top-level package of a type that can make arrays like a given one."""
    for base in cls.__mro__:
        module = sys.modules.get(base.__module__.partition(".")[0])
        if hasattr(module, "empty_like"):
            return module
    return None


def _interface(x: Any) -> tuple[Hashable, ...]:
    interface = x.__cuda_array_interface__
    return interface["data"][0], interface["shape"], interface["typestr"], interface.get("strides")


def _has_memory(x: Any) -> bool:
    if hasattr(x, "__array_interface__"):
        return True
    try:
        memoryview(x).release()
    except (TypeError, BufferError):
        return False
    return True


def _assign(target: Any, source: Any) -> None:
    target[...] = source


def _assign_bytes(target: Any, source: Any) -> None:
    with memoryview(target) as there, memoryview(source) as here:
        there.cast("B")[:] = here.cast("B")


def _same(x: Any) -> Any:
    return x


def _nothing(target: Any, source: Any) -> None:
    pass


def frameworks_of(families: list[Family], backend: str) -> tuple[set[str], list[Framework]]:
    """Return the packages that arrays come from, and which of these take part in captures now."""
    roots = {family.root for family in families}
    active = interop.active_by_name(backend)
    return roots, [active[root] for root in sorted(roots) if root in active]


def place_of(x: Any) -> tuple[bool, int | None]:
    """Say whether an array lies in host memory, and the ordinal of its device where that is known."""
    if hasattr(x, "__dlpack_device__"):
        kind, ordinal = x.__dlpack_device__()
        return (True, None) if int(kind) in _HOST else (False, int(ordinal))
    return not hasattr(x, "__cuda_array_interface__"), None


def extent(x: Any) -> tuple[int, int] | None:
    """Return where the memory of an array begins and ends; None if its type does not say."""
    cls, interface = type(x), None
    for name in ("__cuda_array_interface__", "__array_interface__"):
        interface = interface or (getattr(x, name, None) if hasattr(cls, name) else None)
    if isinstance(interface, dict):
        start, shape, strides = (interface["data"] or (0,))[0], interface["shape"], interface.get("strides")
        itemsize = int(interface["typestr"][2:].partition("[")[0]) * (
            4 if interface["typestr"][1] == "U" else 1
        )
    elif hasattr(cls, "data_ptr") and hasattr(cls, "stride"):
        start, shape, itemsize = x.data_ptr(), x.shape, x.element_size()
        strides = [step * itemsize for step in x.stride()]
    else:
        return None
    if 0 in shape:
        return start, start
    if strides is None:
        return start, start + itemsize * prod(shape)
    steps = [(extent - 1) * step for extent, step in zip(shape, strides, strict=True)]
    low, high = (sum(step for step in steps if (step > 0) is up) for up in (False, True))
    return start + low, start + high + itemsize


def forget_casts() -> None:
    """Empty the caches of what autocast has cast.

    What is found there in a capture is freed when autocast ends, and what a capture leaves there holds
    nothing until a replay.
    """
    for name in interop.names():
        clear = getattr(sys.modules.get(name), "clear_autocast_cache", None)
        if clear is not None:
            clear()


def writable(x: Any) -> bool:
    """Say whether an array can be written, as far as it says so."""
    if hasattr(x, "stride"):
        return not any(step == 0 and extent > 1 for step, extent in zip(x.stride(), x.shape, strict=True))
    return getattr(getattr(x, "flags", None), "writeable", True) is not False
