"""The shim, which is compiled with the package: its functions, their errors, and what they make."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Callable
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint64, c_void_p
from importlib.util import find_spec
from typing import Any

from accelerator_graph.errors import DriverError, Reason, driver_error

CODES = (
    "success",
    "runtime",
    "kernel",
    "accessor",
    "nd_range",
    "event",
    "kernel_argument",
    "build",
    "invalid",
    "memory_allocation",
    "platform",
    "profiling",
    "feature_not_supported",
    "kernel_not_supported",
    "backend_mismatch",
)
"""The names of ``sycl::errc``, by number."""

_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "supported": (c_void_p, c_void_p),
    "capture_of": (c_void_p, c_void_p),
    "begin": (c_void_p, c_void_p, c_void_p),
    "end": (c_void_p,),
    "joined": (c_void_p, c_void_p, c_void_p),
    "delete": (c_void_p,),
    "size": (c_void_p, c_void_p, c_void_p),
    "nodes": (c_void_p, c_void_p, c_void_p),
    "print": (c_void_p, c_char_p, c_int),
    "finalize": (c_void_p, c_void_p),
    "replay": (c_void_p, c_void_p),
    "delete_executable": (c_void_p,),
    "record": (c_void_p, c_int, c_void_p),
    "wait_event": (c_void_p, c_void_p, c_void_p),
    "delete_event": (c_void_p,),
    "synchronize": (c_void_p,),
    "query": (c_void_p, c_void_p),
    "usm": (c_void_p, c_void_p, c_void_p),
    "memset": (c_void_p, c_void_p, c_int, c_size_t),
    "memcpy": (c_void_p, c_void_p, c_void_p, c_size_t),
}

_CALLS = {
    "begin": "command_graph::begin_recording",
    "end": "command_graph::end_recording",
    "nodes": "command_graph::get_nodes",
    "size": "command_graph::get_nodes",
    "print": "command_graph::print_graph",
    "finalize": "command_graph::finalize",
    "replay": "queue::ext_oneapi_graph",
    "launch": "queue::submit",
    "record": "queue::ext_oneapi_submit_barrier",
    "wait_event": "queue::ext_oneapi_submit_barrier",
    "synchronize": "queue::wait_and_throw",
    "query": "queue::khr_empty",
    "memset": "queue::memset",
    "memcpy": "queue::memcpy",
}
"""What errors call a function: the runtime's function behind it."""

_MAY_WAIT = {"replay", "synchronize", "delete", "delete_executable", "delete_event"}
"""Functions that release the GIL. The others keep it, as dpctl does while it submits kernels: the runtime has
no lock of its own where it sets a kernel's arguments to finalize a graph, and where it tells a queue that it
records (intel/llvm#20557)."""


def path() -> str | None:
    """Return where the shim is; None if the package was installed without it."""
    spec = find_spec(f"{__package__}._shim")
    return None if spec is None else spec.origin


def reason_of(code_name: str, detail: str) -> Reason:
    """Return the neutral cause of a failure. Only the text says what failed below SYCL."""
    if code_name == "memory_allocation" or re.search("UR_RESULT_ERROR_OUT_OF_(HOST|DEVICE)_MEMORY", detail):
        return "out_of_memory"
    return "device_lost" if "UR_RESULT_ERROR_DEVICE_LOST" in detail else "other"


class Library:
    """The shim's functions.

    Parameters
    ----------
    backend : str
        The name of the backend, for errors.
    """

    def __init__(self, backend: str) -> None:
        self._backend = backend
        keeps, releases = ctypes.PyDLL(path()), ctypes.CDLL(path())
        self._message = keeps.sycl_graph_message
        self._message.restype = c_char_p
        self._functions: dict[str, Callable[..., int]] = {}
        for name, arguments in _SIGNATURES.items():
            library = releases if name in _MAY_WAIT else keeps
            function = self._functions[name] = getattr(library, f"sycl_graph_{name}")
            function.argtypes = arguments

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function; raise the error for what it returns."""
        code = self._functions[name](*arguments)
        if code:
            raise self.error(name, code)

    def function(self, name: str) -> Callable[..., int]:
        """Return a function that returns a code, to be called often."""
        return self._functions[name]

    def ask(self, name: str, *arguments: Any) -> int:
        """Call a function that stores an int; return the int."""
        answer = c_int()
        self.call(name, *arguments, byref(answer))
        return answer.value

    def capture_of(self, queue: Any) -> int:
        """Return the number of the capture that a queue takes part in; 0 if there is none."""
        answer = c_uint64()
        self.call("capture_of", queue.addressof_ref(), byref(answer))
        return answer.value

    def error(self, name: str, code: int) -> DriverError:
        """Make the error for a code that a function on this thread has just returned."""
        detail = " ".join(self._message().decode("utf-8", "replace").split())
        known = 0 < code < len(CODES)
        code_name = CODES[code] if known else "unknown"
        return self._error(name, reason_of(code_name, detail), code if known else None, code_name, detail)

    def refusal(self, name: str, reason: Reason, detail: str = "", code_name: str = "REFUSED") -> DriverError:
        """Make the error for a call that this package or dpctl refuses, before the runtime does."""
        return self._error(name, reason, None, code_name, detail)

    def _error(self, name: str, reason: Reason, code: int | None, code_name: str, detail: str) -> DriverError:
        return driver_error(
            backend=self._backend,
            call=_CALLS.get(name, name),
            code=code,
            code_name=code_name,
            reason=reason,
            detail=detail,
        )


class Handle:
    """The address of an object that the shim has made, and owns until `close`."""

    __slots__ = ("_delete", "_process", "slot")

    def __init__(self, library: Library, delete: str) -> None:
        self._delete = library.function(delete)
        self._process = os.getpid()
        self.slot: c_void_p = c_void_p()

    @property
    def address(self) -> int | None:
        """The object's address; None before it is made, and after `close`."""
        return self.slot.value

    def close(self) -> None:
        """Delete the object, if it still exists."""
        self._delete(byref(self.slot))

    # `__del__` finds these in the class, since a module's names may be gone when the interpreter exits.
    _is_finalizing = staticmethod(sys.is_finalizing)
    _getpid = staticmethod(os.getpid)

    def __del__(self) -> None:
        made = getattr(self, "slot", None)  # `__init__` may be interrupted
        if made and not self._is_finalizing() and self._process == self._getpid():
            self.close()
