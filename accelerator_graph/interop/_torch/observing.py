"""The operators that a thread calls: which older tensors they use, and on which stream each does its work."""

from __future__ import annotations

import contextlib
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from threading import get_ident
from typing import Any

from ..base import PoolId, Undo


def observe_operators(
    torch: Any,
    seen: Callable[[Any, Any, Any, Any], object],
    around: Callable[[Any, Any, Any], AbstractContextManager[None]] = lambda *_: nullcontext(),
) -> Callable[[], bool]:
    """Call ``seen(operator, args, kwargs, result)`` after each operator that this thread calls.

    The operator runs in the context that ``around(operator, args, kwargs)`` returns.

    This includes operators that autograd runs in threads of its own, since autograd copies this thread's
    modes to them. It does not include what an operator calls inside of itself. Compiled code stays compiled.

    Returns
    -------
    callable
        Ends it. Returns True if it had not ended before.
    """

    def handle(func: Any, args: Any, kwargs: Any) -> Any:
        with around(func, args, kwargs):
            result = func(*args, **kwargs)
        seen(func, args, kwargs, result)
        return result

    observer = dispatch_mode(torch, handle)

    def undo() -> bool:
        here = observer in mode_stack(torch)
        if here:
            observer.__exit__(None, None, None)
        return here

    observer.__enter__()
    return undo


def dispatch_mode(torch: Any, handle: Callable[[Any, Any, Any], Any]) -> Any:
    """Return a mode in which ``handle(operator, args, kwargs)`` is called in the place of each operator."""

    class Mode(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]
        supports_higher_order_operators = True

        @classmethod
        def ignore_compile_internals(cls) -> bool:
            return True

        @classmethod
        def _should_skip_dynamo(cls) -> bool:  # otherwise the first operator would import it
            return f"{torch.__name__}._dynamo" in sys.modules

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return handle(func, args, kwargs or {})

    return Mode()


def mode_stack(torch: Any) -> list[Any]:
    """Return the modes of this thread, the innermost last."""
    found: list[Any] = torch.utils._python_dispatch._get_current_dispatch_mode_stack()
    return found


# ---- which tensors they use ---------------------------------------------------------------------


def observe(torch: Any, pool: PoolId, used: Callable[[object], Undo]) -> Undo:
    """Call `used` once for each tensor from before the capture that operators on this thread read or write.

    Kernels that no operator launches are not seen.
    """
    inputs = _Inputs(torch, used)
    end = observe_operators(torch, lambda _, args, kwargs, result: inputs.note((args, kwargs), result))

    def undo() -> None:
        if end():
            with contextlib.suppress(RuntimeError):  # some of torch's allocators have no snapshot
                inputs.forget_those_in(pool)

    return undo


class _Inputs:
    """Tells the storages from before the capture from those that operators make during it."""

    def __init__(self, torch: Any, used: Callable[[object], Undo]) -> None:
        self._torch = torch
        self._used = used
        self._known: dict[int, weakref.ref[Any]] = {}
        self._found: list[tuple[int, Undo]] = []

    def note(self, given: Any, result: Any) -> None:
        """Note the tensors of an operator's call."""
        if not self._torch.cuda.is_current_stream_capturing():
            return
        inputs, outputs = list(self._tensors(given)), list(self._tensors(result))
        if not any(map(_on_device, inputs + outputs)):
            return
        for tensor in inputs:
            storage = self._new(tensor)
            # the storage of a foreign array may end before the array does. Such storages can't be resized,
            # but neither can those of pin_memory(), which are watched
            if storage is not None and ((storage.resizable() and _on_device(tensor)) or tensor.is_pinned()):
                self._found.append((storage.data_ptr(), self._used(tensor)))
        for tensor in outputs:
            self._new(tensor)

    def _new(self, tensor: Any) -> Any:
        """Return the storage of a tensor; None if it has none, or one that is known already."""
        try:
            storage = tensor.untyped_storage()
            if not storage.data_ptr():
                return None
        except (NotImplementedError, RuntimeError):  # sparse, for example
            return None
        known = self._known.get(id(storage))
        if known is not None and known() is storage:
            return None
        self._known[id(storage)] = weakref.ref(storage)
        return storage

    def _tensors(self, value: Any) -> Iterator[Any]:
        """Yield the tensors in an operator's arguments, and the tensors inside wrapper subclasses."""
        if isinstance(value, self._torch._subclasses.FakeTensor):
            pass
        elif isinstance(value, self._torch.Tensor):
            if not hasattr(value, "__tensor_flatten__"):
                yield value
            else:
                for name in value.__tensor_flatten__()[0]:
                    yield from self._tensors(getattr(value, name))
        elif isinstance(value, list | tuple | dict):
            for each in value.values() if isinstance(value, dict) else value:
                yield from self._tensors(each)

    def forget_those_in(self, pool: PoolId) -> None:
        """Undo the notes of tensors in the pool: compiled code allocates there without an operator."""
        if not self._found:
            return
        segments = [
            range(each["address"], each["address"] + each["total_size"])
            for each in self._torch.cuda.memory_snapshot()
            if tuple(each["segment_pool_id"]) == tuple(pool)
        ]
        for address, forget in self._found:
            if any(address in segment for segment in segments):
                forget()


def _on_device(tensor: Any) -> bool:
    return bool(tensor.device.type != "cpu")


# ---- on which stream they enqueue ---------------------------------------------------------------


_WITHOUT_WORK = ("empty", "new_empty", "resize", "set_", "record_stream")
"""The first parts of the names of operators that only make or describe memory."""


def operations(torch: Any, seen: Callable[[str, int, int], bool]) -> Undo:
    """Call `seen` with the name, the stream's handle and the device of each operator that enqueues work.

    Streams for which it has returned True are not reported again.
    """
    stream_of = torch._C._cuda_getCurrentRawStream
    known: set[int] = set()

    @cache
    def enqueues(operator: Any) -> bool:
        schema = getattr(operator, "_schema", None)
        if schema is None or schema.name.partition("::")[2].startswith(_WITHOUT_WORK):
            return False
        aliases = [each.alias_info for each in schema.returns]
        is_view = any(each is not None and not each.is_write for each in aliases)
        return not is_view and (bool(aliases) or bool(schema.is_mutable))

    def note(operator: Any, args: Any, kwargs: Any, result: Any) -> None:
        device = _device(torch, result)
        if device is None:
            device = _device(torch, args)
        if device is None:
            return
        stream = stream_of(device)
        if stream not in known and enqueues(operator) and seen(str(operator), int(stream), device):
            known.add(stream)

    return observe_operators(torch, note)


def _device(torch: Any, value: Any) -> int | None:
    """Return the device of the first tensor that is on one; None if there is none."""
    if isinstance(value, torch.Tensor):
        return int(value.get_device()) if value.is_cuda else None
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return None
    for each in value:
        device = _device(torch, each)
        if device is not None:
            return device
    return None


# ---- which of them wait -------------------------------------------------------------------------


def waiting(torch: Any, beside: Callable[[str], AbstractContextManager[None]]) -> Undo:
    """Run each operator that waits for the device inside ``beside(name)``."""
    sizes = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}

    def around(operator: Any, args: Any, kwargs: Any) -> AbstractContextManager[None]:
        name = operator._schema.name.partition("::")[2] if hasattr(operator, "_schema") else ""
        if name in ("_to_copy", "copy_"):
            waits = _crosses(torch, args, kwargs)
        elif name in ("index", "index_put", "index_put_"):
            waits = _has_mask(torch, name, args)
        else:
            waits = bool(name) and not sizes.isdisjoint(operator.tags) and kwargs.get("output_size") is None
            waits = waits and any(each.is_cuda and each.numel() for each in _tensors(torch, args))
        return beside(name) if waits else nullcontext()

    with contextlib.ExitStack() as stack:
        stack.callback(observe_operators(torch, lambda *_: None, around))
        if not torch.cuda.is_current_stream_capturing():
            _report_synchronizations(torch, beside, stack)
        return stack.pop_all().close


_SYNCHRONIZES = "called a synchronizing"


def _report_synchronizations(
    torch: Any, beside: Callable[[str], AbstractContextManager[None]], stack: contextlib.ExitStack
) -> None:
    """Enter ``beside("synchronize")`` after each wait of this thread that torch warns of.

    Nobody sees these warnings unless the program has asked torch for them. Closing the stack ends it.
    """
    asked = torch.cuda.get_sync_debug_mode()
    stack.callback(torch.cuda.set_sync_debug_mode, asked)
    stack.enter_context(warnings.catch_warnings())
    show, thread = warnings.showwarning, get_ident()

    def show_other(message: Any, *args: Any, **kwargs: Any) -> None:
        waits = _SYNCHRONIZES in str(message)
        if waits and get_ident() == thread:
            with beside("synchronize"):
                pass
        if asked or not waits:
            show(message, *args, **kwargs)

    warnings.showwarning = show_other
    warnings.filterwarnings("always", f".*{_SYNCHRONIZES}")
    warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype")
    torch.cuda.set_sync_debug_mode("warn")


def _crosses(torch: Any, args: Any, kwargs: Any) -> bool:
    """Return True if a copy between host and device waits, or is refused for memory that is not pinned."""
    source = args[-1] if len(args) == 1 else args[1]
    target = kwargs.get("device") if len(args) == 1 else args[0].device
    if target is None or {source.device.type, torch.device(target).type} != {"cpu", "cuda"}:
        return False
    at_once = not (kwargs.get("non_blocking") or any(each is True for each in args[2:]))
    host = source if source.device.type == "cpu" else args[0]
    return at_once or (host.device.type == "cpu" and not host.is_pinned())


def _has_mask(torch: Any, name: str, args: Any) -> bool:
    """Return True if a mask on the device selects elements. One number is written without waiting."""
    masks = [each for each in args[1] if each is not None and each.is_cuda]
    one = name != "index" and args[2].numel() == 1
    return not one and any(each.dtype in (torch.bool, torch.uint8) for each in masks)


def _tensors(torch: Any, args: Any) -> list[Any]:
    return [each for each in args if isinstance(each, torch.Tensor)]
