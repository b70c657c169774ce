"""`graphed`: capture a function once for every signature of its arguments, and replay it at later calls."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Literal, ParamSpec, TypeVar, overload

from .._core.pools import AnyPool, check_pool
from .._core.switches import to_verify
from .._interpreter.integers import integer
from .arguments import check_ordinary
from .function import Graphed
from .options import CacheInfo, GraphInputs, Options

__all__ = ["CacheInfo", "GraphInputs", "Graphed", "graphed"]

P = ParamSpec("P")
R = TypeVar("R")


@overload
def graphed(
    function: Callable[P, R],
    /,
    *,
    warmup: int = 3,
    key: Callable[..., Hashable] | None = None,
    max_graphs: int = 16,
    outputs: Literal["copy", "static"] = "copy",
    pool: AnyPool | None = None,
    on_capture_error: Literal["raise", "eager"] = "raise",
    inputs: Literal["copy", "node", "bind"] = "copy",
    verify: Literal["first"] | None = None,
) -> Graphed[P, R]: ...


@overload
def graphed(
    *,
    warmup: int = 3,
    key: Callable[..., Hashable] | None = None,
    max_graphs: int = 16,
    outputs: Literal["copy", "static"] = "copy",
    pool: AnyPool | None = None,
    on_capture_error: Literal["raise", "eager"] = "raise",
    inputs: Literal["copy", "node", "bind"] = "copy",
    verify: Literal["first"] | None = None,
) -> Callable[[Callable[P, R]], Graphed[P, R]]: ...


def graphed(
    function: Callable[..., Any] | None = None,
    /,
    *,
    warmup: int = 3,
    key: Callable[..., Hashable] | None = None,
    max_graphs: int = 16,
    outputs: Literal["copy", "static"] = "copy",
    pool: AnyPool | None = None,
    on_capture_error: Literal["raise", "eager"] = "raise",
    inputs: Literal["copy", "node", "bind"] = "copy",
    verify: Literal["first"] | None = None,
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
        arrays must have the same signature and places, else `ValueError` is raised; their other arguments
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
    on_capture_error : {"raise", "eager"}
        Whether a `CaptureError` is raised, or the function runs as it is for that signature from then on,
        after one `RuntimeWarning`.
    inputs : {"copy", "node", "bind"}
        What a call does with its arrays. ``"copy"``: it enqueues copies of them. ``"node"``: the copies are
        the first nodes of the graph, and a call only tells those nodes where its arrays are. ``"bind"``:
        nothing is copied; a call writes the addresses of its arrays into the parameters of the kernels, once
        it is proven that the results are those of eager runs. On CUDA, ``"node"`` is possible for dense
        arrays of torch and CuPy, ``"bind"`` for those of torch. Where one of them is not, the one before is
        taken; ``"bind"`` issues a `RuntimeWarning` then. ``explain()`` says what each graph does, and why.
    verify : {"first"}, optional
        Compare the replays of every new graph with eager runs, as `verify` does, before its first result is
        returned. A wrong graph is dropped and `VerificationError` is raised; a `RuntimeWarning` is issued if
        it can't be decided. The default is the environment variable ``ACCELERATOR_GRAPH_VERIFY`` at the time
        of the decoration, ``first`` or unset. Without it, nothing is compared.

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
    **The signature** of a call consists of its arrays (type, shape, strides, element type, device, and
    whether a NumPy array can be written), of all other arguments by type and value, and of their nesting.
    Values that compare equal and behave differently have different signatures: 0.0 and -0.0, ``{(1,)}`` and
    ``{(1.0,)}``, one instant in two time zones. Values are compared by what `pickle` would save; a value that
    can't be pickled equals only itself. It does not matter whether an argument is given by position, by name
    or by default, nor in which order names are given: ``**kwargs`` come sorted. A decorator under this one
    must leave the parameters as they are. An array that is given several times is part of the signature. So
    are the grad, inference and autocast modes of a framework like torch, where its tensors are arguments.
    Anything else that the function reads (globals, attributes, the mode of a module) is captured once and is
    not part of the signature.

    **Arguments** that are arrays are copied, in the order of the caller's current stream, into static arrays,
    which the function gets in their place; so the function must not keep any of them. An array that is given
    several times is one static array; views of each other become separate, dense arrays. Arrays like torch's
    are copied and, of packages that take part in captures, arrays like NumPy's. Other arrays with
    ``__cuda_array_interface__`` or DLPack can't be copied: their graph reads the caller's own memory, and a
    call with other memory has another signature. Gradients don't pass through; outputs are detached.

    A write to an argument reaches the caller. torch's tensors count their writes, but not those of other
    libraries, such as a Triton kernel; return such a tensor. Of the arrays of NumPy and CuPy, of Python
    buffers, and of all arrays on the CPU backend, the elements that a run has changed are copied back, which
    takes two more copies and a comparison in every call, unless NumPy knows that the array can't be written.
    A write to an array that can't be written fails, as it does eagerly. A result that is one of the
    arguments is that argument again. A result that would be a view of an argument in an eager call is a copy,
    or with static outputs a view of the static array; so are results that share memory. A part of the result
    that is not an array stays as it was in the captured call.

    **Without copies** (``inputs="bind"``), a capture runs the function's Python code three to ten times, to
    find the addresses of the arguments among the parameters of its work, and seven times or more eagerly, to
    compare replays. Arguments, state that it can reach and random numbers are as before then. The function
    writes its arguments where they lie, as it does eagerly. Arrays that share memory with each other, with
    the graph or with state that it writes, and those whose address is not that of the captured one modulo
    512, are copied all the same.

    **Side effects**: the Python code of the function runs in the warm-up and in the capture, and not in
    replays; its work on the device runs once for every call. A capture that fails has run Python code up to
    the failure, or all of it, and no work; nothing is kept. With ``on_capture_error="eager"`` the
    function then runs again, so the side effects of its Python code happen twice in that call.

    **A capture that was broken** is made once more, with the diagnosis on (see `diagnose`), so that the
    `CaptureError` names the line. The Python code then runs a second time in that call. So this happens only
    if the function has run with such arguments before (not with ``warmup=0``), and if the call fails anyway
    (not with ``on_capture_error="eager"``). Should the second capture succeed, it is used, and a
    `RuntimeWarning` is issued. Later calls with such arguments are captured once, with the diagnosis on. The
    environment variable ``ACCELERATOR_GRAPH_DIAGNOSE=0`` turns this off.

    **In a capture**, of any library, a graphed function runs as it is and becomes part of that capture.

    **Threads**: calls from several threads run one at a time, except the function's eager runs. Calls on
    several streams wait for each other. The caller has to guard static outputs. A stream on which a call ran
    may be destroyed as soon as the call has returned. Only one graphed function is captured at a time in the
    process; meanwhile, a call of another one that would be captured runs the function as it is.

    **Signal handlers and finalisers** may call graphed functions at any time. In the middle of another call
    of the same function on their thread, they run the function as it is.

    **On the CPU backend** arrays are NumPy arrays, torch tensors on the CPU, and Python buffers. The function
    has to do all its work through the current stream, and the result is there once that is synchronised::

        @graphed
        def add(x, y):
            out = np.empty_like(x)
            accelerator_graph.current_stream().launch(np.add, x, y, out)
            return out

    There, and on other backends that record only work on this library's streams, ordinary NumPy code runs at
    once and no replay repeats it. A `CaptureError` says so where it can be seen: nothing was recorded, the
    function wrote an argument itself, or it returned a NumPy scalar or an array that no recorded work was
    given. A value that ordinary code computes from an array and passes on can't be told from a constant: in
    ``launch(np.add, x * 2, y, out)``, ``float(x.sum())`` and ``if x[0] > 0``, it stays as it was in the
    captured call. A write to an argument that changes nothing in that call is not seen either.

    A graphed method has graphs of its own for every instance, which are dropped with the instance. Copies and
    pickles of the function, and of instances, begin without graphs.
    """
    times, most = integer(warmup, "warmup"), integer(max_graphs, "max_graphs")
    options = Options(
        times, key, most, outputs, check_pool(pool), on_capture_error, inputs, to_verify(verify)
    )
    options.check()
    if function is None:
        return lambda function: _graphed(function, options)
    return _graphed(function, options)


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
