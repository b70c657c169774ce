"""All examples on a GPU, as a user starts them."""

from __future__ import annotations

import shutil
import sys

import pytest

import lanes
from examples.running import EXAMPLES, check, run

pytestmark = lanes.require("gpu")

NEEDS = {
    "conjugate_gradient": ("cupy",),
    "decode_loop": ("torch",),
    "graph_per_gpu": ("torch",),
    "heat_equation": ("cupy",),
    "particles": ("cupy",),
    "ragged_attention": ("cupy",),
    "three_frameworks": ("cupy", "torch", "triton"),
    "training_step": ("torch",),
}


@pytest.mark.parametrize("name", NEEDS)
def test_it_runs(name: str) -> None:
    for module in NEEDS[name]:
        pytest.importorskip(module)
    status, printed, said = run(str(EXAMPLES / f"{name}.py"))
    assert status == 0, printed + said
    check(printed)


@pytest.mark.needs("gpus")
def test_all_reduce_with_torchrun() -> None:
    pytest.importorskip("torch")
    how = ("-m", "torch.distributed.run", "--nproc-per-node=2")
    status, printed, said = run(*how, str(EXAMPLES / "all_reduce_torchrun.py"))
    assert status == 0, printed + said
    check(printed)


@pytest.mark.needs("gpus")
def test_all_reduce_with_mpi() -> None:
    for module in ("torch", "mpi4py"):
        pytest.importorskip(module)
    mpiexec = shutil.which("mpiexec")
    if mpiexec is None:
        pytest.skip("there is no mpiexec")
    status, printed, said = run(
        *("-n", "2", sys.executable, str(EXAMPLES / "all_reduce_mpi.py")), program=mpiexec
    )
    assert status == 0, printed + said
    check(printed)
