"""torch's own sentences, for programs that look for them in an error's message: each goes ahead of ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import CaptureError, GraphStateError

NOTHING_RECORDED = (
    "The CUDA Graph is empty. This usually means that the graph was attempted to be captured on wrong device "
    "or stream."
)
DEFAULT_STREAM = (
    "CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok to replay them "
    "on the default stream.)"
)
INSTANTIATED = "instantiate() is intended to be called by the user only when keep_graph=true."

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


def out_of_order(what: str, state: str, *, keeps: bool) -> str:
    """Return torch's sentence for a call in a state in which it is refused; empty if there is none.

    Parameters
    ----------
    what, state : str
        The call and the state, as `Graph` names them.
    keeps : bool
        Whether the graph was made with ``keep_graph=True``.
    """
    if what in ("raw_graph()", "raw_cuda_graph()"):
        return _NOT_CAPTURED if keeps else _NOT_KEPT
    return "" if (what, state) == ("capture_begin()", "capturing") else _OUT_OF_ORDER.get(what, "")


@contextmanager
def ahead(words: str, *, hip: bool) -> Iterator[None]:
    """Put torch's sentence ahead of ours in errors about the order of calls and the default stream.

    Parameters
    ----------
    words : str
        The sentence. Nothing is added if it is empty or already there.
    hip : bool
        Whether torch's build is for ROCm, and names HIP's types.
    """
    try:
        yield
    except (GraphStateError, CaptureError) as error:
        said = words.replace("cudaGraph", "hipGraph") if hip else words
        about_order = isinstance(error, GraphStateError) or error.reason == "default_stream"
        if said and about_order and not str(error).startswith(said):
            error.args = (f"{said} {error}",)
        raise
