"""Names of kernels that a person can read."""

from __future__ import annotations

import pytest

from accelerator_graph.inspection.names import demangled, short_name

MANGLED = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_"


def test_mangled_names_are_demangled():
    assert demangled(MANGLED).startswith("void at::native::vectorized_elementwise_kernel<4,")
    assert short_name(MANGLED) == "vectorized_elementwise_kernel"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("squash", "squash"),
        ("", ""),
        ("step.<locals>.<lambda>", "<lambda>"),
        ("Solver.step", "Solver.step"),
        ("_Znot_mangled", "_Znot_mangled"),
        ("void cutlass::Kernel2<cutlass::gemm<float, (bool)1>>(Params)", "Kernel2"),
        ("(anonymous namespace)::fill<int>(int*)", "fill"),
    ],
)
def test_short_names(name, short):
    assert short_name(name) == short
