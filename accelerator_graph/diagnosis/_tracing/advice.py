"""What calls do that break captures, and the way out for each."""

from __future__ import annotations

import re
from typing import NamedTuple


class Advice(NamedTuple):
    """What a call does, as a clause that follows its name, and the way out."""

    effect: str
    way_out: str


_MOVE = "call it before the capture or after a replay"

_BY_NAME = [
    (
        r"item|tolist|__bool__|__float__|__int__|__index__|is_nonzero|equal|allclose",
        "needs a value on the host, and has to wait for it",
        "leave the value on the device (where() instead of if), or read it after a replay",
    ),
    (
        r"nonzero|masked_select|unique|unique_consecutive|_unique2|argwhere|bincount|flatnonzero",
        "has a result whose size only the device knows, and has to wait for it",
        "use an operation whose result has a fixed size, such as where() with three arguments",
    ),
    (
        r"cpu|numpy|get|asnumpy|toDlpack|__array__",
        "copies to ordinary host memory, and has to wait for it",
        "copy after a replay, or into pinned memory without waiting for it",
    ),
    (
        r"(cu|cuda|hip)?(Ctx|Device)Synchronize|_(cuda|accelerator)_synchronize\w*|deviceSynchronize",
        "waits for the whole device, which breaks the captures of all threads",
        "wait for a stream or an event, after a replay; in another thread, keep it away from captures with "
        "a lock",
    ),
    (r"\w*[sS]ynchronize", "waits for work that is only being recorded", _MOVE),
    (r"\w*(Stream|Event)Query|query|done", "asks whether work is done that is only being recorded", _MOVE),
    (
        r"(cu|hip)Stream(GetId|GetFlags|GetDevice)(_v2)?|(cuda|hip)StreamGet(Id|Flags|Device)",
        "asks about a stream that is being captured, which the driver refuses",
        "ask before the capture",
    ),
    (
        r"(cu|cuda|hip)(Mem)?(Host)?(Alloc|Malloc)(?!\w*Async)\w*|_?pin_memory|malloc|mallocManaged|hostAlloc",
        "allocates memory from the driver",
        "allocate before the capture, or through a framework that takes its memory from the graph's pool",
    ),
    (
        r"(cu|cuda|hip)(Mem)?(Host)?Free(?!\w*Async)\w*|\w*MemPoolTrimTo|empty_cache|_cuda_emptyCache|free|freeHost",
        "gives memory back to the driver, which waits for the device",
        "free it after the capture",
    ),
    (
        r"(cu|cuda|hip)Mem(cpy|set)(?!\w*Async)\w*|memcpy|memset",
        "goes to the legacy default stream, and waits",
        "use the function that ends with Async, and pass the captured stream to it",
    ),
    (
        r"(cu|cuda|hip)GraphInstantiate\w*|(cu|cuda|hip)GraphUpload\w*|instantiate",
        "makes an executable of a graph, which allocates",
        "instantiate the graph before the capture",
    ),
    (
        r"(cu|cuda|hip)GraphExecDestroy",
        "destroys an executable graph",
        "keep it until the capture has ended",
    ),
    (
        r"(cu|cuda|hip)GraphLaunch\w*|replay",
        "replays a graph into the capture, which the driver refuses",
        "replay the two graphs one after the other",
    ),
    (
        r"(cu|cuda|hip)StreamEndCapture|capture_end|endCapture",
        "ends a capture that this call did not begin",
        "let the code that began the capture end it",
    ),
    (
        r"(cu|cuda|hip)StreamBeginCapture\w*|capture_begin|beginCapture",
        "begins a capture inside another one",
        "end the first capture before",
    ),
    (
        r"(cu|cuda|hip)StreamAddCallback|addCallback",
        "adds a callback of the kind that captures don't permit",
        "use a host function (cuLaunchHostFunc, cudaLaunchHostFunc, hipLaunchHostFunc)",
    ),
    (
        r"(cu|cuda|hip)(Module|Library)Unload|unload|moduleUnload",
        "unloads code from the device",
        "keep the module until the capture has ended",
    ),
    (
        r"(cu|cuda|hip)StreamWaitEvent|streamWaitEvent|wait_event|wait_stream|wait",
        "waits for work outside of the capture",
        "wait for it before the capture begins, or take its stream into the capture first",
    ),
    (
        r"backward|run_backward|grad",
        "runs autograd, whose operations go to the streams that the forward pass was on",
        "run the forward pass inside the capture too, and warm up on a side stream",
    ),
    (
        r"collect",
        "collected garbage whose destruction breaks captures",
        "collect before the capture; keep graphs that other libraries made until it has ended",
    ),
    (
        r"(cu|cuda|hip)(Mem\w+Async|Launch\w+)\w*|memcpyAsync|memsetAsync|launchKernel",
        "goes to a stream that disturbs the capture, such as the legacy default stream",
        "pass the captured stream to it",
    ),
]
_ADVICE = [(re.compile(pattern), Advice(effect, way_out)) for pattern, effect, way_out in _BY_NAME]

_TEST = Advice(
    "tests a value that is on the device, and has to wait for it",
    "leave the decision on the device (where() instead of if)",
)
_DELETION = Advice("destroys an object, which breaks the capture", "keep it until the capture has ended")

_COMMON = frozenset(
    (
        "get",
        "done",
        "free",
        "collect",
        "grad",
        "unique",
        "equal",
        "instantiate",
        "unload",
        "replay",
        "query",
        "wait",
    )
)
"""Names that many libraries use for something else."""


def for_call(name: str, *, common: bool = True) -> Advice | None:
    """Return what a function of this name does; None if it is not known to break captures.

    `common` says whether names count that many libraries use for something else.
    """
    last = name.rpartition(".")[2]
    if last in _COMMON and not common:
        return None
    return next((advice for pattern, advice in _ADVICE if pattern.fullmatch(last)), None)


def for_line(text: str, *, raised: bool) -> tuple[str, Advice] | None:
    """Return the first call in a line that is known to break captures, by name; or a statement, without.

    `raised` says whether the line has raised an exception: a test of a value that is on the device does.
    """
    for name in re.findall(r"([A-Za-z_][\w.]*)\s*\(", text):
        advice = for_call(name, common=name == "gc.collect")
        if advice is not None:
            return name if name == "gc.collect" else name.rpartition(".")[2], advice
    if raised and re.match(r"(el)?if\b|while\b|assert\b", text):
        return "", _TEST
    return ("", _DELETION) if re.match(r"del\b", text) else None
