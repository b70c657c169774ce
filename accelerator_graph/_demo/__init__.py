"""The demo: the heat equation on a plate, solved step by step, then by replaying one graph.

``accelerator-graph demo`` runs it. Read it as a first example of the library: this module
is the same on every backend. The modules `cpu`, `cuda` and `hip` beside it have the memory and the kernel,
which differ. Other backends bring their own, see `Plate`.

The scheme is the explicit five-point one in double precision, on two grids that take turns:
every step reads one and writes the other. The rim of the plate never changes.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from time import perf_counter
from typing import Protocol

import accelerator_graph as ag

from .._interpreter.terminal import check_file, progress, rows
from .._plugins.hooks import Hook

BUILTINS = {
    "cpu": "accelerator_graph._demo.cpu:CpuPlate",
    "cuda": "accelerator_graph._demo.cuda:CudaPlate",
    "hip": "accelerator_graph._demo.hip:HipPlate",
}

STEPS_PER_GRAPH = 20
"""An even number, so that each replay ends on the grid where the next one begins."""

FOR_TESTING = (
    "cpu graphs are for testing: a replay calls the same Python functions, so these times say "
    "nothing about an accelerator"
)


class Plate(Protocol):
    """The two grids on a stream's device, and the kernel that works on them.

    A plug-in names its class, which need not derive from this one, with an entry point of the backend's
    name::

        [project.entry-points."accelerator_graph.demo"]
        myrt = "myrt_graph.demo:MyPlate"
    """

    default_size: int
    """The number of points along each side of the grid, if the user gives none."""
    default_steps: int
    """The number of steps, if the user gives none: a multiple of `STEPS_PER_GRAPH`."""

    def __init__(self, stream: ag.Stream, initial: array[float], size: int) -> None:
        """Allocate both grids on the stream's device."""

    def restore(self, stream: ag.Stream) -> None:
        """Enqueue the copies that bring both grids back to the initial state."""

    def diffuse(self, stream: ag.Stream, step: int, first: int, last: int) -> None:
        """Enqueue one step for the rows from `first` to before `last`."""

    def read(self) -> bytes:
        """Return the grid that holds the result of an even number of steps. The streams are idle."""

    def close(self) -> None:
        """Release the memory. The streams are idle."""


def enqueue(plate: Plate, size: int, steps: int, stream: ag.Stream, side: ag.Stream) -> None:
    """Enqueue steps: the upper half of the plate on one stream, the lower half on the other."""
    middle = size // 2
    for step in range(steps):
        side.wait(stream)  # fork: both halves need all of the previous step
        plate.diffuse(stream, step, 1, middle)
        plate.diffuse(side, step, middle, size - 1)
        stream.wait(side)  # join


def run(backend: str | None, size: int | None, steps: int | None, output: str | None) -> bool:
    """Solve twice, print times and results, and return True if the results are identical bit for bit.

    `output` is the file for a drawing of the graph.
    """
    if output is not None:
        check_file(output)
    name = best() if backend is None else backend
    with progress(f"opening backend {name}"):
        ag.backends.get(name)  # raises if the backend is unknown or can't run here
    kind = _plates.load(name)
    size = size or kind.default_size
    steps = steps or kind.default_steps

    stream = ag.Stream(backend=name)
    side = ag.Stream(backend=name, like=stream)
    initial = initial_state(size)
    plate = kind(stream, initial, size)
    try:
        # Eagerly: every step is enqueued again, every time.
        def first_steps() -> None:
            enqueue(plate, size, STEPS_PER_GRAPH, stream, side)

        with progress("warming up"):
            timed(plate, stream, first_steps)  # the first launches load the kernel
            about = timed(plate, stream, first_steps) * steps / STEPS_PER_GRAPH
        with progress("solving eagerly", about):
            eager = timed(plate, stream, lambda: enqueue(plate, size, steps, stream, side))
        expected = plate.read()
        if expected == initial.tobytes():
            raise ag.errors.BackendContractError(
                f"the demo's kernel for backend {name!r} has left the plate as it was; let `diffuse` enqueue "
                "work that writes the next state of the rows."
            )

        # As a graph: the steps are enqueued once, while the stream records instead of running them.
        graph = ag.Graph(keep_graph=True)  # kept, so that it can be dumped after instantiate()
        with stream, graph:
            enqueue(plate, size, STEPS_PER_GRAPH, stream, side)
        graph.instantiate()
        if output is not None:
            graph.debug_dump(output)

        launch = graph.bind(stream)  # all decisions are made now; a call only launches

        def replay() -> None:
            for _ in range(steps // STEPS_PER_GRAPH):
                launch()

        with progress("replaying", eager):
            timed(plate, stream, launch)  # the first replay moves the graph to the device
            replayed = timed(plate, stream, replay)
        same = plate.read() == expected

        nodes = graph.num_nodes
        graph.reset()  # before the memory goes: a graph holds addresses
    finally:
        plate.close()
        side.close()
        stream.close()

    def per_step(seconds: float) -> str:
        return f"{seconds / steps * 1e6:8.1f} us per step"

    lines = [
        ("backend", f"{name}, device {stream.device}"),
        ("problem", f"{size} x {size} points, double precision, {steps} steps"),
        ("graph", f"{nodes} nodes for {STEPS_PER_GRAPH} steps, replayed {steps // STEPS_PER_GRAPH} times"),
        ("eager", per_step(eager)),
        ("replayed", f"{per_step(replayed)}, {eager / replayed:.2f} times as fast"),
        ("results", "identical, bit for bit" if same else "DIFFERENT"),
    ]
    if name == "cpu":
        lines.append(("note", FOR_TESTING))
    if output is not None:
        lines.append(("drawing", output))
    print("\n".join(rows(lines)))
    return same


def best() -> str:
    """Return the backend that the user has named; otherwise the best one that the demo has a kernel for."""
    name = ag.backends.resolve(cpu_fallback=True).name
    return name if ag.backends.chosen() or _plates.find(name) else "cpu"


def timed(plate: Plate, stream: ag.Stream, work: Callable[[], None]) -> float:
    """Return how many seconds the work takes from the initial state."""
    plate.restore(stream)
    stream.synchronize()
    begin = perf_counter()
    work()
    stream.synchronize()
    return perf_counter() - begin


def initial_state(size: int) -> array[float]:
    """Return a cold plate with a hot square in the middle and a warmer rim on the left."""
    grid = array("d", bytes(8 * size * size))
    quarter = size // 4
    for y in range(quarter, size - quarter):
        grid[y * size + quarter : (y + 1) * size - quarter] = array("d", [1.0]) * (size - 2 * quarter)
    for y in range(size):
        grid[y * size] = 0.5
    return grid


def missing_members(found: type[Plate]) -> str:
    """Return the end of a sentence that says which members of `Plate` a class lacks; may be empty."""
    names = (*Plate.__annotations__, *(name for name in vars(Plate) if not name.startswith("_")))
    missing = sorted(name for name in names if not hasattr(found, name))
    return f"lacks {', '.join(missing)}; the guide Write a backend lists the members" if missing else ""


_plates: Hook[Plate] = Hook(
    noun="kernel for the demo",
    group="accelerator_graph.demo",
    builtins=BUILTINS,
    problem=missing_members,
)
