"""Which codes the calls of the HIP runtime are made to answer, and what the library says of each."""

from __future__ import annotations

UNKNOWN_CODE = 7321
"""A code of a runtime that is newer than the binding."""

REASONS = {
    2: "out_of_memory",
    700: "device_lost",
    709: "other",
    719: "device_lost",
    900: "illegal_call",
    901: "invalidated",
    903: "foreign_capture",
    904: "unjoined",
    905: "foreign_capture",
    906: "default_stream",
    907: "illegal_call",
    908: "wrong_thread",
}

EVERY = (1, 3, 700, 999, UNKNOWN_CODE)
_DEVICES = (100, 101, 709, 999, UNKNOWN_CODE)
_RECORDING = (1, 400, 719, 900, 901, 906)
_GRAPHS = (1, 2, 700, 801, 900, 1052, UNKNOWN_CODE)
_DESTRUCTION = (1, 400, 719, 900, UNKNOWN_CODE)

CODES: dict[str, tuple[int, ...]] = {
    "hipDeviceGetStreamPriorityRange": (100, 999, UNKNOWN_CODE),
    "hipEventCreateWithFlags": (1, 2, 3, 719),
    "hipEventDestroy": _DESTRUCTION,
    "hipEventElapsedTime": (1, 400, 719, UNKNOWN_CODE),
    "hipEventQuery": (1, 400, 700, 719, 900, 907, UNKNOWN_CODE),
    "hipEventRecord": _RECORDING,
    "hipEventSynchronize": (1, 400, 700, 719, 900, 907, UNKNOWN_CODE),
    "hipGetDevice": _DEVICES,
    "hipGetLastError": (1, 719, UNKNOWN_CODE),
    "hipGraphDebugDotPrint": (1, 304, UNKNOWN_CODE),
    "hipGraphDestroy": _DESTRUCTION,
    "hipGraphExecDestroy": _DESTRUCTION,
    "hipGraphInstantiateWithFlags": _GRAPHS,
    "hipGraphLaunch": (1, 2, 201, 400, 700, 719, 801, 900, 906, UNKNOWN_CODE),
    "hipGraphUpload": _GRAPHS,
    "hipHostMalloc": (1, 2, 719, 900, UNKNOWN_CODE),
    "hipMemcpyAsync": (999, *_RECORDING),
    "hipMemsetAsync": _RECORDING,
    "hipModuleLaunchKernel": (2, 98, 700, *_RECORDING),
    "hipSetDevice": _DEVICES,
    "hipStreamBeginCapture": (1, 2, 400, 401, 700, 900, 906, UNKNOWN_CODE),
    "hipStreamCreateWithPriority": (1, 2, 100, 719, UNKNOWN_CODE),
    "hipStreamDestroy": _DESTRUCTION,
    "hipStreamEndCapture": (1, 2, 400, 401, 700, 719, 900, 901, 903, 904, 908, 999, UNKNOWN_CODE),
    "hipStreamGetCaptureInfo_v2": (1, 400, 719, 906, UNKNOWN_CODE),
    "hipStreamGetDevice": (1, 3, 201, 400, 709, UNKNOWN_CODE),
    "hipStreamIsCapturing": (1, 400, 719, 906, UNKNOWN_CODE),
    "hipStreamQuery": (400, 700, 719, 900, UNKNOWN_CODE),
    "hipStreamSynchronize": (400, 700, 719, 900, 906, 907),
    "hipStreamUpdateCaptureDependencies": (1, 400, 401, 719, 901),
    "hipStreamWaitEvent": (905, *_RECORDING),
}
# The runtime answers for what went wrong earlier, and does its work all the same. Not so what makes
# something, since it leaves rubbish instead of the handle then.
LATE_CODES = (700, 719)
LATE = frozenset(
    (
        *(
            "hipEventDestroy",
            "hipEventQuery",
            "hipEventRecord",
            "hipEventSynchronize",
            "hipGraphDestroy",
            "hipGraphDestroyNode",
            "hipGraphExecDestroy",
        ),
        *("hipGraphLaunch", "hipGraphUpload", "hipMemcpyAsync", "hipMemsetAsync", "hipModuleLaunchKernel"),
        *("hipSetDevice", "hipStreamBeginCapture", "hipStreamDestroy", "hipStreamEndCapture"),
        *("hipStreamQuery", "hipStreamSynchronize", "hipStreamWaitEvent", "hipGraphAddDependencies"),
        *("hipStreamUpdateCaptureDependencies", "hipThreadExchangeStreamCaptureMode"),
    )
)

NO_STREAM = (400, 709)
"""What the runtime answers for a handle that is none."""

OPENING = {"hipGetDeviceCount": (1, 2, 3, 101, 999, 1052, UNKNOWN_CODE)}
OPENING["hipRuntimeGetVersion"] = OPENING["hipGetDeviceCount"]
"""The calls that are made before there is a backend."""

NO_DEVICE = ("hipGetDeviceCount", 100)
"""The call and the code that say so, if that is not told like everything else."""
