"""Whether CUDA could run here: why not, found out without initialising it."""

from types import SimpleNamespace

import pytest

from accelerator_graph import errors
from accelerator_graph.backends._cuda import probe
from accelerator_graph.backends.base import Availability
from accelerator_graph.backends.cuda import CudaBackend
from backends.cuda.fakes import FakeApi
from backends.tools import check_unusable


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
    versions = {"cuda-bindings": "13.0.1", "driver": "13.0"}
    assert CudaBackend.probe() == Availability(True, "", versions, 1, "")


def unusable(machine, monkeypatch, how):
    def load(error):
        def fail(name):
            raise OSError(error)

        monkeypatch.setattr(probe.ctypes, "CDLL", fail)

    match how:
        case "no binding":
            machine.modules.clear()
        case "old binding":
            machine.modules["cuda.bindings"].__version__ = "12.9.0"
        case "of another":
            del machine.modules["cuda.bindings"].__version__
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
    "no binding": 'cuda-python is not installed. Install it with: pip install "cuda-python>=12.9.1,<14"',
    "old binding": "cuda-python 12.9.0 is too old; 12.9.1 is the oldest that works. Install it with: pip",
    "of another": "the package cuda.bindings is not cuda-python's: another distribution",
    "new binding": "cuda-python 14.0.0 is too new",
    "odd version": "looking for CUDA failed with ValueError",
    "broken binding": "cuda-python can't be imported (undefined symbol). Install it with: pip",
    "no library": "no driver library (libcuda.so.1) was found. Install NVIDIA's driver",
    "library needs another": "the driver library can't be loaded (libother.so.1:",
    "no driver": "libcuda.so.1 is not a CUDA driver: it has no cuDriverGetVersion.",
    "link stub": "libcuda.so.1 is only the stub",
    "error": "the driver library answers error 803 to cuDriverGetVersion.",
    "old driver": "the driver only supports CUDA 11.8. Install one for CUDA 12.0 or newer",
    "no device": "no NVIDIA GPU is visible to this process. Attach one, or correct CUDA_VISIBLE_DEVICES",
    "hidden": "no NVIDIA GPU is visible to this process.",
    "minus one": "no NVIDIA GPU is visible to this process.",
}


@pytest.mark.parametrize("how", REASONS)
def test_probe_and_open_give_the_reason(machine, monkeypatch, how):
    unusable(machine, monkeypatch, how)
    check_unusable(CudaBackend, "cuda", REASONS[how])


def test_probe_where_the_system_does_not_tell(machine, monkeypatch):
    def told():
        found = CudaBackend.probe()
        return found.usable, found.devices

    machine.folders.clear()
    assert told() == (True, None)
    machine.folders["/proc/driver/nvidia/gpus"] = ["a", "b"]
    assert told() == (True, 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert told() == (True, None)


def test_open_says_why_the_driver_cannot_be_initialised(machine, monkeypatch):
    for module in (machine.modules["cuda.bindings.driver"], FakeApi()):
        machine.modules["cuda.bindings.driver"] = module
        backend = CudaBackend()
        backend.name = "cuda"
        with pytest.raises(errors.BackendUnavailableError, match=r"can't be initialised|finds no device"):
            backend.open()


def test_a_library_that_is_none(tmp_path, monkeypatch):
    pytest.importorskip("cuda.bindings")
    broken = tmp_path / "libcuda.so.1"
    broken.write_text("no library")
    monkeypatch.setattr(probe, "_LIBRARY", str(broken))
    assert CudaBackend.probe().reason.startswith("the driver library can't be loaded (")
    monkeypatch.setattr(probe, "_LIBRARY", str(tmp_path / "libnone.so.1"))
    assert CudaBackend.probe().reason.startswith("no driver library (")
