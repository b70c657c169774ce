"""`graphed`: a function that is captured once for every signature of its arguments, and replayed after."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable
from typing import Any, Literal, ParamSpec, TypeVar, overload

from .._core.pools import AnyPool, check_pool
from .._interpreter.integers import integer
from .cache import CacheInfo
from .function import Graphed
from .options import Options

__all__ = ["CacheInfo", "graphed"]

_NOT_ORDINARY = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)

P = ParamSpec("P")
R = TypeVar("R")


@overload
def graphed(function: Callable[P, R], /) -> Graphed[P, R]: ...


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
) -> Any:
    """Have a function captured once for every signature of its arguments, and replayed after.

    To be used as ``@graphed``, ``@graphed(...)`` or ``graphed(function, ...)``, for functions and methods.

    Parameters
    ----------
    function : callable
        What to capture. It enqueues work on the current stream; it may return arrays, anything else,
        and tuples, lists, dicts and dataclasses of both.
    warmup : int
        How many calls of every signature run the function as it is, once each. The next one captures it
        and replays once. So calls with an argument that changes every time, such as a counter, are never
        captured, of which one `RuntimeWarning` tells: pass it as an array.
    key : callable, optional
        Takes the function's arguments and returns the bucket of the call, which is hashable. Calls of one
        bucket share a graph. Their arrays have to have the same signature and places, else it is a
        `ValueError`; other arguments stay what they were in the call that was captured.
    max_graphs : int
        How many graphs to keep. The one that was not used for the longest time is dropped once another
        has been captured; its signature begins again with the warm-up.
    outputs : {"copy", "static"}
        Whether every call returns new arrays, or, which is faster, always the same ones, which any later
        call overwrites.
    pool : PoolId or torch.cuda.MemPool, optional
        The pool that the graphs share; by default one of the function's own for each device. Of one that is
        shared with others the rules in `graph_pool_handle` hold.
    on_capture_error : {"raise", "eager"}
        What a `CaptureError` does: it is raised, or the function runs as it is for that signature from
        then on, with one `RuntimeWarning`.

    Returns
    -------
    Graphed
        Takes the function's arguments. ``cache_info()`` returns a `CacheInfo`, ``clear()`` drops all
        graphs.

    Raises
    ------
    TypeError, ValueError
        An option is of the wrong type or value, or the function is a class, a coroutine or a generator. At
        a call, the first already: an argument, which is named, is neither an array nor hashable, or is an
        array that a replay can't read (memory of the host for a graph of a device, another device than the
        current stream's), or requires grad. At a capture: the result has an array of which no copy can be
        returned, such as one in memory of the host.
    CaptureError
        At a call, the first already: there is no current stream. At a capture: the function does what can't
        be captured.

    Notes
    -----
    **The signature** of a call is made of its arrays (type, shape, strides, element type, device, whether one
    of NumPy's can be written), of all other arguments by type and value, and of how they are nested. Values
    that compare equal and behave differently have different signatures: 0.0 and -0.0, ``{(1,)}`` and
    ``{(1.0,)}``, one instant in two time zones. They are compared by what `pickle` would save; a value that
    can't be pickled is like no other. It does not matter whether an argument is given by position, by name or
    by default, nor in which order names are: ``**kwargs`` come sorted. A decorator under this one has to
    leave the parameters as they are. Whether one array is given several times counts. Grad, inference and
    autocast modes of a framework like torch count where its tensors are arguments. What else the function
    reads (globals, attributes, the mode of a module) is captured once and does not count.

    **Arguments** that are arrays are copied into static ones, which the function is given in their place,
    in the order of the caller's current stream; so the function must keep none of them. One that is given
    several times is one there too; views of each other become arrays apart, and dense ones. This holds for
    arrays like torch's and, of packages that take part in captures, for arrays like NumPy's. Of others with
    ``__cuda_array_interface__`` or DLPack no copy can be made: their graph reads the caller's own memory,
    and a call with other memory has another signature. Gradients don't pass through; outputs are detached.

    What the function writes to its arguments reaches the caller if it returns that argument, or if the
    array counts its writes, as torch's tensors do (of work by other libraries they don't know). A write to
    an array that can't be written fails, as it does eagerly. A result that is one of the arguments is that
    argument again. What is a view of an argument in an eager call is a copy, or with static outputs a view of
    the static array; likewise results that share memory. What is no array in the result stays what it was in
    the call that was captured.

    **Side effects**: Python code in the function runs in the warm-up and in the capture, and not in
    replays; its work on the device runs once for every call. A capture that fails has run Python code up to
    the failure, or all of it, and no work; nothing is kept. With ``on_capture_error="eager"`` the
    function then runs again, so that what its Python code does happens twice in that call.

    **In a capture**, whoever's, a graphed function runs as it is and becomes part of that capture.

    **Threads**: calls from several threads are let through one at a time, except the function's eager runs.
    Calls on several streams wait for each other. Static outputs are the caller's to guard. A stream on
    which a call ran may be destroyed as soon as the call has returned. Only one graphed function is captured
    at a time in the process; calls of others that would be captured meanwhile run the function as it is.

    **Signal handlers and finalisers** may call graphed functions at any time. In the middle of another call
    of the same function on their thread, they run the function as it is.

    **On the CPU backend** arrays are NumPy's, torch's on the CPU, and Python's buffers. The function has
    to do all its work by the current stream, and the result is there when that has been synchronised::

        @graphed
        def add(x, y):
            out = np.empty_like(x)
            accelerator_graph.current_stream().launch(np.add, x, y, out)
            return out

    There, and on other backends that record only what goes through our streams, ordinary NumPy runs at once
    and no replay repeats it. A `CaptureError` says so where that shows: nothing was recorded, the function
    wrote an argument itself, or it returned an array that no recorded work was given, or a scalar of
    NumPy's. What ordinary code computes from an array and passes on can't be told from a constant: in
    ``launch(np.add, x * 2, y, out)``, ``float(x.sum())`` and ``if x[0] > 0``, it stays what it was in the
    call that was captured. Nor is a write to an argument seen that changes nothing in that call.

    As a method, the function has graphs of its own for every instance, which go with it. Copies and
    pickles of it, and of instances, begin without graphs.
    """
    times, most = integer(warmup, "warmup"), integer(max_graphs, "max_graphs")
    options = Options(times, key, most, outputs, check_pool(pool), on_capture_error)
    options.check()
    if function is None:
        return lambda function: _graphed(function, options)
    return _graphed(function, options)


def _graphed(function: Callable[..., Any], options: Options) -> Graphed[..., Any]:
    if isinstance(function, type):
        raise TypeError(
            f"graphed: {function!r} is a class, and calling it makes an instance; decorate one of its "
            "methods, or pass an instance that is callable."
        )
    if isinstance(function, staticmethod | classmethod | property):
        kind = type(function).__name__
        raise TypeError(f"graphed: a {kind} can't be captured; put @graphed below @{kind}.")
    if not callable(function):
        raise TypeError(f"graphed: the function must be a callable, not {function!r}.")
    if any(test(each) for each in (function, type(function).__call__) for test in _NOT_ORDINARY):
        raise TypeError(
            f"graphed: {function!r} is a coroutine or a generator, which can't be captured; pass an "
            "ordinary function."
        )
    return Graphed(function, options)
