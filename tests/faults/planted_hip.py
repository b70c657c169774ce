"""Bugs of the HIP backend for the suite of faults to find, as in planted_bugs.py."""

from __future__ import annotations

from faults.planted_cuda import Bug, calls

CAPTURE, DRIVER, ERRORS, LAUNCH, ROOTS = (
    f"backends/_hip_{name}.py" for name in ("capture", "driver", "errors", "launch", "roots")
)
HIP = "backends/hip.py"

BUGS = (
    Bug(
        "an executable is never destroyed",
        HIP,
        'self._driver.destroy("hipGraphExecDestroy", executable)',
        "pass",
        ("collection", "-k", "in_a_capture_of_ours and relaxed"),
        r"leaked\n.*ecutables': \d",
    ),
    Bug(
        "an abandoned capture leaves its graph",
        CAPTURE,
        "            with suppress(AcceleratorGraphError), driver.relaxed(capture.device):\n"
        '                driver.call("hipGraphDestroy", graph.value)',
        "            pass",
        calls("capture-with-raises-hipStreamIsCapturing"),
        r"leaked\n.*'graphs': 1",
    ),
    Bug(
        "what the runtime leaves after an error is taken for a graph",
        CAPTURE,
        "    if code == 0:\n        capture.over = True\n        if graph.value:",
        "    if code != 901:\n        capture.over = True\n        if graph.value:",
        calls("capture-with-passes-hipStreamEndCapture"),
        "a stale handle",
    ),
    Bug(
        "an event that could not be recorded is left",
        DRIVER,
        'self.answer("hipEventDestroy", event)',
        "pass",
        calls("stream-record-hipEventRecord"),
        r"leaked\n.*'events': 1",
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
        "a launch that fails is taken for one that works",
        LAUNCH,
        "failed(code)",
        "pass",
        calls("replay-hipGraphLaunch"),
        "the code was swallowed",
    ),
    Bug(
        "an error names another code",
        ERRORS,
        "        code=code,\n",
        "        code=999,\n",
        calls("stream-fill-hipMemsetAsync"),
        "another code is named",
    ),
    Bug(
        "the thread's last error stays",
        DRIVER,
        "        self.clear()\n        raise call_failed(",
        "        raise call_failed(",
        calls("stream-fill-hipMemsetAsync"),
        "the thread's last error stays",
    ),
    Bug(
        "a capture that was not ended stays on the runtime's lists",
        CAPTURE,
        "    if capture.mode != _RELAXED:",
        "    if False:",
        calls("capture-with-passes-hipStreamEndCapture"),
        "hipMalloc: 900",
    ),
    Bug(
        "a stream that was invalidated stays so",
        CAPTURE,
        "    if _status(driver, capture):\n        driver.call",
        "    if False:\n        driver.call",
        calls("capture-with-breaks-hipGraphLaunch", "capture-with-breaks-hipMemsetAsync"),
        "a capture was left open",
    ),
    Bug(
        "a capture that began late is left open",
        CAPTURE,
        "            abandon(driver, capture)\n        raise\n    except BaseException:",
        "            pass\n        raise\n    except BaseException:",
        calls("capture-with-passes-hipStreamBeginCapture"),
        "700 late: a capture was left open",
    ),
    Bug(
        "a capture that an interrupt follows is left open",
        CAPTURE,
        "runtime's answer\n        abandon(driver, capture)\n",
        "runtime's answer\n",
        ("interrupts", "-k", "any_moment and with_graph and body_passes and KeyboardInterrupt"),
        "at .*: a capture was left open",
    ),
    Bug(
        "the capture mode of the thread is not exchanged back",
        DRIVER,
        "exchange(place)\n",
        "pass\n",
        calls("stream-hipStreamCreateWithPriority"),
        "the capture mode",
    ),
    Bug(
        "a device that was set in spite of an error stays",
        DRIVER,
        'before = self.call("hipGetDevice")\n'
        '            self.checked("hipSetDevice", (set_device(device),))\n\n',
        'now = self.call("hipGetDevice")\n'
        '            self.checked("hipSetDevice", (set_device(device),))\n'
        "            before = now\n\n",
        calls("stream-query-hipSetDevice"),
        "late: the current device",
    ),
    Bug(
        "the nodes that were added stay if the instantiation fails",
        ROOTS,
        "        yield\n    finally:\n",
        "        yield\n    except ZeroDivisionError:\n        pass\n    else:\n",
        calls("instantiate-branching-hipGraphInstantiateWithFlags"),
        "added nodes are left",
    ),
    Bug(
        "a run on another stream is forgotten before it was waited for",
        LAUNCH,
        "        event = _end_of(driver, executable.stream)\n",
        "        last, executable.stream = executable.stream, stream\n"
        "        event = _end_of(driver, last)\n",
        calls("replay-after-another-stream-hipStreamWaitEvent"),
        "the run on the other stream was forgotten",
    ),
)
