"""Bugs for the suite of faults to find: what is planted where, which part finds it, and what that says."""

from __future__ import annotations

from dataclasses import dataclass

CAPTURE, DRIVER, ERRORS = (f"backends/_cuda_{name}.py" for name in ("capture", "driver", "errors"))
CUDA = "backends/cuda.py"


@dataclass(frozen=True)
class Bug:
    """One bug.

    Attributes
    ----------
    name : str
        What goes wrong.
    file : str
        The file of the package that it is in.
    right, wrong : str
        What stands there, exactly once, and what stands there instead.
    part : str
        The part of the suite that finds it: a module, and which of its tests.
    says : str
        What the suite says, as a regular expression.
    """

    name: str
    file: str
    right: str
    wrong: str
    part: tuple[str, ...]
    says: str


def calls(*operations: str) -> tuple[str, ...]:
    """The part in which calls of operations fail."""
    return ("every_call", "-k", " or ".join(operations))


INTERRUPTS = ("interrupts", "-k", "any_moment and with_graph and body_passes and KeyboardInterrupt")

BUGS = (
    Bug(
        "an executable is never destroyed",
        CUDA,
        'self._driver.destroy("cuGraphExecDestroy", executable)',
        "pass",
        ("collection", "-k", "in_a_capture_of_ours and relaxed"),
        r"leaked\n.*ecutables': \d",
    ),
    Bug(
        "an abandoned capture leaves its graph",
        CAPTURE,
        'driver.call("cuGraphDestroy", graph)',
        "pass",
        calls("capture-with-raises-cuStreamIsCapturing"),
        r"leaked\n.*'graphs': 1",
    ),
    Bug(
        "an event that could not be recorded is left",
        CUDA,
        'driver.answer("cuEventDestroy", event.handle)',
        "pass",
        calls("stream-record-cuEventRecord"),
        r"leaked\n.*'events': 1",
    ),
    Bug(
        "a stream is never destroyed",
        CUDA,
        "self._driver.destroy_stream(stream)",
        "pass",
        calls("stream-query"),
        r"leaked\n.*'streams': \d",
    ),
    Bug(
        "an object is destroyed again if an interrupt follows",
        DRIVER,
        "if handle.destroyed is None:",
        "if True:",
        ("interrupts", "-k", "any_moment_of_a_destruction"),
        "at .*: a stale handle",
    ),
    Bug(
        "a graph whose executable made room for none is called ready",
        "api.py",
        'self._launch, self._state = None, "captured"',
        "pass",
        calls("instantiate-allocating-again-cuGraphInstantiate"),
        "the graph's state",
    ),
    Bug(
        "an executable is destroyed under its launch",
        "_core/replay.py",
        "            owner.backend.replay(owner.value, self._stream.native)\n        else:\n",
        "            backend, value, owner = owner.backend, owner.value, None\n"
        "            backend.replay(value, self._stream.native)\n        else:\n            owner = None\n",
        ("replays", "-k", "reset_during_a_launch"),
        "destroyed under the launch",
    ),
    Bug(
        "a launch that fails is taken for one that works",
        CUDA,
        "failed(code)",
        "pass",
        calls("replay-cuGraphLaunch"),
        "the code was swallowed",
    ),
    Bug(
        "a query takes every error for work that is not done",
        CUDA,
        "answer[0] == _NOT_READY",
        "answer[0] is not driver.success",
        calls("stream-query-cuStreamQuery"),
        "the code was swallowed",
    ),
    Bug(
        "an error names another call",
        DRIVER,
        'partial(self.failed, "cuGraphLaunch")',
        'partial(self.failed, "cuLaunchKernel")',
        calls("replay-cuGraphLaunch"),
        "another call is named",
    ),
    Bug(
        "an error names another code",
        ERRORS,
        "        code=int(code),\n",
        "        code=999,\n",
        calls("stream-fill-cuMemsetD8Async"),
        "another code is named",
    ),
    Bug(
        "a capture that began late is left open",
        CAPTURE,
        "            abandon(driver, capture)\n        raise\n    except BaseException:",
        "            pass\n        raise\n    except BaseException:",
        calls("capture-with-passes-cuStreamBeginCapture"),
        "700 late: a capture was left open",
    ),
    Bug(
        "a capture that an interrupt follows is left open",
        CAPTURE,
        "driver's answer\n        abandon(driver, capture)\n",
        "driver's answer\n",
        INTERRUPTS,
        "at .*: a capture was left open",
    ),
    Bug(
        "a capture that is over is ended once more",
        CAPTURE,
        "    capture.over = True\n    graph =",
        "    graph =",
        ("collection", "-k", "takes_no_later_one"),
        "the later capture was ended",
    ),
    Bug(
        "the capture of a thread that died is left open",
        "_core/capture.py",
        "self._abandon()\n        _lifetime",
        "_lifetime",
        ("threads", "-k", "died_is_abandoned and True"),
        "a capture was left open",
    ),
    Bug(
        "a stream is queried without its context",
        CUDA,
        "        with driver.current(driver.context_of(stream)):\n            answer =",
        "        if True:\n            answer =",
        ("threads", "-k", "thread_without_a_context"),
        "cuStreamQuery returned CUDA_ERROR_INVALID_CONTEXT",
    ),
    Bug(
        "a context that was set in spite of an error stays",
        "_interpreter/sure_exit.py",
        "self._guard = if_skipped(self, self._end)\n        try:\n            self._begin()\n",
        "self._begin()\n        try:\n            self._guard = if_skipped(self, self._end)\n",
        calls("stream-query-cuCtxSetCurrent"),
        "late: the contexts",
    ),
    Bug(
        "the capture mode of the thread is not exchanged back",
        DRIVER,
        "self.api.cuThreadExchangeStreamCaptureMode(mode[0][1])",
        "pass",
        INTERRUPTS,
        "at .*: the capture mode",
    ),
    Bug(
        "a kept graph whose instantiation failed is called ready",
        "api.py",
        'self._state = None, None, "captured"',
        'self._state = None, None, "ready"',
        calls("capture-debug-cuGraphInstantiate"),
        "the graph's state",
    ),
    Bug(
        "a finalizer destroys directly",
        "_core/ownership.py",
        "__del__ = lru_cache(maxsize=0)(_pending.append)",
        "__del__ = lambda self: self.act()",
        ("collection", "-k", "in_a_capture_of_ours and global"),
        "the collection called the driver",
    ),
    Bug(
        "a callable from before a reset still launches",
        "_core/replay.py",
        "        self.target = (refuse, _Nobody)\n",
        "",
        ("replays", "-k", "from_before_a_reset"),
        "DID NOT RAISE .*GraphStateError",
    ),
    Bug(
        "a failed capture keeps its pool",
        "_core/capture.py",
        "                if self.lease is not None:\n                    self.lease.release()\n",
        "                pass\n",
        calls("capture-with-raises-cuStreamIsCapturing"),
        "a pool was not given back",
    ),
)
