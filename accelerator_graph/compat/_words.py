"""torch's own sentences, for programs that look for them in a message. Each stands before ours."""

from __future__ import annotations

NOTHING_RECORDED = (
    "The CUDA Graph is empty. This usually means that the graph was attempted to be captured on wrong device "
    "or stream."
)
DEFAULT_STREAM = (
    "CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok to replay them "
    "on the default stream.)"
)

_INSTANTIATED = "instantiate() is intended to be called by the user only when keep_graph=true."
_NOT_CAPTURED = "You cannot access the raw cudaGraph_t instance until capture_end() has been called."
_NOT_KEPT = (
    "You cannot access the raw cudaGraph_t instance unless CUDAGraph was initialized with keep_graph=true."
)
_NOT_INSTANTIATED = "You cannot access the raw cudaGraphExec_t instance until instantiate() has been called."

_OUT_OF_ORDER = {
    "capture_begin()": (
        "This CUDAGraph instance already owns a captured graph. To capture a new graph, create a new "
        "instance."
    ),
    "capture_end()": "capture_end() called before capture_begin().",
    "instantiate()": "capture_end() must have been called before calling instantiate.",
    "replay()": "Called CUDAGraph::replay without a preceding successful capture.",
    "pool()": "Called CUDAGraph::pool() without a preceding successful capture.",
    "raw_executable()": _NOT_INSTANTIATED,
    "raw_cuda_graph_exec()": _NOT_INSTANTIATED,
}


def worded(what: str, message: str, state: str, *, keeps: bool, hip: bool) -> str:
    """Return the message of an error or a warning, after torch's sentence if torch has one.

    `what`, `message` and `state` are as `Graph` has them; `keeps` says whether the graph was made with
    ``keep_graph=True``, and `hip` whether torch was built for ROCm and names HIP's types.
    """
    if what == "empty capture":
        return NOTHING_RECORDED
    if what in ("raw_graph()", "raw_cuda_graph()"):
        words = _NOT_CAPTURED if keeps else _NOT_KEPT
    elif (what, state) == ("instantiate()", "ready"):
        words = _INSTANTIATED
    elif (what, state) == ("capture_begin()", "capturing"):
        return message
    else:
        words = _OUT_OF_ORDER.get(what, "")
    return ahead(words.replace("cudaGraph", "hipGraph") if hip else words, message)


def ahead(words: str, message: str) -> str:
    """Put torch's sentence before a message, unless it is there already or empty."""
    return message if message.startswith(words) else f"{words} {message}"
