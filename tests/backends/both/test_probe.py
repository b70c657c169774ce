"""Looking for CUDA and for HIP initialises and imports nothing."""

import pytest

from accelerator_graph.backends.base import Backend, Capability
from accelerator_graph.backends.cuda import CudaBackend
from accelerator_graph.backends.hip import HipBackend
from backends.tools import MODES, python


@pytest.fixture(params=[CudaBackend, HipBackend])
def backend_class(request):
    return request.param


def imported(backend_class):
    return f"from {backend_class.__module__} import {backend_class.__name__} as Backend\n"


@pytest.mark.parametrize(
    ("backend_class", "modules", "serialises", "lacks"),
    [
        (CudaBackend, {"cuda"}, True, set()),
        (HipBackend, {"hip", "rocm"}, False, {"set_node", "node_times", "conditions"}),
    ],
)
def test_what_the_class_says(backend_class, modules, serialises, lacks):
    assert issubclass(backend_class, Backend)
    assert not backend_class.__abstractmethods__
    assert not hasattr(backend_class(), "__dict__")
    assert backend_class.api_version == 1
    assert backend_class.recording == "stream"
    assert set(backend_class.capture_modes) == set(MODES)
    assert backend_class.capture_modes[0] == "thread_local"
    assert backend_class.stream_modules == modules
    assert backend_class.cuda_like
    assert backend_class.serialises_replays == serialises
    assert backend_class.inherited == set(Capability) - lacks


def test_importing_the_module_imports_no_vendor(backend_class):
    code = (
        "import sys; before = set(sys.modules)\n"
        f"{imported(backend_class)}"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(*sorted(new & {'cuda', 'hip', 'rocm', 'numpy', 'torch'}))"
    )
    assert python(code) == ""


@pytest.mark.parametrize(
    ("backend_class", "package"),
    [(CudaBackend, "cuda-python>=12.9.1,<14"), (HipBackend, "hip-python>=6.4,<11")],
)
def test_a_missing_package_is_a_reason(backend_class, package):
    code = (
        "import sys; sys.modules.update(cuda=None, hip=None, rocm=None)\n"
        f"{imported(backend_class)}"
        "print(Backend.probe().reason)"
    )
    name = package.partition(">")[0]
    assert python(code) == f'{name} is not installed. Install it with: pip install "{package}"'


def test_a_fork_after_probe_can_use_the_device(bench, backend):
    code = (
        f"import os\n{imported(type(backend))}"
        f"from {bench.__name__} import opened\n"
        "assert Backend.probe().usable\n"
        "assert Backend.probe() == Backend.probe()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    status = 1\n"
        "    try:\n"
        "        backend = opened()\n"
        "        backend.destroy_stream(backend.create_stream(0))\n"
        "        status = 0\n"
        "    finally:\n"
        "        os._exit(status)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    assert python(code) == "0"
