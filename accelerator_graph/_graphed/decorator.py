"""`graphed`: capture a function once for every signature of its arguments, and replay it at later calls."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Literal, ParamSpec, TypeVar, Unpack, overload

from .._core.pools import AnyPool, check_pool
from .._interpreter import integer, setting
from .arguments import check_ordinary
from .function import Graphed
from .options import CacheInfo, GivenOptions, GraphInputs, Mode, Options

__all__ = ["CacheInfo", "GraphInputs", "Graphed", "graphed"]

P = ParamSpec("P")
R = TypeVar("R")

_VERIFY = "ACCELERATOR_GRAPH_VERIFY"


@overload
def graphed(function: Callable[P, R], /, **options: Unpack[GivenOptions]) -> Graphed[P, R]: ...


@overload
def graphed(**options: Unpack[GivenOptions]) -> Callable[[Callable[P, R]], Graphed[P, R]]: ...


def graphed(
    function: Callable[..., Any] | None = None,
    /,
    *,
    warmup: int = 3,
    key: Callable[..., Hashable] | None = None,
    max_graphs: int = 16,
    outputs: Literal["copy", "static"] = "copy",
    pool: AnyPool | None = None,
    on_capture_error: Literal["raise", "eager", "break"] = "raise",
    inputs: Mode = "copy",
    verify: Literal["first"] | None = None,
    check: bool = False,
) -> Any:
    """Capture a function once for every signature of its arguments, and replay it at later calls.

    Use it as ``@graphed``, ``@graphed(...)`` or ``graphed(function, ...)``, for functions and methods.

    Parameters
    ----------
    function : callable
        The function to capture. It enqueues work on the current stream. It may return arrays, any other
        objects, and tuples, lists, dicts and dataclasses of both.
    warmup : int
        How many calls of every signature run the function as it is. The next call captures it and replays
        it once. So calls with an argument that changes every time, such as a counter, are never captured,
        and a `RuntimeWarning` is issued once: pass such an argument as an array.
    key : callable, optional
        Takes the function's arguments and returns a hashable value. Calls with one key share a graph. Their
        arrays must have the same signature and places, or `ValueError` is raised; their other arguments
        stay as they were in the captured call.
    max_graphs : int
        How many graphs to keep. When there are more, the least recently used graph is dropped, and its
        signature begins again with the warm-up.
    outputs : {"copy", "static"}
        Whether every call returns new arrays, or always the same arrays, which is faster; any later call
        overwrites those.
    pool : PoolId or torch.cuda.MemPool, optional
        The pool that the graphs share; by default a pool of the function's own for each device. The rules in
        `graph_pool_handle` hold for a pool that other graphs share.
    on_capture_error : {"raise", "eager", "break"}
        Whether a `CaptureError` is raised, or the function runs as it is for that signature from then on,
        after one `RuntimeWarning`, or what can't be captured is left out of the graph. With ``"break"``, the
        calls of functions that are marked with `eager` are breaks in every capture. If that fails before
        such a call, two calls run the function as it is, watched, and the next one captures it with breaks:
        every replay then calls the smallest functions around what can't be captured, and a `RuntimeWarning`
        names them. If there is none, `CaptureError` names the call. Only for ``inputs="copy"``, and without
        `verify`.
    inputs : {"copy", "node", "bind"}
        What a call does with its arrays. ``"copy"``: it enqueues copies of them. ``"node"``: the copies are
        the first nodes of the graph, and a call only gives those nodes the addresses of its arrays.
        ``"bind"``: nothing is copied; a call writes the addresses of its arrays into the parameters of the
        kernels, once it is proven that the results are those of eager runs. On CUDA, ``"node"`` is possible
        for dense arrays of torch and CuPy, ``"bind"`` for those of torch. Where ``"bind"`` is not possible,
        the graph uses ``"node"``, and a `RuntimeWarning` is issued; where ``"node"`` is not, ``"copy"``.
        ``explain()`` says what each graph does, and why.
    verify : {"first"}, optional
        Compare the replays of every new graph with eager runs, as `verify` does, before its first result is
        returned. A wrong graph is dropped and `VerificationError` is raised; a `RuntimeWarning` is issued if
        it can't be decided. The default is the environment variable ``ACCELERATOR_GRAPH_VERIFY`` at the time
        of the decoration, ``first`` or unset. Without it, nothing is compared.
    check : bool
        Refuse calls whose graph does not own any more what it reads beside its arguments, as `ownership`
        does for a graph: a call raises `GraphStateError`.

    Returns
    -------
    Graphed
        Takes the function's arguments. ``cache_info()`` returns a `CacheInfo`, ``cache_clear()`` drops all
        graphs, ``explain()`` returns a `GraphInputs` for each.

    Raises
    ------
    TypeError, ValueError
        An option is of the wrong type or value, or the function is a class, a coroutine or a generator. At
        a call, even the first: an argument, which is named, is neither an array nor hashable, or it is an
        array that a replay can't read (host memory for a graph of a device, another device than the
        current stream's), or it requires grad. At a capture: the result holds an array of which no copy
        can be returned, such as an array in host memory.
    CaptureError
        At a call, even the first: no stream is current. At a capture: the function does what can't be
        captured.

    Notes
    -----
    **The signature** of a call consists of its arrays (type, shape, strides, element type, device), of all
    other arguments by type and value, of their nesting, and of torch's modes. Anything else that the function
    reads (globals, attributes, the mode of a module) is captured once.

    **Arguments** that are arrays are copied to static arrays, which the function gets in their place and must
    not keep. What the function writes to them reaches the caller. Gradients don't pass through.

    **Side effects**: the Python code of the function runs in the warm-up and in the capture, and not in
    replays; its work on the device runs once for every call. A capture that fails leaves nothing.

    **Calls** from several threads run one at a time; calls on several streams wait for each other. In a
    capture, of any library, a graphed function runs as it is and becomes part of that capture. A graphed
    method has graphs of its own for every instance.

    **On the CPU backend** the function has to do all its work through the current stream, for example by
    ``accelerator_graph.current_stream().launch(np.add, x, y, out)``: ordinary NumPy code runs at once, and no
    replay repeats it.

    The page `Graphed functions` of the reference has the details.
    """
    times, most = integer(warmup, "warmup"), integer(max_graphs, "max_graphs")
    options = Options(
        times,
        key,
        most,
        outputs,
        check_pool(pool),
        on_capture_error,
        inputs,
        verify,
        check,
    )
    options.refuse_wrong_ones()
    if verify is None and on_capture_error != "break":
        options = options._replace(verify=_verify_always())
    if function is None:
        return lambda function: _graphed(function, options)
    return _graphed(function, options)


def _verify_always() -> str | None:
    """Return what the environment asks for where a program leaves `verify` out."""
    return setting(_VERIFY, "first") or None


def _graphed(function: Callable[..., Any], options: Options) -> Graphed[..., Any]:
    if isinstance(function, type):
        raise TypeError(
            f"graphed: {function!r} is a class, and a call makes an instance; decorate one of its "
            "methods, or pass a callable instance."
        )
    if isinstance(function, staticmethod | classmethod | property):
        kind = type(function).__name__
        raise TypeError(f"graphed: a {kind} can't be captured; put @graphed below @{kind}.")
    if not callable(function):
        raise TypeError(f"graphed: the function must be a callable, not {function!r}.")
    check_ordinary(function, "graphed")
    return Graphed(function, options)
