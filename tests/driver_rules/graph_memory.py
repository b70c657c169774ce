"""The memory that a device keeps for graphs, step by step."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver

from accelerator_graph.testing.works.cuda import call, device
from driver_rules.graphs import Graphs

MIB = 1 << 20
_ATTRIBUTES = dict(
    zip(("used", "used_most", "reserved", "reserved_most"), driver.CUgraphMem_attribute, strict=False)
)


class GraphMemory:
    """One graph with memory, its executable, and what there was of graph memory before.

    Calling it takes a step, ``make LINE``, ``instantiate``, ``upload``, ``run``, ``sync``, ``free``,
    ``free_on`` (a stream), ``exec_destroy``, ``graph_destroy``, ``trim``, ``set MARK``, and returns it; or it
    looks for an amount, ``used 0``, and returns how many MiB more than at the start there are: ``used 32``.
    """

    def __enter__(self) -> GraphMemory:
        self._graphs = Graphs().__enter__()
        self("trim")
        for mark in ("used_most", "reserved_most"):
            self(f"set {mark}")
        self._before = {name: self._amount(name) for name in _ATTRIBUTES}
        return self

    def __exit__(self, *error: object) -> None:
        self._graphs.__exit__()

    def __call__(self, step: str) -> str:
        verb, _, rest = step.partition(" ")
        if verb in _ATTRIBUTES:
            return f"{verb} {(self._amount(verb) - self._before[verb]) / MIB:g}"
        getattr(self, f"_{verb}")(*filter(None, [rest]))
        return step

    def _amount(self, name: str) -> int:
        return int(call(driver.cuDeviceGetGraphMemAttribute, device(0).number, _ATTRIBUTES[name]))

    # ---- steps ---------------------------------------------------------------------------------

    def _make(self, line: str) -> None:
        self._graph = self._graphs.make(line)

    def _instantiate(self) -> None:
        self._executable = self._graphs.instantiate(self._graph)

    def _upload(self) -> None:
        call(driver.cuGraphUpload, self._executable, self._stream)

    def _run(self) -> None:
        self._graphs.run(self._executable)

    def _sync(self) -> None:
        call(driver.cuStreamSynchronize, self._stream)

    def _free(self) -> None:
        call(driver.cuMemFree, self._graphs.allocated)

    def _free_on(self) -> None:
        call(driver.cuMemFreeAsync, self._graphs.allocated, self._stream)

    def _exec_destroy(self) -> None:
        self._graphs.destroy(self._executable)

    def _graph_destroy(self) -> None:
        self._graphs.destroy(self._graph)

    def _trim(self) -> None:
        call(driver.cuDeviceGraphMemTrim, device(0).number)

    def _set(self, mark: str) -> None:
        call(driver.cuDeviceSetGraphMemAttribute, device(0).number, _ATTRIBUTES[mark], driver.cuuint64_t(0))

    @property
    def _stream(self) -> Any:
        return self._graphs.here.streams["s"]
