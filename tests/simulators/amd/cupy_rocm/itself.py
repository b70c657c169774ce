"""The twins of CuPy's kernels compute what the kernels say; a library of mathematics that is called is named.

tests/simulators/test_cupy_rocm.py runs this on AMD's runtime.
"""

from __future__ import annotations

import os
import signal
import sys

import cupy
import numpy
import pytest

from processes import execute

BLOCKS = r"""
extern "C" __global__ void backwards(const int *source, int *target, int *blocks, signed char step)
{
    __shared__ int row[64];
    int i = threadIdx.y * blockDim.x + threadIdx.x, n = blockDim.x * blockDim.y;
    int block = blockIdx.y * gridDim.x + blockIdx.x;
    row[i] = source[block * n + i];
    __syncthreads();
    target[block * n + i] = row[n - 1 - i] + step;
    if (!i) atomicAdd(blocks, block);
}
"""


def test_threads_of_a_block_wait_for_each_other() -> None:
    kernel = cupy.RawKernel(BLOCKS, "backwards")
    source, target, blocks = cupy.arange(6 * 64, dtype="i4"), cupy.zeros(6 * 64, "i4"), cupy.zeros(1, "i4")
    kernel((3, 2), (16, 4), (source, target, blocks, numpy.int8(-5)))
    expected = numpy.arange(6 * 64).reshape(6, 64)[:, ::-1].ravel() - 5
    assert (target.get() == expected).all()
    assert int(blocks[0]) == 15


def test_code_of_one_name_has_twins_of_its_own() -> None:
    found = []
    for factor in (2, 3):
        source = f'extern "C" __global__ void times(double *x) {{ x[threadIdx.x] *= {factor}; }}'
        x = cupy.arange(4.0)
        cupy.RawKernel(source, "times")((1,), (4,), (x,))
        found.append(x.tolist())
    assert found == [[0, 2, 4, 6], [0, 3, 6, 9]]


@pytest.mark.parametrize("dtype", ["i2", "f4", "c16"])
def test_functions_answer_as_numpys(dtype: str) -> None:
    data = (numpy.arange(60) % 7 + 1).astype(dtype).reshape(3, 4, 5)
    x = cupy.asarray(data)
    found = ((x[:, ::-1] * x).sum(axis=1), (x - 3 == x * 0 + 1).any(axis=(0, 2)), x.transpose().copy())
    expected = (data[:, ::-1] * data).sum(axis=1), (data == 4).any(axis=(0, 2)), data.transpose()
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        assert (one.get() == other).all()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("cupy.ones((2, 2)) @ cupy.ones((2, 2))", "CuPy calls hipblasCreate, of a library that is not there"),
        (
            'cupy.RawKernel(\'#define WAIT(a, b) a##b()\\nextern "C" __global__ void wait() '
            "{ WAIT(__sync, threads); }', 'wait')((1,), (2,), ()); cupy.cuda.Device().synchronize()",
            "software HSA: a twin waits for its block, and its source does not show it",
        ),
    ],
)
def test_a_process_that_needs_more_ends_with_its_name(code: str, message: str) -> None:
    code = f"import simulators.amd.cupy_rocm.twins, cupy; {code}"
    done = execute([sys.executable, "-c", code], env=os.environ)
    assert done.returncode == -signal.SIGABRT
    assert message in done.stderr.splitlines()
