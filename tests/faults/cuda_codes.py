"""Which codes the calls of the CUDA driver are made to answer, and what the library says of each."""

from __future__ import annotations

UNKNOWN_CODE = 7321
"""A code of a driver that is newer than the binding."""

REASONS = {
    2: "out_of_memory",
    700: "device_lost",
    709: "device_lost",
    719: "device_lost",
    900: "illegal_call",
    901: "invalidated",
    904: "unjoined",
    905: "foreign_capture",
    906: "default_stream",
    907: "illegal_call",
    908: "wrong_thread",
}

EVERY = (1, 201, 700, 999, UNKNOWN_CODE)
_CONTEXTS = (201, 709, 999, UNKNOWN_CODE)
_RECORDING = (1, 400, 719, 900, 901, 906)
_GRAPHS = (1, 2, 700, 801, 900, UNKNOWN_CODE)
_DESTRUCTION = (1, 400, 719, 900, UNKNOWN_CODE)

CODES: dict[str, tuple[int, ...]] = {
    "cuCtxGetCurrent": _CONTEXTS,
    "cuCtxSetCurrent": _CONTEXTS,
    "cuDevicePrimaryCtxRetain": (2, 101, 999, UNKNOWN_CODE),
    "cuEventCreate": (1, 2, 201, 719),
    "cuEventDestroy": _DESTRUCTION,
    "cuEventElapsedTime": (1, 201, 400, 719, UNKNOWN_CODE),
    "cuEventQuery": (1, 400, 700, 719, 900, 907, UNKNOWN_CODE),
    "cuEventRecord": _RECORDING,
    "cuEventSynchronize": (1, 400, 700, 719, 900, 907, UNKNOWN_CODE),
    "cuFuncGetParamInfo": (201, 700, 999, UNKNOWN_CODE),  # 1: there are no more parameters
    "cuGraphDestroy": _DESTRUCTION,
    "cuGraphExecDestroy": _DESTRUCTION,
    "cuGraphInstantiate": _GRAPHS,
    "cuGraphLaunch": (1, 2, 201, 400, 700, 719, 801, 900, 906, UNKNOWN_CODE),
    "cuGraphUpload": _GRAPHS,
    "cuLaunchKernel": (2, 700, *_RECORDING),
    "cuMemHostAlloc": (1, 2, 201, 719, 900, UNKNOWN_CODE),
    "cuMemcpyAsync": _RECORDING,
    "cuMemsetD8Async": _RECORDING,
    "cuStreamBeginCapture": (1, 2, 201, 401, 700, 900, 906, UNKNOWN_CODE),
    "cuStreamCreateWithPriority": (1, 2, 201, 719, UNKNOWN_CODE),
    "cuStreamDestroy": _DESTRUCTION,
    "cuStreamEndCapture": (1, 2, 400, 700, 719, 900, 901, 904, 908, 999, UNKNOWN_CODE),
    "cuStreamIsCapturing": (1, 201, 400, 719, 906, UNKNOWN_CODE),
    "cuStreamQuery": (400, 700, 719, 900, UNKNOWN_CODE),
    "cuStreamSynchronize": (400, 700, 719, 900, 906),
    "cuStreamWaitEvent": (905, *_RECORDING),
}

# The driver answers for what went wrong earlier, and does its work all the same. Not so what makes something,
# since the binding drops the handle then, nor the exchange of the capture mode, since it drops the old one.
LATE_CODES = (700, 719)
LATE = frozenset(
    (
        *("cuCtxSetCurrent", "cuEventDestroy", "cuEventRecord", "cuGraphDestroy", "cuGraphExecDestroy"),
        *("cuGraphLaunch", "cuGraphUpload", "cuLaunchKernel", "cuMemcpyAsync", "cuMemsetD8Async"),
        *("cuStreamBeginCapture", "cuStreamDestroy", "cuStreamEndCapture", "cuStreamSynchronize"),
        *("cuEventQuery", "cuEventSynchronize", "cuStreamQuery", "cuStreamWaitEvent"),
    )
)

NO_STREAM: tuple[int, ...] = ()
"""No code: a handle is not looked at before it is used."""

OPENING = {"cuInit": (2, 3, 100, 101, 802, 803, 804, 999, UNKNOWN_CODE)}
OPENING["cuDeviceGetCount"] = OPENING["cuInit"]
"""The calls that are made before there is a backend."""

NO_DEVICE: tuple[str, int] | tuple[()] = ()
"""The call and the code that say so, if that is not told like everything else."""
