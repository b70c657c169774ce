"""The lanes: what tests need beside Python, what a lane proves, and how to run one that can't run here.

A test says what it needs with a marker, a module with `pytestmark = require(...)` above its imports. A test
whose needs are not met is deselected. A test that has no lane, since none offers all that it needs in its
folder, fails. Simulators run in processes of their own: a test that starts one has the marker `starts`, and
reports how many tests ran there. Files not called ``test_`` are run by a test that names them. The summary
at the end of a run names every lane.

A plain run differs from CI's, which sets ACCELERATOR_GRAPH_REQUIRE_LANES, in three ways. It leaves out the
tests that need "rest". It takes samples where CI takes everything: see `SAMPLES`. And a lane that can't run
is left out, where CI fails. The summary says so as well.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import sysconfig
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import count, takewhile
from math import inf
from pathlib import Path
from typing import NamedTuple

import pytest

import browser
from accelerator_graph.backends.cuda import CudaBackend
from accelerator_graph.backends.hip import HipBackend
from simulators.amd import runtime as amd
from simulators.amd.cupy_rocm import environment as cupy_rocm
from simulators.compiling import compiler

TESTS = Path(__file__).resolve().parent

REQUIRED = "ACCELERATOR_GRAPH_REQUIRE_LANES"
"""If this variable is set, a lane that needs no GPU and can't run is a failure. CI sets it."""

SIMULATOR = "ACCELERATOR_GRAPH_TEST_SIMULATOR"
"""The variable that names the simulator of this process: a key of `LANES`."""

SAMPLES = {
    "codes": (4, "of the codes with which a call of a driver can fail"),
    "moments": (32, "of the moments of an operation at which a signal can be handled"),
    "lines": (8, "of the library's lines at which a signal is handled"),
}
"""What a plain run takes one in so many of; which one differs from test to test. CI takes all."""

ANYWHERE = frozenset(("monitoring", "tracing", "no_lock", "rest"))
"""Needs that depend on the Python and on the run: the lanes do not differ in them."""

LEFT_OUT = "left out, needs "
"""Begins the reason of a module that `require` left out."""


class Lane(NamedTuple):
    """A way of running tests."""

    title: str
    proves: str
    needs: frozenset[str]
    """What its tests may need; empty if they are not among the tests of this run."""
    command: str
    """How to run it alone."""
    folders: tuple[str, ...] = ()
    """The folders and modules that it runs, below ``tests``; all if this is empty."""


SHIM = ("backends/test_conformance.py", "backends/both/test_same_graphs.py")
ON_A_GPU = (
    *(
        "backends",
        "breaks",
        "compat",
        "control",
        "core",
        "diagnosis",
        "docs",
        "driver_rules",
        "examples",
        "gpu",
        "graphed",
    ),
    "interop",
)

LANES = {
    "cpu": Lane(
        "cpu",
        "the API, the registry, the kit, the cpu backend",
        frozenset(("cpu", "no_gpu")),
        "python3 dev.py test",
    ),
    "cuda": Lane(
        "software CUDA driver",
        "the CUDA backend, through cuda-python, on a driver written in C",
        frozenset(("cuda", "software_cuda")),
        "python3 dev.py test tests/simulators/test_cuda.py",
        ("backends", "compat", "diagnosis", "driver_rules", "graphed", "interop"),
    ),
    "amd": Lane(
        "AMD's runtime on the CPU",
        "the HIP backend, through hip-python, on AMD's own runtime",
        frozenset(("hip", "amd")),
        "python3 dev.py test tests/simulators/test_amd.py",
        ("backends", "diagnosis", "driver_rules", "graphed"),
    ),
    "cupy_rocm": Lane(
        "CuPy for ROCm on the CPU",
        "captures of CuPy's kernels and memory, on AMD's runtime",
        frozenset(("cupy",)),
        "python3 dev.py test tests/simulators/test_cupy_rocm.py",
        ("diagnosis", "examples", "interop"),
    ),
    "hip_on_cuda": Lane(
        "HIP shim on that driver",
        "the shim that takes the HIP backend to an NVIDIA GPU",
        frozenset(("hip", "shim")),
        "python3 dev.py test tests/simulators/test_hip_on_cuda.py",
        SHIM,
    ),
    "torch_cpu": Lane(
        "torch's CPU build",
        "captures of torch's own functions, modules and autograd",
        frozenset(("torch", "no_gpu")),
        "python3 dev.py test tests/torch_cpu",
        ("compat", "core", "diagnosis", "graphed"),
    ),
    "type_checkers": Lane(
        "pyright",
        "a type for every public symbol, and the types that users see",
        frozenset(("type_checkers",)),
        f"{REQUIRED}=1 python3 dev.py test tests/type_checking",
    ),
    "browser": Lane(
        "a browser",
        "the pages of graphs, in Chromium",
        frozenset(("browser",)),
        f"{REQUIRED}=1 python3 dev.py test tests/inspection/test_browser.py",
    ),
    "mpi": Lane(
        "MPI",
        "graphs of several processes, compared by messages of mpi4py",
        frozenset(("mpi",)),
        "pip install mpi4py mpich, and python3 dev.py test tests/diagnosis/test_ranks_mpi.py",
    ),
    "opencl": Lane(
        "the OpenCL plug-in",
        "command buffers of two versions, and none, on PoCL and on Intel's runtime for the CPU",
        frozenset(),
        "python3 plugins/check.py opencl --runtime pocl, or pocl-off, intel, both",
    ),
    "sycl": Lane(
        "the SYCL plug-in",
        "SYCL's graphs, on Intel's runtime for the CPU",
        frozenset(),
        "python3 plugins/check.py sycl",
    ),
    "rest": Lane(
        "the slow rest",
        "AMD's older runtime; benchmarks, memory checkers and most random programs",
        frozenset(("rest", "no_gpu")),
        f"{REQUIRED}=1 python3 dev.py test",
    ),
    "gpu": Lane(
        "a GPU",
        "results, frameworks and speed on a device",
        frozenset(("cuda", "cupy", "gpu", "torch")),
        "python tests/gpu/verify.py",
        ON_A_GPU,
    ),
    "gpus": Lane(
        "several GPUs",
        "a graph for each device, and collectives",
        frozenset(("cuda", "cupy", "gpu", "gpus", "torch")),
        "python tests/gpu/verify.py --gpus",
        ("examples", "gpu"),
    ),
    "hip_on_gpu": Lane(
        "a GPU through the HIP shim",
        "the HIP backend moving data on a device",
        frozenset(("hip", "shim")),
        "python tests/gpu/verify.py --backend hip",
        SHIM,
    ),
}


SIMULATORS = frozenset(("cuda", "amd", "cupy_rocm", "hip_on_cuda"))
"""The lanes that need a process of their own."""


# ---- what is missing -----------------------------------------------------------------------------


@cache
def lacking(need: str) -> str:
    """Return why this process does not meet a need, as a clause; nothing if it does."""
    match need:
        case "rest":
            return "" if os.environ.get(REQUIRED) else "it is slow, and CI runs it"
        case "monitoring":
            return "" if sys.version_info >= (3, 12) else "this Python has no sys.monitoring"
        case "tracing":
            return "" if sys.version_info < (3, 12) else "this Python has sys.monitoring instead"
        case "no_lock":
            return "" if sysconfig.get_config_var("Py_GIL_DISABLED") else "this Python has its lock"
    if here := os.environ.get(SIMULATOR):
        return "" if need in LANES[here].needs else "another lane runs it"
    cuda, hip = CudaBackend.probe(), HipBackend.probe()
    match need:
        case "cpu":
            return ""
        case "no_gpu":
            return "it stands in for a GPU, and there is one" if cuda.usable else ""
        case "cuda" | "gpu":
            return cuda.reason
        case "gpus":
            return cuda.reason or ("there is one GPU" if cuda.devices == 1 else "")
        case "software_cuda":
            return "this process is not on the software CUDA driver"
        case "hip":
            return hip.reason
        case "amd":
            return "" if "runtime" in hip.versions else "this process is not on AMD's own runtime"
        case "shim":
            return cuda.reason or hip.reason
        case "cupy":
            return cuda.reason if importlib.util.find_spec("cupy") else "CuPy is not installed"
        case "browser":
            return browser.missing() or lacking("rest")
        case "mpi":
            if not importlib.util.find_spec("mpi4py"):
                return "mpi4py is not installed"
            return "" if mpiexec() else "there is no mpiexec"
        case "torch":
            return "" if importlib.util.find_spec("torch") else "torch is not installed"
    raise ValueError(f"{need!r} must be one of the needs of a lane in tests/lanes.py.")


@cache
def missing(simulator: str) -> str:
    """Return why a simulator can't be started here, as a clause; nothing if it can."""
    if not LANES[simulator].needs:
        return "it is a distribution with an environment of its own"
    if simulator == "type_checkers":
        return "" if os.environ.get(REQUIRED) else "pyright is a large download, and CI runs it"
    if simulator == "torch_cpu":
        return "" if sys.platform == "linux" else "torch's CPU build is tried on Linux only"
    if simulator == "amd":
        if importlib.util.find_spec("hip") is None:
            return "hip-python is not installed"
        return amd.missing()
    if simulator == "cupy_rocm":
        return (
            "hip-python is not installed" if importlib.util.find_spec("hip") is None else cupy_rocm.missing()
        )
    if sys.platform != "linux":
        return "the software CUDA driver is for Linux"
    if compiler() is None:
        return "there is no C compiler to build the software CUDA driver with"
    if importlib.util.find_spec("cuda") is None:
        return "cuda-python is not installed"
    if simulator == "hip_on_cuda":
        return "" if importlib.util.find_spec("hip") else "hip-python is not installed"
    return ""


def mpiexec() -> str | None:
    """Return the program that starts the processes of MPI, beside this Python or on the path."""
    return shutil.which("mpiexec", path=os.path.dirname(sys.executable)) or shutil.which("mpiexec")


def lack(reason: str) -> None:
    """Skip the test if there is a reason to, or fail it where every lane is required."""
    if reason:
        (pytest.fail if os.environ.get(REQUIRED) else pytest.skip)(reason)


def require(*needs: str) -> pytest.MarkDecorator:
    """Return the mark of a module with needs. Where they are not met, the module is imported no further."""
    for need in needs:
        if reason := lacking(need):
            pytest.skip(f"{LEFT_OUT}{' '.join(needs)}: {reason}", allow_module_level=True)
    return pytest.mark.needs(*needs)


def step(of: str) -> int:
    """Return which part of something in `SAMPLES` this run takes: one in so many."""
    return 1 if os.environ.get(REQUIRED) else SAMPLES[of][0]


def sample(of: str, upto: float = inf) -> Iterator[int]:
    """Yield which parts of something in `SAMPLES` this test takes, by number: from 1 on, in order."""
    first = 1 + zlib.crc32(os.environ["PYTEST_CURRENT_TEST"].encode()) % step(of)
    return takewhile(upto.__ge__, count(first, step(of)))


def sampled() -> str:
    """Return a clause about what this run takes samples of; nothing if it takes everything."""
    taken = [f"one in {step(of)} {what}" for of, (_, what) in SAMPLES.items() if step(of) > 1]
    return f"tried {', '.join(taken)}; CI tries all" if taken else ""


# ---- what ran ------------------------------------------------------------------------------------


def lanes_of(path: Path, needs: Iterable[str]) -> list[str]:
    """Return the lanes that run a test: by the file that it is in, and what it needs."""
    if not path.name.startswith("test_"):
        return [os.environ.get(SIMULATOR, "cpu")]
    wanted = frozenset(needs) - ANYWHERE
    places = {
        place.relative_to(TESTS).as_posix() for place in (path, *path.parents) if TESTS in place.parents
    }
    return [
        name
        for name, lane in LANES.items()
        if wanted <= lane.needs
        and (name == "cpu" or wanted - {"no_gpu"})
        and (not lane.folders or not places.isdisjoint(lane.folders))
    ]


def lane_here(lanes: Sequence[str]) -> str:
    """Return the lane as which a test is counted that this process runs."""
    return os.environ.get(SIMULATOR) or min(lanes, key=lambda name: name in SIMULATORS)


def homeless(needs: Iterable[str]) -> str:
    """Return a sentence about a test, or a module, that has no lane."""
    return (
        f"no lane in tests/lanes.py runs what needs {' and '.join(sorted(needs))} in this folder, so nobody "
        "would run it; add the folder to a lane, or change the needs."
    )


def summary(ran: Mapping[str, int], left_out: Iterable[str]) -> list[str]:
    """Return the lines about lanes that end a run.

    Parameters
    ----------
    ran : mapping of str to int
        How many tests ran, by lane.
    left_out : iterable of str
        The needs of every test, or module, that was left out; separated by spaces.
    """
    reasons: dict[str, list[str]] = defaultdict(list)
    lines = [
        f"{lane.title:26} {ran[name]:5} tests  {lane.proves}" for name, lane in LANES.items() if ran.get(name)
    ]
    unmet = [frozenset(needs.split()) for needs in left_out]
    for name, lane in LANES.items():
        if not ran.get(name) and (not lane.needs or any(needs <= lane.needs for needs in unmet)):
            reason = lacking(name) if name in ("browser", "gpu", "gpus", "mpi", "rest") else missing(name)
            reason = reason or (lacking("gpu") if "gpu" in name else "") or "its tests were not selected"
            lines.append(f"{lane.title:26}     not run  {lane.proves}; run {lane.command}")
            reasons[reason.partition(". ")[0]].append(lane.title)
    lines += [f"not run, since {reason}: {', '.join(titles)}" for reason, titles in reasons.items()]
    return lines
