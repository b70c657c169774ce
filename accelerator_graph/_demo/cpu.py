"""The demo on the ``"cpu"`` backend, where a kernel is any callable."""

from __future__ import annotations

from array import array

import accelerator_graph as ag


class CpuPlate:
    """Two grids in the memory of the process."""

    default_size = 64
    default_steps = 400

    def __init__(self, stream: ag.Stream, initial: array[float], size: int) -> None:
        self.size = size
        self.initial = initial
        self.grids = (initial[:], initial[:])

    def restore(self, stream: ag.Stream) -> None:
        """Copy the initial state into both grids."""
        for grid in self.grids:
            stream.copy(grid, self.initial)

    def diffuse(self, stream: ag.Stream, step: int, first: int, last: int) -> None:
        """Enqueue one step for some rows."""
        source, target = self.grids[step % 2], self.grids[(step + 1) % 2]
        stream.launch(diffuse_rows, source, target, self.size, first, last)

    def read(self) -> bytes:
        """Return the first grid."""
        return self.grids[0].tobytes()

    def close(self) -> None:
        """Do nothing: the memory goes with the object."""


def diffuse_rows(source: array[float], target: array[float], size: int, first: int, last: int) -> None:
    """Write the next state of some rows."""
    for start in range(first * size, last * size, size):
        above = source[start - size + 1 : start - 1]
        row = source[start : start + size]
        below = source[start + size + 1 : start + 2 * size - 1]
        target[start + 1 : start + size - 1] = array(
            "d",
            [
                here + 0.2 * (left + right + up + down - 4.0 * here)
                for left, here, right, up, down in zip(row, row[1:], row[2:], above, below, strict=False)
            ],
        )
