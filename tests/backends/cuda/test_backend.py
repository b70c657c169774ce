"""The CUDA backend: what shows without a device first, then what only a device can show."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import re
import subprocess
import sys
import threading
from enum import IntEnum
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

import accelerator_graph as ag
from accelerator_graph import errors
from accelerator_graph.backends._cuda import nodes as _cuda_nodes
from accelerator_graph.backends._cuda import probe
from accelerator_graph.backends._cuda.driver import Driver, Executable, Graph
from accelerator_graph.backends._cuda.errors import call_broke, call_failed
from accelerator_graph.backends._shared import kernels as _launch
from accelerator_graph.backends.base import Backend, Capability, CaptureStatus
from accelerator_graph.backends.cuda import CudaBackend
from backends.tools import check_forked, in_thread, in_threads_of_one_ident, interrupted

ROOT = Path(__file__).resolve().parents[3]
BACKENDS = ROOT / "accelerator_graph" / "backends"
SOURCES = [BACKENDS / "cuda.py", *sorted((BACKENDS / "_cuda").glob("*.py"))]
MODES = ("global", "thread_local", "relaxed")
TIMEOUT = 60


def python(code):
    """Run code in an interpreter of its own and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")]))),
        },
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# ---- probe and open ------------------------------------------------------------------------------


@pytest.fixture
def machine(monkeypatch):
    """A machine with cuda-python 13.0.1, a driver for CUDA 13.0 and one device, to be spoilt."""
    modules = {
        "cuda.bindings": SimpleNamespace(__version__="13.0.1"),
        "cuda.bindings.driver": SimpleNamespace(),
    }
    folders = {
        "/dev": ["null", "nvidia0", "nvidiactl", "nvidia-uvm"],
        "/proc/driver/nvidia/gpus": ["0000:01:00.0"],
    }
    state = SimpleNamespace(modules=modules, folders=folders, version=13000, code=0)

    def import_module(name):
        if name not in modules:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        if isinstance(modules[name], Exception):
            raise modules[name]
        return modules[name]

    def get_version(address):
        address._obj.value = state.version
        return state.code

    def listdir(folder):
        if folder not in folders:
            raise FileNotFoundError(folder)
        return folders[folder]

    monkeypatch.setattr(probe.importlib, "import_module", import_module)
    monkeypatch.setattr(probe.ctypes, "CDLL", lambda name: SimpleNamespace(cuDriverGetVersion=get_version))
    monkeypatch.setattr(probe.os, "listdir", listdir)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return state


def test_probe_of_a_whole_machine(machine):
    assert CudaBackend.probe() == (True, "", {"cuda-bindings": "13.0.1", "driver": "13.0"}, 1, "")


def unusable(machine, monkeypatch, how):
    def load(error):
        def fail(name):
            raise OSError(error)

        monkeypatch.setattr(probe.ctypes, "CDLL", fail)

    match how:
        case "no binding":
            machine.modules.clear()
        case "old binding":
            machine.modules["cuda.bindings"].__version__ = "12.8.0"
        case "new binding":
            machine.modules["cuda.bindings"].__version__ = "14.0.0"
        case "odd version":
            machine.modules["cuda.bindings"].__version__ = "x"
        case "broken binding":
            machine.modules["cuda.bindings.driver"] = ImportError("undefined symbol")
        case "no library":
            load("libcuda.so.1: cannot open shared object file: No such file or directory")
        case "library needs another":
            load("libother.so.1: cannot open shared object file: No such file or directory")
        case "no driver":
            monkeypatch.setattr(probe.ctypes, "CDLL", lambda name: SimpleNamespace())
        case "link stub":
            machine.code = 34
        case "error":
            machine.code = 803
        case "old driver":
            machine.version = 11080
        case "no device":
            machine.folders.clear()
            machine.folders["/proc/driver/nvidia/gpus"] = []
        case "hidden":
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        case "minus one":
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1,0")


REASONS = {
    "no binding": 'cuda-python is not installed. Install it with: pip install "cuda-python>=12.9,<14"',
    "old binding": "cuda-python 12.8.0 is too old, 12.9 is the oldest that works. Install it with: pip",
    "new binding": "cuda-python 14.0.0 is too new",
    "odd version": "looking for CUDA failed with ValueError",
    "broken binding": "cuda-python can't be imported (undefined symbol). Install it with: pip",
    "no library": "no driver library (libcuda.so.1) was found. Install NVIDIA's driver",
    "library needs another": "the driver library can't be loaded (libother.so.1:",
    "no driver": "libcuda.so.1 is no CUDA driver: it has no cuDriverGetVersion.",
    "link stub": "libcuda.so.1 is only the stub",
    "error": "the driver library answers error 803 to cuDriverGetVersion.",
    "old driver": "the driver supports CUDA 11.8 only. Install one for CUDA 12.0 or newer",
    "no device": "no NVIDIA GPU is visible to this process. Attach one, or correct CUDA_VISIBLE_DEVICES",
    "hidden": "no NVIDIA GPU is visible to this process.",
    "minus one": "no NVIDIA GPU is visible to this process.",
}


@pytest.mark.parametrize("how", REASONS)
def test_probe_and_open_give_the_reason(machine, monkeypatch, how):
    unusable(machine, monkeypatch, how)
    found = CudaBackend.probe()
    assert not found.usable
    assert found.reason.startswith(REASONS[how])
    assert not found.reason.endswith(".")
    backend = CudaBackend()
    backend.name = "cuda"
    with pytest.raises(errors.BackendUnavailableError, match=r"^backend 'cuda' is not available: ") as raised:
        backend.open()
    assert raised.value.reasons == {"cuda": found.reason}


def test_probe_where_the_system_does_not_tell(machine, monkeypatch):
    machine.folders.clear()
    assert CudaBackend.probe()[::3] == (True, None)
    machine.folders["/proc/driver/nvidia/gpus"] = ["a", "b"]
    assert CudaBackend.probe()[::3] == (True, 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert CudaBackend.probe()[::3] == (True, None)


def test_open_says_why_the_driver_cannot_be_initialised(machine, monkeypatch):
    for module in (machine.modules["cuda.bindings.driver"], FakeApi()):
        machine.modules["cuda.bindings.driver"] = module
        backend = CudaBackend()
        backend.name = "cuda"
        with pytest.raises(errors.BackendUnavailableError, match=r"can't be initialised|finds no device"):
            backend.open()


def test_a_missing_package_is_a_reason():
    code = (
        "import sys; sys.modules['cuda'] = None\n"
        "from accelerator_graph.backends.cuda import CudaBackend\n"
        "print(CudaBackend.probe().reason)"
    )
    assert python(code) == REASONS["no binding"]


def test_a_library_that_is_none(tmp_path, monkeypatch):
    pytest.importorskip("cuda.bindings")
    broken = tmp_path / "libcuda.so.1"
    broken.write_text("no library")
    monkeypatch.setattr(probe, "_LIBRARY", str(broken))
    assert CudaBackend.probe().reason.startswith("the driver library can't be loaded (")
    monkeypatch.setattr(probe, "_LIBRARY", str(tmp_path / "libnone.so.1"))
    assert CudaBackend.probe().reason.startswith("no driver library (")


def test_importing_the_module_imports_no_vendor():
    code = (
        "import sys; before = set(sys.modules)\n"
        "from accelerator_graph.backends.cuda import CudaBackend\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(*sorted(new & {'cuda', 'numpy', 'torch'}))"
    )
    assert python(code) == ""


def test_what_the_class_says():
    assert issubclass(CudaBackend, Backend)
    assert not CudaBackend.__abstractmethods__
    assert not hasattr(CudaBackend(), "__dict__")
    assert CudaBackend.api_version == 1
    assert CudaBackend.recording == "stream"
    assert set(CudaBackend.capture_modes) == set(MODES)
    assert CudaBackend.capture_modes[0] == "thread_local"
    assert CudaBackend.stream_modules == {"cuda"}
    assert CudaBackend.cuda_like
    assert CudaBackend().capabilities(0) == set(Capability) - {Capability.CHILD_GRAPHS}


def test_the_binding_has_all_that_is_named():
    driver = pytest.importorskip("cuda.bindings.driver")
    text = "\n".join(path.read_text() for path in SOURCES)
    functions = set(re.findall(r"\bcu[A-Z]\w+", text)) - {"cuGraphGetEdges_v2"}
    assert len(functions) > 30
    assert [name for name in sorted(functions) if not hasattr(driver, name)] == []
    members = set(re.findall(r"\.(CU[A-Z]*_\w+)", text)) | {
        f"CU_STREAM_CAPTURE_MODE_{m.upper()}" for m in MODES
    }
    assert len(members) > 8
    enums = [
        driver.CUresult,
        driver.CUstream_flags,
        driver.CUevent_flags,
        driver.CUstreamCaptureMode,
        driver.CUgraphInstantiate_flags,
        driver.CUgraphDebugDot_flags,
        driver.CUgraphMem_attribute,
    ]
    assert [name for name in sorted(members) if not any(hasattr(enum, name) for enum in enums)] == []
    assert [int(s) for s in driver.CUstreamCaptureStatus] == [0, 1, 2]


# ---- errors --------------------------------------------------------------------------------------


def test_every_code_becomes_one_readable_sentence():
    driver = pytest.importorskip("cuda.bindings.driver")
    for code in driver.CUresult:
        error = call_failed("cuda", "cuCall", code)
        assert (error.code, error.code_name, error.call, error.backend) == (
            int(code),
            code.name,
            "cuCall",
            "cuda",
        )
        assert isinstance(error, errors.OutOfMemoryError) == (int(code) == 2)
        assert re.fullmatch(r"[^\n~]+[^.]\.", str(error)), str(error)
        assert ":py:" not in str(error)
        doc = code.__doc__ or ""
        if "terminated and relaunched" in " ".join(doc.split()):
            assert error.reason == "device_lost"
        assert pickle.loads(pickle.dumps(error)).args == error.args


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (1, "other"),
        (2, "out_of_memory"),
        (201, "other"),
        (214, "device_lost"),
        (401, "other"),
        (700, "device_lost"),
        (701, "other"),
        (709, "device_lost"),
        (719, "device_lost"),
        (900, "illegal_call"),
        (901, "invalidated"),
        (902, "foreign_capture"),
        (903, "foreign_capture"),
        (904, "unjoined"),
        (905, "foreign_capture"),
        (906, "default_stream"),
        (907, "illegal_call"),
        (908, "wrong_thread"),
    ],
)
def test_reasons(code, reason):
    name = IntEnum("CUresult", {"CUDA_ERROR_X": code})
    assert call_failed("cuda", "cuCall", name(code)).reason == reason


def test_an_enum_without_documentation_explains_nothing():
    enum = IntEnum("CUresult", {"CUDA_ERROR_X": 1})
    assert str(call_failed("cuda", "cuCall", enum(1))) == "backend 'cuda': cuCall answered CUDA_ERROR_X (1)."


def test_what_the_binding_raises_is_translated():
    error = call_broke("cuda", "cuCall", RuntimeError("function cuCall is not found"), "12.0")
    assert isinstance(error, errors.UnsupportedError)
    assert str(error) == (
        "the driver, which supports CUDA 12.0, does not have cuCall; install a newer driver."
    )
    error = call_broke("cuda", "cuCall", ValueError("12345 is not a valid CUresult"), "12.0")
    assert (type(error), error.code, error.reason) == (errors.DriverError, 12345, "other")
    assert call_broke("cuda", "cuCall", ValueError("14 is not a valid CUgraphNodeType"), "12.0") is None


# ---- a kernel's geometry and arguments -----------------------------------------------------------


class Pointer:
    def __init__(self, address):
        self.address = address

    def __int__(self):
        return self.address


class OnDevice:
    def __init__(self, address):
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": (1,),
            "typestr": "<f4",
            "version": 3,
        }


class Pair(ctypes.Structure):
    _fields_ = (("a", ctypes.c_int8), ("b", ctypes.c_double))


def packed(args, sizes):
    """The bytes that the driver would copy for arguments of these sizes."""
    arguments = _launch.Arguments(args, Pointer)
    pointers = (ctypes.c_void_p * len(args)).from_address(arguments.pointer)
    return [ctypes.string_at(pointer, size) for pointer, size in zip(pointers, sizes, strict=True)]


def test_arguments_are_packed_as_pointers_to_values():
    args = (
        ctypes.c_int(-3),
        ctypes.c_float(0.5),
        Pair(1, 2.0),
        Pointer(2**40),
        OnDevice(2**41),
        OnDevice(None),
    )
    assert packed(args, (4, 4, ctypes.sizeof(Pair), 8, 8, 8)) == [
        bytes(ctypes.c_int(-3)),
        bytes(ctypes.c_float(0.5)),
        bytes(args[2]),
        (2**40).to_bytes(8, sys.byteorder),
        (2**41).to_bytes(8, sys.byteorder),
        bytes(8),
    ]
    assert _launch.Arguments((), Pointer).pointer == 0


def test_numpy_scalars_have_their_own_width():
    np = pytest.importorskip("numpy")
    args = (
        np.float64(0.1),
        np.float32(0.1),
        np.int8(-1),
        np.bool_(True),
        np.array(7, np.uint16),
        np.float16(2),
    )
    assert packed(args, (8, 4, 1, 1, 2, 2)) == [arg.tobytes() for arg in args]
    with pytest.raises(TypeError, match=r"^argument 0 of the kernel is an array in host memory, which .*\.$"):
        _launch.Arguments((np.zeros(2),), Pointer)


@pytest.mark.parametrize("arg", [3, 0.5, True, 1j])
def test_python_numbers_are_refused(arg):
    with pytest.raises(TypeError, match=rf"^argument 1 .* Python {type(arg).__name__}, .*ctypes\.c_int\(3\)"):
        _launch.Arguments((ctypes.c_int(1), arg), Pointer)


@pytest.mark.parametrize("arg", [None, "x", b"x", [1], object()])
def test_other_arguments_are_refused(arg):
    with pytest.raises(TypeError, match=r"^argument 0 of the kernel is a .* object, which can't be passed; "):
        _launch.Arguments((arg,), Pointer)


def test_a_node_that_the_binding_does_not_know_is_unknown():
    def call(function, node):
        raise ValueError("99 is not a valid CUgraphNodeType")

    assert _cuda_nodes.kind_of(SimpleNamespace(call=call), 1) == "unknown"


def test_extents():
    assert _launch.extent(5, "grid") == (5, 1, 1)
    assert _launch.extent((2, 3), "grid") == (2, 3, 1)
    assert _launch.extent([2, 3, 4], "grid") == (2, 3, 4)
    for wrong in ((), (1, 2, 3, 4), 0, (1, -1), 1 << 32):
        with pytest.raises(ValueError, match=r"^block is "):
            _launch.extent(wrong, "block")
    for wrong in (1.5, "1", None, (1.0,)):
        with pytest.raises(TypeError, match=r"^block is "):
            _launch.extent(wrong, "block")


def test_shared_sizes():
    assert _launch.shared_size(48 << 10) == 48 << 10
    for wrong in (-1, 1 << 32):
        with pytest.raises(ValueError, match=r"^shared_bytes must be "):
            _launch.shared_size(wrong)
    for wrong in (True, 1.0, None):
        with pytest.raises(TypeError, match=r"^shared_bytes must be "):
            _launch.shared_size(wrong)


def test_kernels():
    assert _launch.kernel_handle(4096) == 4096
    assert _launch.kernel_handle(Pointer(4096)) == 4096
    assert _launch.kernel_handle(SimpleNamespace(handle=Pointer(4096))) == 4096
    for wrong in (True, 1.5, "4096", None, print, SimpleNamespace(handle=None)):
        with pytest.raises(TypeError, match="object is no kernel; pass one that"):
            _launch.kernel_handle(wrong)
    with pytest.raises(ValueError, match="0 is not the handle of any kernel"):
        _launch.kernel_handle(Pointer(0))


# ---- contexts, modes and interrupts, on a driver of a few lines ----------------------------------


class FakeApi:
    """One thread, one stream (9) of context 11, and the caller's context 7."""

    CUresult = IntEnum("CUresult", {"CUDA_SUCCESS": 0, "CUDA_ERROR_ILLEGAL_STATE": 401, "CUDA_ERROR_X": 1})
    CUstreamCaptureMode = IntEnum(
        "CUstreamCaptureMode",
        {f"CU_STREAM_CAPTURE_MODE_{mode.upper()}": i for i, mode in enumerate(MODES)},
        start=0,
    )
    CUgraphInstantiate_flags = IntEnum(
        "CUgraphInstantiate_flags",
        {
            "CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH": 1,
            "CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY": 8,
        },
    )

    WITHOUT_VALUES = ("cuGraphLaunch", "cuStreamQuery", "cuGraphUpload")

    def __init__(self):
        self.context = 7
        self.mode = 0
        self.capturing = False
        self.graphs = 0
        self.graph = 21
        self.seen = []
        self.fail = ""

    def __getattr__(self, name):
        if not name.startswith("cu"):
            raise AttributeError(name)

        def answered(*args):
            self.seen.append((name, self.context, int(self.mode)))
            if name == self.fail:
                return (self.CUresult.CUDA_ERROR_X, *[None] * (name not in self.WITHOUT_VALUES))
            return getattr(self, f"_{name}", lambda *args: (self.CUresult.CUDA_SUCCESS,))(*args)

        return answered

    def _cuDriverGetVersion(self):
        return self.CUresult.CUDA_SUCCESS, 12020

    def _cuDeviceGetCount(self):
        return self.CUresult.CUDA_SUCCESS, 0

    def _cuStreamIsCapturing(self, stream):
        return self.CUresult.CUDA_SUCCESS, int(self.capturing)

    def _cuCtxGetCurrent(self):
        return self.CUresult.CUDA_SUCCESS, self.context

    def _cuCtxSetCurrent(self, context):
        self.context = context
        return (self.CUresult.CUDA_SUCCESS,)

    def _cuStreamGetCtx(self, stream):
        return self.CUresult.CUDA_SUCCESS, 11

    def _cuStreamGetDevice(self, stream):
        return self.CUresult.CUDA_SUCCESS, 0

    def _cuCtxGetDevice(self):
        return self.CUresult.CUDA_SUCCESS, 0

    def _cuThreadExchangeStreamCaptureMode(self, mode):
        self.mode, before = mode, self.CUstreamCaptureMode(self.mode)
        return self.CUresult.CUDA_SUCCESS, before

    def _cuStreamBeginCapture(self, stream, mode):
        self.capturing = True
        return (self.CUresult.CUDA_SUCCESS,)

    def _cuStreamEndCapture(self, stream):
        if not self.capturing:
            return self.CUresult.CUDA_ERROR_ILLEGAL_STATE, None
        self.capturing = False
        self.graphs += bool(self.graph)
        return self.CUresult.CUDA_SUCCESS, self.graph

    def _cuGraphDestroy(self, graph):
        self.graphs -= 1
        return (self.CUresult.CUDA_SUCCESS,)

    def _cuGraphInstantiate(self, graph, flags):
        assert flags == 9
        return self.CUresult.CUDA_SUCCESS, 31


@pytest.fixture
def fake(monkeypatch):
    api = FakeApi()
    monkeypatch.setattr("accelerator_graph.backends._cuda.driver.import_driver", lambda: api)
    backend = CudaBackend()
    backend.name = "cuda"
    backend._driver = Driver("cuda")
    api.seen.clear()
    return backend, api


def untouched(api):
    assert (api.context, api.mode) == (7, 0)


def test_calls_run_in_the_right_context_and_mode(fake):
    backend, api = fake
    graph, executable = Graph(21, 11), Executable(31, 11)
    relaxed, plain = MODES.index("relaxed"), MODES.index("global")
    for work, function, mode in [
        (lambda: backend.instantiate(graph), "cuGraphInstantiate", relaxed),
        (lambda: backend.upload(executable, 9), "cuGraphUpload", relaxed),
        (lambda: backend.destroy_executable(Executable(31, 11)), "cuGraphExecDestroy", relaxed),
        (lambda: backend.destroy_graph(Graph(21, 11)), "cuGraphDestroy", relaxed),
        (lambda: backend.destroy_stream(9), "cuStreamDestroy", relaxed),
        (lambda: backend.synchronize(9), "cuStreamSynchronize", plain),
        (lambda: backend.query(9), "cuStreamQuery", plain),
    ]:
        for fail in ("", function):
            api.fail = fail
            api.seen.clear()
            with pytest.raises(errors.DriverError) if fail else contextlib.nullcontext():
                work()
            assert (function, 11, mode) in api.seen
            untouched(api)


def test_a_capture_without_a_graph_was_invalidated(fake):
    backend, api = fake
    api.graph = 0
    with pytest.raises(errors.DriverError) as raised:
        backend.capture_end(backend.capture_begin(9, "global"))
    assert raised.value.reason == "invalidated"
    assert api.graphs == 0


def test_abandoning_twice_asks_the_driver_once(fake):
    backend, api = fake
    token = backend.capture_begin(9, "global")
    backend.capture_abandon(token)
    assert (api.capturing, api.graphs) == (False, 0)
    api.capturing = True  # somebody else's by now
    backend.capture_abandon(token)
    assert api.capturing
    ended = backend.capture_begin(9, "global")
    backend.capture_end(ended)
    backend.capture_abandon(ended)
    assert api.graphs == 1


def test_the_per_thread_stream_of_another_thread_is_left_alone(fake):
    backend, api = fake
    token = backend.capture_begin(2, "global")
    in_thread(lambda: backend.capture_abandon(token))
    assert api.capturing
    backend.capture_abandon(token)
    assert not api.capturing


def test_the_per_thread_stream_of_a_thread_with_the_ident_of_a_dead_one_is_left_alone(fake):
    backend, api = fake

    def healthy(token):
        api.capturing = False  # this thread's own stream, and another one
        mine = backend.capture_begin(2, "global")
        backend.capture_abandon(token)
        assert api.capturing
        backend.capture_abandon(mine)
        assert not api.capturing

    in_threads_of_one_ident(lambda: backend.capture_begin(2, "global"), healthy)


def test_a_refused_begin_ends_nothing(fake):
    backend, api = fake
    api.fail = "cuStreamBeginCapture"
    with pytest.raises(errors.DriverError):
        backend.capture_begin(9, "global")
    assert "cuStreamEndCapture" not in [name for name, *_ in api.seen]


@pytest.mark.parametrize("handle", [0, 1])
def test_the_legacy_stream_is_refused_before_any_call(fake, handle):
    backend, api = fake
    with pytest.raises(
        errors.CaptureError, match=r"^a capture on the legacy stream can't begin: .*own"
    ) as raised:
        backend.capture_begin(handle, "global")
    assert raised.value.reason == "default_stream"
    assert backend.capture_status(handle) is CaptureStatus.NONE
    assert api.seen == []


def test_an_interrupted_begin_leaves_no_capture(fake):
    backend, api = fake
    for at in count(1):
        if not interrupted(lambda: backend.capture_begin(9, "global"), at, __file__):
            break
        assert not api.capturing, at
        assert api.graphs == 0, at
        untouched(api)
    assert api.capturing
    assert at > 20


def test_an_interrupted_end_leaves_neither_capture_nor_graph(fake):
    backend, api = fake
    still = 0
    for at in count(1):
        token = backend.capture_begin(9, "global")
        if not interrupted(lambda: backend.capture_end(token), at, __file__):  # noqa: B023
            break
        still += api.capturing
        backend.capture_abandon(token)
        assert not api.capturing, at
        assert api.graphs == 0, at
        untouched(api)
    assert api.graphs == 1
    assert still <= 2  # where the functions begin, before there is anything to catch it
    assert at > 10


def test_an_interrupt_leaves_context_and_mode_as_they_were(fake):
    backend, api = fake
    for at in count(1):
        if not interrupted(lambda: backend.instantiate(Graph(21, 11)), at, __file__):
            break
        untouched(api)
    assert at > 20


def test_a_bound_replay_tells_what_the_launch_answered(fake):
    backend, api = fake
    replay = backend.bind(Executable(31, 11), 9)
    replay()
    api.fail = "cuGraphLaunch"
    with pytest.raises(
        errors.DriverError, match=r"^backend 'cuda': cuGraphLaunch answered CUDA_ERROR_X \(1\)"
    ):
        replay()
    with pytest.raises(errors.DriverError, match=r"cuGraphLaunch"):
        backend.replay(Executable(31, 11), 9)
    for raised, error in [
        (ValueError("919 is not a valid CUresult"), errors.DriverError),
        (RuntimeError("function cuGraphLaunch is not found"), errors.UnsupportedError),
    ]:

        def launch(executable, stream, raised=raised):
            raise raised

        api.cuGraphLaunch = launch
        with pytest.raises(error, match=r"cuGraphLaunch"):
            backend.bind(Executable(31, 11), 9)()


def test_a_driver_that_is_too_old(fake):
    backend, api = fake

    def missing(*args):
        raise RuntimeError("function is not found")

    api.cuGraphUpload = api.cuStreamGetDevice = missing
    with pytest.raises(
        errors.UnsupportedError, match=r"supports CUDA 12\.2, does not have cuGraphUpload; install"
    ):
        backend.upload(Executable(31, 11), 9)
    assert backend.device_of(9) == 0  # by way of its context
    assert ("cuCtxGetDevice", 11, 0) in api.seen
    untouched(api)


# ---- with a device -------------------------------------------------------------------------------


def cu(function, *args):
    """Call the driver; its values, or an assertion error."""
    code, *values = function(*args)
    assert code == 0, (function.__name__, code)
    return values[0] if len(values) == 1 else values or None


@pytest.fixture(scope="module")
def backend():
    found = CudaBackend.probe()
    if not found.usable:
        pytest.skip(found.reason)
    backend = CudaBackend()
    backend.name = "cuda"
    try:
        backend.open()
    except errors.BackendUnavailableError as error:
        if found.devices is not None:
            raise
        pytest.skip(str(error))
    return backend


@pytest.fixture
def driver(backend):
    return backend._driver.api


@contextlib.contextmanager
def current(driver, context):
    cu(driver.cuCtxPushCurrent, context)
    try:
        yield
    finally:
        cu(driver.cuCtxPopCurrent)


class Block:
    """Device memory in a context of its own choice."""

    def __init__(self, driver, context, nbytes=1024):
        self.driver, self.context, self.nbytes = driver, context, nbytes
        with current(driver, context):
            self.pointer = cu(driver.cuMemAlloc, nbytes)
        self.__cuda_array_interface__ = {
            "data": (int(self.pointer), False),
            "shape": (nbytes,),
            "typestr": "|u1",
            "version": 3,
        }

    def read(self):
        host = bytearray(self.nbytes)
        with current(self.driver, self.context):
            cu(self.driver.cuMemcpyDtoH, host, self.pointer, self.nbytes)
        return bytes(host)

    def free(self):
        with current(self.driver, self.context):
            cu(self.driver.cuMemFree, self.pointer)


@pytest.fixture
def block(backend, driver):
    block = Block(driver, backend._driver.primary_context(0))
    yield block
    block.free()


@pytest.fixture
def stream(backend):
    stream = backend.create_stream(0)
    yield stream
    backend.destroy_stream(stream)


@pytest.fixture
def other(backend):
    stream = backend.create_stream(0)
    yield stream
    backend.destroy_stream(stream)


def recorded(backend, stream, block, value=7, mode="thread_local"):
    """A graph that fills the block."""
    token = backend.capture_begin(stream, mode)
    backend.fill(stream, block, value, None)
    return backend.capture_end(token)


def replayed(backend, graph, stream):
    """Replay a graph twice, the two ways, wait, and release it."""
    executable = backend.instantiate(graph)
    backend.upload(executable, stream)
    backend.bind(executable, stream)()
    backend.replay(executable, stream)
    backend.synchronize(stream)
    backend.destroy_executable(executable)
    backend.destroy_graph(graph)


def everything(backend, stream, block, path):
    """Every method once."""
    device = backend.device_of(stream)
    side = backend.create_stream(device, like=stream, priority=-1)
    backend.fill(stream, block, 1, None)
    data = bytes(range(16))
    backend.copy(stream, block, data, None)
    backend.synchronize(stream)
    assert backend.query(stream)
    for mode in MODES:
        token = backend.capture_begin(stream, mode)
        assert backend.capture_status(stream) is CaptureStatus.ACTIVE
        backend.fill(stream, block, 2, None)
        event = backend.record_event(stream)
        backend.wait_event(side, event)
        backend.destroy_event(event)
        backend.fill(side, block, 3, 8)
        event = backend.record_event(side)
        backend.wait_event(stream, event)
        backend.destroy_event(event)
        graph = backend.capture_end(token)
        assert backend.capture_status(side) is CaptureStatus.NONE
        assert backend.node_count(graph) == len(backend.nodes(graph)[0]) == 2
        assert not backend.single_executable(graph)
        backend.dump(graph, str(path), True)
        replayed(backend, graph, stream)
        backend.capture_abandon(backend.capture_begin(stream, mode))
    assert block.read() == bytes([3] * 8 + [2] * (block.nbytes - 8))
    backend.destroy_stream(side)


def test_a_thread_without_a_context_stays_without(backend, driver, stream, block, tmp_path):
    def work():
        everything(backend, stream, block, tmp_path / "graph.dot")
        fresh = backend.create_stream(0)
        assert backend.device_of(fresh) == 0
        backend.destroy_stream(fresh)
        assert int(cu(driver.cuCtxGetCurrent)) == 0
        assert int(driver.cuCtxPopCurrent()[0]) == 201  # nothing on the stack

    in_thread(work)


def new_context(driver, device=0):
    handle = cu(driver.cuDeviceGet, device)
    try:
        return cu(driver.cuCtxCreate, None, 0, handle)  # since CUDA 13
    except TypeError:
        return cu(driver.cuCtxCreate, 0, handle)


def test_a_callers_contexts_are_left_as_they_were(backend, driver, stream, block, tmp_path):
    def work():
        below = backend._driver.primary_context(backend.device_count() - 1)
        cu(driver.cuCtxPushCurrent, below)
        above = new_context(driver)  # current from now on
        try:
            everything(backend, stream, block, tmp_path / "graph.dot")
            token = backend.capture_begin(stream, "thread_local")
            for fails in (lambda: backend.synchronize(stream), lambda: backend.capture_end(token)):
                with pytest.raises(errors.DriverError):
                    fails()
            assert int(cu(driver.cuCtxPopCurrent)) == int(above)
            assert int(cu(driver.cuCtxPopCurrent)) == int(below)
            assert int(driver.cuCtxPopCurrent()[0]) == 201
        finally:
            cu(driver.cuCtxDestroy, above)

    in_thread(work)


def stream_context(driver, stream):
    return cu(driver.cuStreamGetCtx, stream)


def test_a_foreign_stream_keeps_its_own_context(backend, driver, stream, tmp_path):
    own, context = stream, new_context(driver)
    foreign = cu(driver.cuStreamCreate, 0)
    cu(driver.cuCtxPopCurrent)
    block = Block(driver, context)
    try:
        stream = backend.as_stream(int(foreign))
        in_thread(lambda: everything(backend, stream, block, tmp_path / "graph.dot"))
        token = backend.capture_begin(stream, "thread_local")
        assert int(token.context) == int(context)
        backend.capture_abandon(token)
        side = backend.create_stream(0, like=stream)
        assert int(stream_context(driver, side)) == int(context)
        assert backend.context_id(side) == backend.context_id(stream) != backend.context_id(own)
        backend.destroy_stream(side)
    finally:
        block.free()
        cu(driver.cuStreamDestroy, foreign)
        cu(driver.cuCtxDestroy, context)


def test_as_stream(backend, driver, stream):
    runtime = pytest.importorskip("cuda.bindings.runtime")
    assert backend.as_stream(stream) is stream
    for same in (int(stream), runtime.cudaStream_t(int(stream)), driver.CUstream(int(stream))):
        found = backend.as_stream(same)
        assert type(found) is driver.CUstream
        assert backend.handle_int(found) == int(stream)
    for none in (True, -1, 1 << 64, 1.0, "0", None, object(), driver.CUevent(int(stream))):
        assert backend.as_stream(none) is None
    assert int(backend.as_stream(0)) == 0
    assert backend.current_stream(0) is None


def test_streams_are_non_blocking_and_their_priority_is_clamped(backend, driver):
    with current(driver, backend._driver.primary_context(0)):
        least, greatest = cu(driver.cuCtxGetStreamPriorityRange)
    for asked, given in [(-1000, greatest), (1000, least), (0, 0)]:
        stream = backend.create_stream(0, priority=asked)
        assert cu(driver.cuStreamGetPriority, stream) == given
        assert cu(driver.cuStreamGetFlags, stream) == 1
        backend.destroy_stream(stream)


def test_a_device_that_is_not_there(backend):
    with pytest.raises(errors.DriverError) as raised:
        backend.create_stream(1000)
    assert raised.value.code == 101


@pytest.mark.parametrize("mode", MODES)
def test_the_per_thread_stream_captures(backend, driver, block, mode):
    def work():
        stream = backend.as_stream(2)
        assert backend.device_of(stream) == 0
        replayed(backend, recorded(backend, stream, block, 9, mode), stream)

    def work_with_context():
        with current(driver, backend._driver.primary_context(0)):
            work()

    in_thread(work_with_context)
    assert block.read() == bytes([9] * block.nbytes)
    in_thread(work)


@pytest.mark.parametrize("handle", [0, 1])
def test_the_legacy_stream_never_captures(backend, driver, stream, block, handle):
    with current(driver, backend._driver.primary_context(0)):
        blocking = cu(driver.cuStreamCreate, 0)
    token = backend.capture_begin(blocking, "thread_local")
    legacy = backend.as_stream(handle)
    with pytest.raises(errors.CaptureError):
        backend.capture_begin(legacy, "thread_local")
    assert backend.capture_status(legacy) is CaptureStatus.NONE
    assert backend.capture_info(legacy) is None
    backend.fill(blocking, block, 1, None)
    backend.destroy_graph(backend.capture_end(token))
    backend.destroy_stream(blocking)


@pytest.mark.parametrize(
    ("mode", "here", "elsewhere"),
    [("global", False, False), ("thread_local", False, True), ("relaxed", True, True)],
)
def test_modes_say_which_threads_may_allocate(backend, driver, stream, block, mode, here, elsewhere):
    allocated = []

    def allocate():
        with current(driver, backend._driver.primary_context(0)):
            code, pointer = driver.cuMemAlloc(64)
        if code == 0:
            allocated.append(pointer)
        return int(code)

    for call, allowed in [(allocate, here), (lambda: in_thread(allocate), elsewhere)]:
        token = backend.capture_begin(stream, mode)
        backend.fill(stream, block, 4, None)
        assert call() == (0 if allowed else 900)
        if allowed:
            replayed(backend, backend.capture_end(token), stream)
            continue
        assert backend.capture_status(stream) is CaptureStatus.INVALIDATED
        with pytest.raises(errors.DriverError) as raised:
            backend.capture_end(token)
        assert (raised.value.reason, raised.value.code) == ("invalidated", 901)
        assert backend.capture_status(stream) is CaptureStatus.NONE
    replayed(backend, recorded(backend, stream, block, 5, mode), stream)
    assert block.read() == bytes([5] * block.nbytes)
    with current(driver, backend._driver.primary_context(0)):
        for pointer in allocated:
            cu(driver.cuMemFree, pointer)


def test_what_breaks_a_capture_is_said(backend, stream, other, block):
    token = backend.capture_begin(stream, "thread_local")
    with pytest.raises(errors.DriverError) as raised:
        backend.capture_begin(stream, "thread_local")
    assert raised.value.code == 401
    assert backend.capture_status(stream) is CaptureStatus.ACTIVE
    with pytest.raises(errors.DriverError) as raised:
        backend.synchronize(stream)
    assert raised.value.reason == "illegal_call"
    with pytest.raises(errors.DriverError) as raised:
        backend.capture_end(token)
    assert raised.value.reason == "invalidated"

    token = backend.capture_begin(stream, "thread_local")
    backend.fill(stream, block, 1, None)
    event = backend.record_event(stream)
    backend.wait_event(other, event)
    backend.destroy_event(event)
    backend.fill(other, block, 1, None)
    with pytest.raises(errors.DriverError) as raised:
        backend.capture_end(token)
    assert raised.value.reason == "unjoined"
    assert backend.capture_status(other) is CaptureStatus.NONE

    executable = backend.instantiate(graph := recorded(backend, stream, block))
    token = backend.capture_begin(stream, "thread_local")
    with pytest.raises(errors.DriverError) as raised:
        backend.replay(executable, stream)
    assert raised.value.reason == "illegal_call"
    backend.capture_abandon(token)
    assert backend.capture_status(stream) is CaptureStatus.NONE
    backend.destroy_executable(executable)
    backend.destroy_graph(graph)


@pytest.mark.parametrize("mode", MODES)
def test_a_capture_is_abandoned_from_anywhere(backend, stream, block, mode):
    def begin():
        token = backend.capture_begin(stream, mode)
        backend.fill(stream, block, 1, None)
        return token

    for abandon, started in [
        (backend.capture_abandon, begin),
        (lambda token: in_thread(lambda: backend.capture_abandon(token)), begin),
        (backend.capture_abandon, lambda: in_thread(begin)),  # a thread that has ended
    ]:
        token = started()
        assert backend.capture_status(stream) is CaptureStatus.ACTIVE
        abandon(token)
        assert backend.capture_status(stream) is CaptureStatus.NONE
        abandon(token)
        replayed(backend, recorded(backend, stream, block, 6, mode), stream)
    assert block.read() == bytes([6] * block.nbytes)


@pytest.mark.parametrize("where", [lambda work: work(), in_thread], ids=["same thread", "other thread"])
@pytest.mark.parametrize("mode", MODES)
def test_housekeeping_breaks_no_capture(backend, stream, other, block, mode, where):
    def housekeeping():
        side = backend.create_stream(0)
        executable = backend.instantiate(kept)
        backend.upload(executable, other)
        backend.replay(executable, other)
        event = backend.record_event(other)
        backend.wait_event(side, event)
        backend.destroy_event(event)
        backend.destroy_executable(executable)
        backend.nodes(kept)
        backend.destroy_graph(kept)
        backend.destroy_stream(side)

    kept = recorded(backend, other, block, 1)
    token = backend.capture_begin(stream, mode)
    where(housekeeping)
    assert backend.capture_status(stream) is CaptureStatus.ACTIVE
    backend.fill(stream, block, 8, None)
    graph = backend.capture_end(token)
    backend.synchronize(other)
    replayed(backend, graph, stream)
    assert block.read() == bytes([8] * block.nbytes)


def test_the_callers_capture_mode_is_left_as_it_was(backend, driver, stream, block):
    modes = driver.CUstreamCaptureMode
    for name in MODES:
        mode = getattr(modes, f"CU_STREAM_CAPTURE_MODE_{name.upper()}")
        before = cu(driver.cuThreadExchangeStreamCaptureMode, mode)
        replayed(backend, recorded(backend, stream, block), stream)
        assert cu(driver.cuThreadExchangeStreamCaptureMode, before) == mode


def diamond(backend, stream, other, work):
    """Capture four pieces of work: the first, two side by side, the last."""
    token = backend.capture_begin(stream, "thread_local")
    work(stream, 0)
    event = backend.record_event(stream)
    backend.wait_event(other, event)
    backend.destroy_event(event)
    work(other, 1)
    work(stream, 2)
    event = backend.record_event(other)
    backend.wait_event(stream, event)
    backend.destroy_event(event)
    work(stream, 3)
    return backend.capture_end(token)


def test_nodes_and_edges_of_a_forked_graph(backend, stream, other, block):
    def work(stream, n):
        if n == 0:
            backend.copy(stream, block, int(block.pointer) + 512, 8)
        else:
            backend.fill(stream, block, n, None)

    graph = diamond(backend, stream, other, work)
    check_forked(backend, graph)
    backend.destroy_graph(graph)


def test_an_empty_graph(backend, stream):
    graph = backend.capture_end(backend.capture_begin(stream, "thread_local"))
    assert backend.nodes(graph) == ([], [])
    assert backend.node_count(graph) == 0
    replayed(backend, graph, stream)


def test_dump(backend, stream, block, tmp_path):
    graph = recorded(backend, stream, block)
    plain, verbose = tmp_path / "pläin.dot", tmp_path / "verbose.dot"
    backend.dump(graph, str(plain), False)
    backend.dump(graph, str(verbose), True)
    assert plain.read_text().startswith("digraph")
    assert verbose.read_text() != plain.read_text()
    with pytest.raises(errors.DriverError):
        backend.dump(graph, str(tmp_path / "none" / "x.dot"), False)
    backend.destroy_graph(graph)


def test_copy_and_fill(backend, driver, stream, block):
    host = bytearray(b"abcdefgh" * 128)
    backend.copy(stream, block, host, None)
    backend.synchronize(stream)
    assert block.read() == host
    backend.fill(stream, block.pointer, 0, 4)  # a CUdeviceptr
    backend.fill(stream, int(block.pointer) + 4, 255, 2)
    backend.fill(stream, block, 1, 0)
    back = bytearray(8)
    backend.copy(stream, back, block, 8)
    backend.synchronize(stream)
    assert back == b"\0\0\0\0\xff\xffgh"
    with pytest.raises(ValueError, match="1024"):
        backend.copy(stream, back, block, None)
    with pytest.raises(ValueError, match="read-only"):
        backend.copy(stream, bytes(8), block, 8)


def allocating(backend, driver, stream, block, free):
    """A graph that allocates memory, fills it, copies it to the block and may free it; the memory."""
    with current(driver, block.context):
        token = backend.capture_begin(stream, "thread_local")
        pointer = cu(driver.cuMemAllocAsync, 1 << 20, stream)
        backend.fill(stream, pointer, 3, block.nbytes)
        backend.copy(stream, block, pointer, block.nbytes)
        if free:
            cu(driver.cuMemFreeAsync, pointer, stream)
        return backend.capture_end(token), pointer


def test_memory_nodes_allow_one_executable(backend, driver, stream, block):
    graph, _ = allocating(backend, driver, stream, block, free=True)
    assert backend.single_executable(graph)
    kinds = sorted(node.kind for node in backend.nodes(graph)[0])
    assert kinds == ["mem_alloc", "mem_free", "memcpy", "memset"]
    executable = backend.instantiate(graph)
    with pytest.raises(errors.DriverError):
        backend.instantiate(graph)
    backend.destroy_executable(executable)
    replayed(backend, graph, stream)
    assert block.read() == bytes([3] * block.nbytes)

    plain = recorded(backend, stream, block)
    assert not backend.single_executable(plain)
    first = backend.instantiate(plain)
    replayed(backend, plain, stream)
    backend.destroy_executable(first)


def test_graph_that_only_frees_can_be_instantiated_again(backend, driver, stream, block):
    """The driver allows it one executable at a time, as it does graphs that allocate."""
    allocates, pointer = allocating(backend, driver, stream, block, free=False)
    executable = backend.instantiate(allocates)
    frees = ag.Graph(keep_graph=True, stream=ag.Stream(backend="cuda", like=stream))
    with frees, current(driver, block.context):
        cu(driver.cuMemFreeAsync, pointer, frees.stream.native)
    for _ in range(2):
        frees.instantiate()
        backend.replay(executable, stream)
        frees.replay(stream)
        backend.synchronize(stream)
    backend.destroy_executable(executable)
    backend.destroy_graph(allocates)


def test_memory_that_a_graph_leaves_is_freed_by_its_next_replay(backend, driver, stream, block):
    graph, pointer = allocating(backend, driver, stream, block, free=False)
    assert backend.single_executable(graph)
    executable = backend.instantiate(graph)
    for _ in range(3):
        backend.replay(executable, stream)
    backend.synchronize(stream)
    assert block.read() == bytes([3] * block.nbytes)
    with current(driver, block.context):
        cu(driver.cuMemFreeAsync, pointer, stream)
    backend.synchronize(stream)
    backend.destroy_executable(executable)
    backend.destroy_graph(graph)


def test_a_stream_that_works_is_not_done(backend, driver, stream):
    gate = threading.Event()
    passed = []
    wait = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: passed.append(gate.wait(TIMEOUT)))
    host_function = driver.CUhostFn(_ptr=ctypes.addressof(wait))
    with current(driver, backend._driver.primary_context(0)):
        cu(driver.cuLaunchHostFunc, stream, host_function, 0)
    assert backend.query(stream) is False
    gate.set()
    backend.synchronize(stream)
    assert backend.query(stream) is True
    assert passed == [True]


def test_every_device(backend, driver):
    if backend.device_count() < 2:
        pytest.skip("there is one device only")

    def work():
        for device in reversed(range(backend.device_count())):
            stream = backend.create_stream(device)
            block = Block(driver, backend._driver.primary_context(device))
            assert backend.device_of(stream) == device
            graph = recorded(backend, stream, block, device + 1)
            assert int(graph.context) == int(backend._driver.primary_context(device))
            replayed(backend, graph, stream)
            assert block.read() == bytes([device + 1] * block.nbytes)
            block.free()
            backend.destroy_stream(stream)

    in_thread(work)
    with current(driver, backend._driver.primary_context(0)):
        work()


def test_a_fork_after_probe_can_use_the_device(backend):
    code = (
        "import os\n"
        "from accelerator_graph.backends.cuda import CudaBackend\n"
        "assert CudaBackend.probe().usable\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    status = 1\n"
        "    try:\n"
        "        backend = CudaBackend(); backend.name = 'cuda'; backend.open()\n"
        "        backend.destroy_stream(backend.create_stream(0))\n"
        "        status = 0\n"
        "    finally:\n"
        "        os._exit(status)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    assert python(code) == "0"


# ---- with a device and NVRTC ---------------------------------------------------------------------

SOURCE = rb"""
struct pair { signed char a; double b; };
extern "C" __global__ void store(double *out, int n, float f, pair p)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = i * f + p.a + p.b;
}
extern "C" __global__ void geometry(unsigned *out)
{
    extern __shared__ unsigned shared[];
    unsigned dynamic;
    asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(dynamic));
    shared[0] = dynamic;
    out[0] = gridDim.x; out[1] = gridDim.y; out[2] = gridDim.z;
    out[3] = blockDim.x; out[4] = blockDim.y; out[5] = blockDim.z; out[6] = shared[0];
}
"""


@pytest.fixture(scope="module")
def module(backend):
    driver = backend._driver.api
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc")
    which = driver.CUdevice_attribute
    device = cu(driver.cuDeviceGet, 0)
    major = cu(driver.cuDeviceGetAttribute, which.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)
    minor = cu(driver.cuDeviceGetAttribute, which.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)
    try:
        program = cu(nvrtc.nvrtcCreateProgram, SOURCE, b"kernels.cu", 0, [], [])
    except RuntimeError as error:
        pytest.skip(f"NVRTC can't be loaded: {error}")
    options = [f"--gpu-architecture=sm_{major}{minor}".encode()]
    (code,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    log = bytearray(cu(nvrtc.nvrtcGetProgramLogSize, program))
    cu(nvrtc.nvrtcGetProgramLog, program, log)
    assert code == 0, log.decode()
    binary = bytearray(cu(nvrtc.nvrtcGetCUBINSize, program))
    cu(nvrtc.nvrtcGetCUBIN, program, binary)
    cu(nvrtc.nvrtcDestroyProgram, program)
    context = backend._driver.primary_context(0)
    with current(driver, context):
        module = cu(driver.cuModuleLoadData, bytes(binary))
        library = cu(driver.cuLibraryLoadData, bytes(binary), [], [], 0, [], [], 0)
    yield SimpleNamespace(
        store=cu(driver.cuModuleGetFunction, module, b"store"),
        geometry=cu(driver.cuModuleGetFunction, module, b"geometry"),
        kernel=cu(driver.cuLibraryGetKernel, library, b"store"),
    )
    with current(driver, context):
        cu(driver.cuLibraryUnload, library)
        cu(driver.cuModuleUnload, module)


def doubles(block):
    return list(memoryview(block.read()).cast("d"))


def test_a_kernel_gets_its_arguments(backend, stream, block, module):
    expected = [i * 0.5 + 3 + 0.25 for i in range(128)]
    for kernel in (module.store, int(module.store), module.kernel, SimpleNamespace(handle=module.store)):
        for out in (block, block.pointer, ctypes.c_void_p(int(block.pointer))):
            backend.fill(stream, block, 0, None)
            args = (out, ctypes.c_int(128), ctypes.c_float(0.5), Pair(3, 0.25))
            backend.launch(stream, kernel, *args, grid=2, block=64)
            backend.synchronize(stream)
            assert doubles(block) == expected


def test_a_kernel_gets_numpy_scalars(backend, stream, block, module):
    np = pytest.importorskip("numpy")
    pair = np.zeros((), np.dtype([("a", "i1"), ("b", "f8")], align=True))
    pair["a"], pair["b"] = 3, 0.25
    args = (block, np.int32(128), np.float32(0.5), pair)
    backend.launch(stream, module.store, *args, grid=(2,), block=[64, 1])
    backend.synchronize(stream)
    assert doubles(block) == [i * 0.5 + 3 + 0.25 for i in range(128)]


def test_the_geometry_of_a_launch(backend, stream, block, module):
    backend.launch(stream, module.geometry, block, grid=(2, 3, 4), block=(8, 4, 2), shared_bytes=128)
    backend.synchronize(stream)
    assert list(memoryview(block.read()).cast("I"))[:7] == [2, 3, 4, 8, 4, 2, 128]
    with pytest.raises(errors.DriverError):
        backend.launch(stream, module.geometry, block, grid=1, block=100_000)


def test_a_recorded_kernel_keeps_the_values_of_its_arguments(backend, stream, block, module):
    n = ctypes.c_int(128)
    token = backend.capture_begin(stream, "thread_local")
    backend.launch(stream, module.store, block, n, ctypes.c_float(0.5), Pair(3, 0.25), grid=2, block=64)
    graph = backend.capture_end(token)
    n.value = 0
    backend.fill(stream, block, 0, None)
    replayed(backend, graph, stream)
    assert doubles(block) == [i * 0.5 + 3 + 0.25 for i in range(128)]


def test_the_names_of_kernels(backend, stream, other, block, module):
    kernels = (module.store, module.geometry, module.kernel, module.store)

    def work(stream, n):
        if n == 1:
            backend.launch(stream, kernels[n], block, grid=1, block=1, shared_bytes=4)
        else:
            args = (block, ctypes.c_int(0), ctypes.c_float(0), Pair(0, 0))
            backend.launch(stream, kernels[n], *args, grid=1, block=1)

    graph = diamond(backend, stream, other, work)
    nodes, edges = backend.nodes(graph)
    assert (
        sorted((node.kind, node.name) for node in nodes)
        == [("kernel", "geometry")] + [("kernel", "store")] * 3
    )
    assert len(edges) == 4
    backend.destroy_graph(graph)
