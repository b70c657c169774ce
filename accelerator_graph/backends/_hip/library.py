"""AMD's HIP runtime library: the same copy that hip-python uses, and the functions that this backend calls.

hip-python says where the library is, what its numbers mean and which types its handles have. The
functions are called through ctypes. In hip-python up to 10.0 the functions that list a graph's nodes
overwrite memory, the exchange of the capture mode takes no mode, and enumerations are read before they
are set when a call fails; up to 7.2 every call holds the interpreter's lock.
"""

from __future__ import annotations

import ctypes
import importlib
import os
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_uint, c_ulonglong, c_void_p
from threading import Lock
from typing import Any

NAME = "libamdhip64.so"

_HANDLE_OUT, _INT_OUT, _NUMBER_OUT = POINTER(c_void_p), POINTER(c_int), POINTER(c_ulonglong)
_FLOAT_OUT = POINTER(c_float)
_MODE_IN_AND_OUT = POINTER(c_uint)


class _Handle(c_void_p):
    """A handle that a function has written."""

    def __int__(self) -> int:
        return self.value or 0


class _Mode(c_uint):
    """A capture mode, which a function exchanges for another."""

    def __int__(self) -> int:
        return self.value


_OUT: dict[Any, Any] = {
    _HANDLE_OUT: _Handle,
    _INT_OUT: c_int,
    _NUMBER_OUT: c_ulonglong,
    _FLOAT_OUT: c_float,
    _MODE_IN_AND_OUT: _Mode,
}
"""The type that a function writes, by the type of the pointer to it."""


_LAUNCH = (c_void_p, *(c_uint,) * 7, c_void_p, c_void_p, c_void_p)

_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "hipRuntimeGetVersion": (_INT_OUT,),
    # devices
    "hipGetDeviceCount": (_INT_OUT,),
    "hipGetDevice": (_INT_OUT,),
    "hipSetDevice": (c_int,),
    "hipGetLastError": (),
    "hipMemGetInfo": (_NUMBER_OUT, _NUMBER_OUT),
    "hipMemGetAddressRange": (_HANDLE_OUT, _NUMBER_OUT, c_void_p),
    "hipDeviceGetGraphMemAttribute": (c_int, c_int, _NUMBER_OUT),
    # streams and events
    "hipDeviceGetStreamPriorityRange": (_INT_OUT, _INT_OUT),
    "hipStreamCreateWithPriority": (_HANDLE_OUT, c_uint, c_int),
    "hipStreamDestroy": (c_void_p,),
    "hipStreamGetDevice": (c_void_p, _INT_OUT),
    "hipStreamQuery": (c_void_p,),
    "hipStreamSynchronize": (c_void_p,),
    "hipStreamWaitEvent": (c_void_p, c_void_p, c_uint),
    "hipEventCreateWithFlags": (_HANDLE_OUT, c_uint),
    "hipEventRecord": (c_void_p, c_void_p),
    "hipEventDestroy": (c_void_p,),
    "hipEventQuery": (c_void_p,),
    "hipEventSynchronize": (c_void_p,),
    "hipEventElapsedTime": (_FLOAT_OUT, c_void_p, c_void_p),
    # work
    "hipMemsetAsync": (c_void_p, c_int, c_size_t, c_void_p),
    "hipHostMalloc": (_HANDLE_OUT, c_size_t, c_uint),
    "hipMemcpyAsync": (c_void_p, c_void_p, c_size_t, c_int, c_void_p),
    "hipModuleLaunchKernel": _LAUNCH,
    # capture
    "hipStreamBeginCapture": (c_void_p, c_int),
    "hipStreamEndCapture": (c_void_p, _HANDLE_OUT),
    "hipStreamIsCapturing": (c_void_p, _INT_OUT),
    "hipStreamGetCaptureInfo_v2": (c_void_p, _INT_OUT, _NUMBER_OUT, _HANDLE_OUT, _HANDLE_OUT, _NUMBER_OUT),
    "hipStreamUpdateCaptureDependencies": (c_void_p, c_void_p, c_size_t, c_uint),
    "hipThreadExchangeStreamCaptureMode": (_MODE_IN_AND_OUT,),
    # graphs and executables
    "hipGraphDestroy": (c_void_p,),
    "hipGraphGetNodes": (c_void_p, c_void_p, c_void_p),
    "hipGraphGetRootNodes": (c_void_p, c_void_p, c_void_p),
    "hipGraphGetEdges": (c_void_p, c_void_p, c_void_p, c_void_p),
    "hipGraphNodeGetType": (c_void_p, _INT_OUT),
    "hipGraphKernelNodeGetParams": (c_void_p, c_void_p),
    "hipGraphMemsetNodeGetParams": (c_void_p, c_void_p),
    "hipGraphMemcpyNodeGetParams": (c_void_p, c_void_p),
    "hipGraphHostNodeGetParams": (c_void_p, c_void_p),
    "hipGraphMemAllocNodeGetParams": (c_void_p, c_void_p),
    "hipGraphMemFreeNodeGetParams": (c_void_p, _HANDLE_OUT),
    "hipGraphChildGraphNodeGetGraph": (c_void_p, _HANDLE_OUT),
    "hipGraphAddChildGraphNode": (_HANDLE_OUT, c_void_p, c_void_p, c_size_t, c_void_p),
    "hipGraphAddEmptyNode": (_HANDLE_OUT, c_void_p, c_void_p, c_size_t),
    "hipGraphAddDependencies": (c_void_p, c_void_p, c_void_p, c_size_t),
    "hipGraphRemoveDependencies": (c_void_p, c_void_p, c_void_p, c_size_t),
    "hipGraphAddEventRecordNode": (_HANDLE_OUT, c_void_p, c_void_p, c_size_t, c_void_p),
    "hipGraphAddEventWaitNode": (_HANDLE_OUT, c_void_p, c_void_p, c_size_t, c_void_p),
    "hipGraphClone": (_HANDLE_OUT, c_void_p),
    "hipGraphNodeFindInClone": (_HANDLE_OUT, c_void_p, c_void_p),
    "hipGraphDestroyNode": (c_void_p,),
    "hipGraphDebugDotPrint": (c_void_p, c_char_p, c_uint),
    "hipGraphInstantiateWithFlags": (_HANDLE_OUT, c_void_p, c_ulonglong),
    "hipGraphUpload": (c_void_p, c_void_p),
    "hipGraphLaunch": (c_void_p, c_void_p),
    "hipGraphExecUpdate": (c_void_p, c_void_p, _HANDLE_OUT, _INT_OUT),
    "hipGraphExecDestroy": (c_void_p,),
}
_TEXTS: dict[str, tuple[Any, ...]] = {
    "hipGetErrorString": (c_int,),
    "hipKernelNameRef": (c_void_p,),
    "hipKernelNameRefByPtr": (c_void_p, c_void_p),
}
"""Functions that return a text or NULL instead of a code."""

_PLACES = {
    name: [(at, _OUT[kind]) for at, kind in enumerate(kinds) if kind in _OUT]
    for name, kinds in (_SIGNATURES | _TEXTS).items()
}
"""The positions of the arguments that a function writes through, and the types that it writes."""

_pointing = Lock()


class SeveralLibrariesError(Exception):
    """There are, or would be, two copies of the runtime in the process, each with streams of its own."""


class Library:
    """The runtime's functions, each with the types of its arguments.

    Raises
    ------
    OSError
        There is no library, or it can't be loaded.
    SeveralLibrariesError
        The process has a copy that is not the one hip-python will use.
    """

    __slots__ = ("_handle", "path")

    def __init__(self) -> None:
        self.path = _load()
        self._handle = ctypes.CDLL(self.path)

    def function(self, name: str) -> Any:
        """Return a function.

        Raises
        ------
        AttributeError
            The library does not have it.
        """
        foreign = getattr(self._handle, name)
        if foreign.argtypes is None:
            foreign.restype = c_char_p if name in _TEXTS else c_int
            foreign.argtypes = _TEXTS[name] if name in _TEXTS else _SIGNATURES[name]
        return foreign

    def address(self, name: str) -> int:
        """Return the address of a function that the library has."""
        return ctypes.cast(self.function(name), c_void_p).value or 0


def prepare(name: str, given: tuple[Any, ...], stream_type: Any) -> tuple[list[Any], list[Any]]:
    """Return all arguments of a function, streams as numbers, and the objects that it will write to."""
    arguments = [int(each) if type(each) is stream_type else each for each in given]
    places = []
    for at, kind in _PLACES[name]:
        place = _Mode(int(arguments.pop(at))) if kind is _Mode else kind()
        places.append(place)
        arguments.insert(at, ctypes.byref(place))
    return arguments, places


def import_hip() -> Any:
    """Return hip-python's module of the runtime. Importing it loads no library."""
    try:
        return importlib.import_module("rocm.bindings.hip")
    except ModuleNotFoundError as error:
        if error.name not in ("rocm", "rocm.bindings", "rocm.bindings.hip"):
            raise
        return importlib.import_module("hip.hip")


def mapped_copies() -> list[str]:
    """Return the files of the runtime that are loaded into this process."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            files = {line.split(maxsplit=5)[-1].rstrip("\n") for line in maps if "/" + NAME in line}
    except OSError:
        return []
    return sorted(files)


def _load() -> str:
    """Load the library that hip-python would use, and make hip-python use it. Return its name or path.

    If the process has loaded a copy already, such as torch's, both use that copy.
    """
    hip = import_hip()
    path = _preferred(hip)
    mapped = _only(mapped_copies())
    if mapped and not _is_loaded(path):
        path = mapped[0]
    ctypes.CDLL(path)
    _point(hip, path)
    _only(mapped_copies())
    return path


def _only(copies: list[str]) -> list[str]:
    if len(copies) > 1:
        raise SeveralLibrariesError(" and ".join(copies))
    return copies


def _is_loaded(path: str) -> bool:
    try:
        ctypes.CDLL(path, mode=os.RTLD_NOLOAD)
    except OSError:
        return False
    return True


def _preferred(hip: Any) -> str:
    """Return the library that hip-python would load."""
    loader = _loader(hip)
    if hasattr(loader, "DLL"):
        return os.fsdecode(loader.DLL)
    return os.fsdecode(loader.get_library_path("amdhip64"))


def _point(hip: Any, path: str) -> None:
    """Make hip-python load `path`, unless it has loaded a library already."""
    loader = _loader(hip)
    if hasattr(loader, "DLL"):
        loader.DLL = os.fsencode(path)
        return
    with _pointing:
        found = loader.get_library_path
        loader.get_library_path = lambda name, *more, **how: (
            os.fsencode(path) if name == "amdhip64" else found(name, *more, **how)
        )
        try:
            hip.has_symbol("hipGetDeviceCount")  # opens the library, and keeps it
        finally:
            loader.get_library_path = found


def _loader(hip: Any) -> Any:
    """Return the module of hip-python that says which file it loads on first use."""
    if hip.__name__ == "rocm.bindings.hip":
        return importlib.import_module("rocm.bindings.util.paths")
    return importlib.import_module("hip.chip")
