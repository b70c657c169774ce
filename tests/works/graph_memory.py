"""The memory that a device keeps for graphs, step by step."""

from __future__ import annotations

from cuda.bindings import driver

from .cuda import call, device
from .graphs import Graphs

_ATTRIBUTES = dict(
    zip(("used", "used_most", "reserved", "reserved_most"), driver.CUgraphMem_attribute, strict=False)
)


class GraphMemory:
    """One graph with memory, its executable, and what there was of graph memory before.

    Calling it takes a step: ``make LINE``, ``instantiate``, ``run``, ``free``, ``exec_destroy``,
    ``graph_destroy``, ``trim``, ``set MARK``; or it checks an amount against that of the start: ``used 0``,
    ``used some``.
    """

    def __enter__(self) -> GraphMemory:
        self._graphs = Graphs().__enter__()
        self("trim")
        for mark in ("used_most", "reserved_most"):
            self("set " + mark)
        self._before = {name: self._amount(name) for name in _ATTRIBUTES}
        return self

    def __exit__(self, *error: object) -> None:
        self._graphs.__exit__()

    def __call__(self, step: str) -> None:
        verb, _, rest = step.partition(" ")
        if verb in _ATTRIBUTES:
            more = self._amount(verb) - self._before[verb]
            assert more == 0 if rest == "0" else more > 0, f"{step}: {more}"
        elif verb == "make":
            self._graph = self._graphs.make(rest)
        elif verb == "instantiate":
            self._executable = self._graphs.instantiate(self._graph)
        elif verb == "run":
            self._graphs.run(self._executable)
        elif verb == "free":
            call(driver.cuMemFree, self._graphs.allocated)
        elif verb == "exec_destroy":
            self._graphs.destroy(self._executable)
        elif verb == "graph_destroy":
            self._graphs.destroy(self._graph)
        elif verb == "trim":
            call(driver.cuDeviceGraphMemTrim, device().number)
        else:
            call(
                driver.cuDeviceSetGraphMemAttribute, device().number, _ATTRIBUTES[rest], driver.cuuint64_t(0)
            )

    def _amount(self, name: str) -> int:
        return int(call(driver.cuDeviceGetGraphMemAttribute, device().number, _ATTRIBUTES[name]))
