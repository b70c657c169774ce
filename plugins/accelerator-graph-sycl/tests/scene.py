"""The scene of the table of rules, and its steps: each is a call to the runtime while a queue captures.

Run as a script with the names of steps: prints a line of JSON for each, after it has been done.

Queue s captures and has recorded one kernel, whose event is `inside`. Queue b captures into another graph,
and `other` is its event. Queue a captures nothing; `outside` is its event, `before` one of s from before its
capture, and `ended` one of a capture that has ended.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from ctypes import byref, c_int, c_size_t, c_uint32, c_uint64
from typing import Any

import dpctl
from accelerator_graph_sycl._contents import KINDS
from accelerator_graph_sycl._library import Handle, Library
from accelerator_graph_sycl.conformance import SOURCE
from dpctl.memory import MemoryUSMShared
from dpctl.program import create_program_from_source

from accelerator_graph.errors import DriverError

LONG = 1 << 26
"""Turns of the kernel's loop that take a tenth of a second or more."""


class Scene:
    def __init__(self) -> None:
        self.library = Library("sycl")
        self.a, self.b, self.s, self.own = (dpctl.SyclQueue(property="in_order") for _ in range(4))
        self.kernel = create_program_from_source(self.own, SOURCE).get_sycl_kernel("work")
        self.cell = MemoryUSMShared(4, queue=self.own)
        memoryview(self.cell)[:] = bytes(4)
        self.memory = MemoryUSMShared(4, queue=self.s)  # its methods use the capturing queue
        ended = self.begin(self.a)
        self.ended = self.work(self.a)
        self.library.call("end", ended.address)
        self.executable = Handle(self.library, "delete_executable")
        self.library.call("finalize", ended.address, byref(self.executable.slot))
        self.running = Handle(self.library, "delete_executable")
        self.outside, self.before = self.work(self.a), self.work(self.s)
        self.a.wait()
        self.s.wait()
        self.graph, self.others, self.past = self.begin(self.s), self.begin(self.b), ended
        self.inside, self.other = self.work(self.s), self.work(self.b)

    def begin(self, queue: Any) -> Handle:
        graph, number = Handle(self.library, "delete"), c_uint64()
        self.library.call("begin", queue.addressof_ref(), byref(graph.slot), byref(number))
        return graph

    def submit(self, queue: Any, after: list[Any] | None = None) -> Any:
        arguments = [self.cell, c_uint32(1), c_uint32(1), c_uint64(0)]
        return queue.submit_async(self.kernel, arguments, [1], None, after)

    def work(self, queue: Any) -> tuple[Any, Handle]:
        """Return dpctl's event of a kernel, and the shim's."""
        event = self.submit(queue)
        return event, self.record(queue)

    def record(self, queue: Any) -> Handle:
        event = Handle(self.library, "delete_event")
        self.library.call("record", queue.addressof_ref(), 0, byref(event.slot))
        return event

    def wait(self, queue: Any, event: tuple[Any, Handle]) -> None:
        self.library.call("wait_event", queue.addressof_ref(), event[1].address, None)

    def joined_then_waited_for(self, *, by_name: bool) -> None:
        """Let queue a join by waiting, and s wait for the latest event of a."""
        graph = self.graph.address if by_name else None
        self.library.call("wait_event", self.a.addressof_ref(), self.inside[1].address, graph)
        latest = self.record(self.a)
        self.library.call("wait_event", self.s.addressof_ref(), latest.address, None)

    def free_in_use(self, *, replayed: bool) -> None:
        """Free memory that a long kernel on queue a is using, and expect that this waited for the kernel."""
        memory = MemoryUSMShared(4, queue=self.own)
        graph = self.begin(self.a) if replayed else None
        self.a.submit_async(self.kernel, [memory, c_uint32(1), c_uint32(1), c_uint64(LONG)], [1])
        if graph is not None:
            self.library.call("end", graph.address)
            self.library.call("finalize", graph.address, byref(self.running.slot))
            self.library.call("replay", self.running.address, self.a.addressof_ref())
        del memory
        _true(self.library.ask("query", self.a.addressof_ref()))

    def kinds(self, graph: Handle) -> Counter[str]:
        if graph.address is None:
            return Counter()
        nodes, edges = c_size_t(), c_size_t()
        self.library.call("size", graph.address, byref(nodes), byref(edges))
        types, pairs = (c_int * nodes.value)(), (c_size_t * (2 * edges.value))()
        self.library.call("nodes", graph.address, types, pairs)
        names = {8: "barrier"}
        return Counter(names.get(each, KINDS[each]) for each in types)

    def value(self) -> int:
        for queue in (self.a, self.b, self.s):
            if not self.library.capture_of(queue):
                self.library.call("synchronize", queue.addressof_ref())
        return int.from_bytes(memoryview(self.cell), "little")

    # ---- what a step has done ------------------------------------------------------------------

    def state(self) -> tuple[Any, ...]:
        return (
            *map(self.library.capture_of, (self.s, self.b, self.a)),
            *map(self.kinds, (self.graph, self.others, self.past)),
            self.value(),
        )

    def answer(self, step: Callable[[Scene], object]) -> str:
        s, b, a, graph, others, past, value = self.state()
        try:
            step(self)
            said = ""
        except DriverError as error:
            said = f"refused {error.code}"
        except Exception as error:
            said = f"refused {type(error).__name__}"
        s_now, b_now, a_now, graph_now, others_now, past_now, value_now = self.state()
        facts = [said]
        changes = (" ", graph_now - graph), (" other: ", others_now - others), (" ended: ", past_now - past)
        for where, more in changes:
            facts += [f"+{where.strip()}{kind}" for kind in more.elements()]
        facts += ["runs"] * (value_now > value)
        for queue, was, now in (("s", s, s_now), ("b", b, b_now), ("a", a, a_now)):
            if was != now:
                facts.append(f"{queue} captures" if now else f"{queue} stops")
        return " ".join(filter(None, facts)) or "nothing"


STEPS: dict[str, Callable[[Scene], object]] = {
    "synchronize s": lambda x: x.library.call("synchronize", x.s.addressof_ref()),
    "query s": lambda x: _true(x.library.ask("query", x.s.addressof_ref())),
    "synchronize a": lambda x: x.library.call("synchronize", x.a.addressof_ref()),
    "query a": lambda x: _true(x.library.ask("query", x.a.addressof_ref())),
    "begin s": lambda x: x.begin(x.s),
    "begin a": lambda x: setattr(x, "more", x.begin(x.a)),
    "end twice": lambda x: [x.library.call("end", x.graph.address) for _ in range(2)],
    "memset s": lambda x: x.library.call("memset", x.s.addressof_ref(), x.cell._pointer, 1, 4),
    "memset s, no bytes": lambda x: x.library.call("memset", x.s.addressof_ref(), x.cell._pointer, 1, 0),
    "memset a": lambda x: x.library.call("memset", x.a.addressof_ref(), x.cell._pointer, 1, 4),
    "finalize": lambda x: x.library.call("finalize", x.graph.address, byref(x.executable.slot)),
    "replay s": lambda x: x.library.call("replay", x.executable.address, x.s.addressof_ref()),
    "replay a": lambda x: x.library.call("replay", x.executable.address, x.a.addressof_ref()),
    "delete executable": lambda x: x.executable.close(),
    "delete the graph": lambda x: x.graph.close(),
    "wait s inside": lambda x: x.wait(x.s, x.inside),
    "wait a inside": lambda x: x.wait(x.a, x.inside),
    "wait b inside": lambda x: x.wait(x.b, x.inside),
    "wait s outside": lambda x: x.wait(x.s, x.outside),
    "wait s before": lambda x: x.wait(x.s, x.before),
    "wait s other": lambda x: x.wait(x.s, x.other),
    "wait s ended": lambda x: x.wait(x.s, x.ended),
    "wait a ended": lambda x: x.wait(x.a, x.ended),
    "wait a outside": lambda x: x.wait(x.a, x.outside),
    "wait s latest of a, which joined": lambda x: x.joined_then_waited_for(by_name=False),
    "wait s latest of a, which joined by name": lambda x: x.joined_then_waited_for(by_name=True),
    "latest event of s": lambda x: x.record(x.s),
    "latest event of a": lambda x: x.record(x.a),
    "latest node of s": lambda x: x.library.ask("joined", x.graph.address, x.s.addressof_ref()),
    "latest node of a": lambda x: x.library.ask("joined", x.graph.address, x.a.addressof_ref()),
    "dpctl wait s": lambda x: x.s.wait(),
    "dpctl wait a": lambda x: x.a.wait(),
    "dpctl submit s": lambda x: x.s.submit(x.kernel, [x.cell, c_uint32(1), c_uint32(1), c_uint64(0)], [1]),
    "dpctl submit_async s": lambda x: x.submit(x.s),
    "dpctl submit_async a": lambda x: x.submit(x.a),
    "dpctl submit_async s after inside": lambda x: x.submit(x.s, [x.inside[0]]),
    "dpctl submit_async s after outside": lambda x: x.submit(x.s, [x.outside[0]]),
    "dpctl submit_async a after inside": lambda x: x.submit(x.a, [x.inside[0]]),
    "dpctl submit_barrier s": lambda x: x.s.submit_barrier(),
    "dpctl submit_barrier s after outside": lambda x: x.s.submit_barrier([x.outside[0]]),
    "dpctl submit_barrier a after inside": lambda x: x.a.submit_barrier([x.inside[0]]),
    "dpctl submit_barrier a after ended": lambda x: x.a.submit_barrier([x.ended[0]]),
    "dpctl memcpy s": lambda x: x.s.memcpy(x.cell, b"\7\0\0\0", 4),
    "dpctl memcpy_async s": lambda x: x.s.memcpy_async(x.cell, b"\7\0\0\0", 4),
    "dpctl memcpy a": lambda x: x.a.memcpy(x.cell, b"\7\0\0\0", 4),
    "dpctl prefetch s": lambda x: x.s.prefetch(x.cell),
    "dpctl mem_advise s": lambda x: x.s.mem_advise(x.cell, 4, 0),
    "dpctl keep_args_alive s": lambda x: x.s._submit_keep_args_alive((x.cell,), [x.inside[0]]),
    "dpctl event wait inside": lambda x: x.inside[0].wait(),
    "dpctl event wait outside": lambda x: x.outside[0].wait(),
    "dpctl event status inside": lambda x: x.inside[0].execution_status,
    "dpctl memory copy_to_host s": lambda x: x.memory.copy_to_host(),
    "dpctl memory copy_from_host s": lambda x: x.memory.copy_from_host(b"\7\0\0\0"),
    "dpctl memory memset s": lambda x: x.memory.memset(7),
    "dpctl memory new s": lambda x: setattr(x, "more", MemoryUSMShared(4, queue=x.s)),
    "dpctl memory free s": lambda x: delattr(x, "memory"),
    "dpctl memory free, in use by a kernel": lambda x: x.free_in_use(replayed=False),
    "dpctl memory free, in use by a replay": lambda x: x.free_in_use(replayed=True),
    "dpctl program s": lambda x: create_program_from_source(x.s, SOURCE),
}


def _true(answer: int) -> None:
    assert answer == 1, answer


if __name__ == "__main__":
    for name in sys.argv[1:]:
        scene = Scene()
        print(json.dumps([name, scene.answer(STEPS[name])]), flush=True)
        scene.graph.close()
        scene.others.close()
