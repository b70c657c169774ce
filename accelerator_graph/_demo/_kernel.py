"""The demo's kernel, in the language that CUDA and HIP have in common."""

SOURCE = rb"""
extern "C" __global__ void diffuse(const double *source, double *target, int size, int first, int last)
{
    int x = 1 + blockIdx.x * blockDim.x + threadIdx.x;
    int y = first + blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= size - 1 || y >= last) return;

    long long i = (long long)y * size + x;
    double here = source[i];
    double around = source[i - 1] + source[i + 1] + source[i - size] + source[i + size];
    target[i] = here + 0.2 * (around - 4.0 * here);
}
"""

BLOCK = (32, 8, 1)
"""Threads of a block."""


def blocks(size: int, first: int, last: int) -> tuple[int, int, int]:
    """Return how many blocks cover the inner points of the rows from `first` to before `last`."""
    return -(-(size - 2) // BLOCK[0]), -(-(last - first) // BLOCK[1]), 1
