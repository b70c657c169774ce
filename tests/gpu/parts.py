"""What `verify.py` runs on a GPU: parts of a few minutes each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).resolve().parents[1]

PYTEST = "python -m pytest -q -rfE -p no:cacheprovider"


class Part(NamedTuple):
    """A section of the record, and the command that fills it."""

    title: str
    command: str


def tests(title: str, *arguments: str) -> Part:
    return Part(f"Tests: {title}", " ".join((PYTEST, *arguments)))


def example(title: str, file: str) -> Part:
    return Part(title, f"python examples/{file}")


def programs(name: str, seed: int) -> Part:
    """Return the part that runs random programs by the test class of this name."""
    variables = f"ACCELERATOR_GRAPH_PROGRAMS=2500 ACCELERATOR_GRAPH_PROGRAMS_SEED={seed}"
    command = f"env {variables} {PYTEST} tests/backends/test_programs.py -k {name}"
    return Part(f"2,500 random programs, seed {seed}", command)


def under_tests(names: Sequence[str]) -> list[str]:
    return [f"tests/{name}" for name in names]


def ignoring(names: Sequence[str]) -> list[str]:
    return [f"--ignore=tests/{name}" for name in names]


def files(*patterns: str) -> list[str]:
    """Return the files that patterns name, in the folder of the tests."""
    found = (path for pattern in patterns for path in sorted(TESTS.glob(pattern)))
    return [path.relative_to(TESTS).as_posix() for path in found]


BROKEN_CAPTURES = files("diagnosis/test_broken_captures*.py")
VERIFY_OF_FRAMEWORKS = files("diagnosis/test_torch.py", "diagnosis/test_cupy.py")
DOCTOR = "command_line/test_doctor.py"
"""Two of its tests look at the machine. The others plant an ill in a plug-in, and each of them imports all
frameworks and opens all drivers, which takes long on a GPU and shows nothing about it."""

FOLDERS = (
    "backends",
    "breaks",
    "control",
    "core",
    "diagnosis",
    "driver_rules",
    "compat",
    "examples",
    "graphed",
    "interop",
)
"""Those whose tests run in parts of their own."""
WITHOUT_COPIES = ("graphed/test_bound_inputs_gpu.py", "graphed/test_bound_inputs_cuda.py")
WITHOUT_A_GPU = (
    "test_benchmarks.py",
    "core/test_fast_sanitizers.py",
    "faults",
    "kit",
    "simulators",
    "torch_cpu",
)
"""Tests that a GPU has no part in, and that take their time."""

PARTS = {
    "cuda": {
        "backends": tests("backends", "tests/backends"),
        "core": tests("core", "tests/core", *ignoring(["core/test_fast_sanitizers.py"])),
        "breaks": tests("captures with breaks", "tests/breaks"),
        "control": tests("loops and branches", "tests/control"),
        "driver_rules": tests("the driver's rules", "tests/driver_rules"),
        "compat": tests("torch's names, and frameworks", "tests/compat", "tests/interop"),
        "graphed": tests("graphed functions", "tests/graphed", *ignoring(WITHOUT_COPIES)),
        "inputs": tests("inputs without copies", *under_tests(WITHOUT_COPIES)),
        "broken_captures": tests("which call broke a capture", *under_tests(BROKEN_CAPTURES)),
        "verify": tests("verify, of torch and CuPy", *under_tests(VERIFY_OF_FRAMEWORKS)),
        "doctor": tests("the doctor", *under_tests([DOCTOR]), "-k 'all_is_well or people_read'"),
        "diagnosis": tests(
            "verify, ranks and hangs",
            "tests/diagnosis",
            *ignoring([*BROKEN_CAPTURES, *VERIFY_OF_FRAMEWORKS]),
        ),
        "others": tests("all others", "tests", *ignoring((*FOLDERS, DOCTOR, *WITHOUT_A_GPU))),
        "demo": Part("The demo", "python -m accelerator_graph demo cuda"),
        "speed": Part("How fast it is", "python benchmarks/run.py --backend cuda --quick"),
        "cycles": Part("10,000 cycles", "python benchmarks/cycles.py --backend cuda"),
        "programs": programs("TestCuda", 2),
        "programs3": programs("TestCuda", 3),
    },
    "hip": {
        "tests": tests(
            "the HIP backend",
            "tests/backends/test_conformance.py tests/backends/both/test_same_graphs.py",
            "tests/simulators/hip_on_cuda/itself.py -k 'not TestCpu and not TestCuda and not TestTape'",
        ),
        "demo": Part("The demo", "python -m accelerator_graph demo hip"),
        "speed": Part("How fast it is", "python benchmarks/run.py --backend hip --quick"),
        "cycles": Part("10,000 cycles", "python benchmarks/cycles.py --backend hip"),
        "programs": programs("TestHip", 2),
        "programs3": programs("TestHip", 3),
    },
    "examples": {
        "tests": tests("the examples", "tests/examples"),
        "heat": example("The heat equation", "heat_equation.py"),
        "gradient": example("Conjugate gradient", "conjugate_gradient.py"),
        "decode": example("A transformer's decode loop", "decode_loop.py"),
        "ragged": example("An attention that reads lengths on the host", "ragged_attention.py"),
        "particles": example("Particles", "particles.py"),
        "training": example("A training step", "training_step.py"),
        "frameworks": example("torch, CuPy and Triton in one graph", "three_frameworks.py"),
        "devices": example("A graph for each GPU", "graph_per_gpu.py"),
    },
    "inspection": {
        "tests": tests(
            "profiles and labels",
            "tests/backends/both/test_timing.py tests/core/test_sections.py tests/core/test_profile.py",
            "tests/backends/cuda/test_memory_nodes.py tests/backends/cuda/test_conditional_nodes.py",
        ),
        "rules": tests(
            "the kit's rules",
            "tests/backends/test_conformance.py",
            "-k 'graph_events and Cuda'",
        ),
        "block": Part("A transformer's block of torch", "python tests/gpu/inspected.py block"),
        "solver": Part("The demo's solver", "python tests/gpu/inspected.py solver"),
        "kernels": Part("Single kernels, by CUPTI", "python tests/gpu/inspected.py block --kernels"),
        "costs": Part("What labels and descriptions cost", "python tests/gpu/inspected.py costs"),
    },
    "memory": {
        "serving": Part("A serving set of 35 graphs in one pool", "python tests/gpu/serving_memory.py"),
        "kept": Part("The same, with the graphs kept", "python tests/gpu/serving_memory.py --keep"),
    },
    "breaks": {
        "faults": Part(
            "Faults of captures with breaks, beside Meta's", "python tests/gpu/breaks_beside_peers.py faults"
        ),
        "costs": Part("What they cost, beside others", "python tests/gpu/breaks_beside_peers.py costs"),
        "loops": Part(
            "Loops that the device ends, beside cuda.core's", "python tests/gpu/loops_beside_peers.py"
        ),
    },
    "gpus": {
        "tests": tests("several GPUs", "tests/gpu/test_several_gpus.py", "tests/gpu/test_ranks_of_gpus.py"),
        "devices": Part("A graph for each GPU", "python examples/graph_per_gpu.py"),
        "torch": Part(
            "NCCL in the graph, with torch",
            "python -m torch.distributed.run --nproc-per-node=2 examples/all_reduce_torchrun.py",
        ),
        "mpi": Part("NCCL in the graph, with MPI", "mpiexec -n 2 python examples/all_reduce_mpi.py"),
    },
}

SCOPE = {
    "hip": [
        "",
        "HIP's calls went through the shim in `tests/simulators/hip_on_cuda` to the CUDA driver. This shows",
        "that the backend and hip-python drive a real device: handles, memory, streams, results, the same",
        "graphs as the CUDA backend's. It does not show how AMD's runtime behaves (that is tested on AMD's",
        "own runtime, on the CPU), nor AMD's hardware, nor any speed on it.",
    ]
}
"""Lines that say what a record shows, and what it does not."""
