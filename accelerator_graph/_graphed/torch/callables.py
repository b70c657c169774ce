"""`make_graphed_callables`: replay the forward and backward passes of torch modules and functions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeVar, overload

from ..._arrays.placement import check_place, writable
from ..._core.current_stream import side_of
from ..._core.pools import AnyPool, PoolId, check_pool, graph_pool_handle
from ..._core.streams import Stream, captured_by
from ..._interpreter import integer
from ...backends.base import Capability
from ...errors import EmptyGraphWarning, UnsupportedError, capture_error
from ...interop import registry as interop
from ..call_order import current_stream
from .captured_passes import CapturedPass, Passes
from .pass_streams import PassStreams
from .replay_autograd import grad_aliases_of, replaying

C = TypeVar("C", bound=Callable[..., Any])
Cs = TypeVar("Cs", bound=tuple[Callable[..., Any], ...])


@overload
def make_graphed_callables(
    callables: C,
    sample_args: Sequence[Any],
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: AnyPool | None = None,
    *,
    inputs: Literal["copy", "node"] = "copy",
) -> C: ...


@overload
def make_graphed_callables(
    callables: Cs,
    sample_args: Sequence[Sequence[Any]],
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: AnyPool | None = None,
    *,
    inputs: Literal["copy", "node"] = "copy",
) -> Cs: ...


def make_graphed_callables(
    callables: Any,
    sample_args: Sequence[Any],
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: AnyPool | None = None,
    *,
    inputs: Literal["copy", "node"] = "copy",
) -> Any:
    """Capture torch modules and functions, forward and backward, to replay them in a training loop.

    As `torch.cuda.make_graphed_callables`, on whatever backend torch's device has.

    Parameters
    ----------
    callables : callable or tuple of callables
        Modules, whose ``forward`` is replaced, and functions, in the order in which they will run.
    sample_args : tuple, or tuple of tuples
        The arguments of the callable, or of each: tensors, which may be nested. They become the static
        inputs. They must require grad where the later arguments do.
    num_warmup_iters : int
        How often every callable runs before its capture, backward included.
    allow_unused_input : bool
        Whether the outputs may not depend on an argument or a parameter that requires grad. Its gradient is
        None then.
    pool : PoolId or torch.cuda.MemPool, optional
        The pool that the graphs share; by default a new one.
    inputs : {"copy", "node"}
        Whether torch copies the arguments and the gradients to static tensors before each replay, or nodes
        of the graphs do. Where that is not possible, torch copies.

    Returns
    -------
    callable or tuple of callables
        The same modules, and for every function a callable that replays it.

    Raises
    ------
    TypeError, ValueError
        An argument can't be captured: a sample that is not a tensor, is on another device than the current
        stream's, or overlaps with itself or another; a module with hooks, or a buffer that requires grad;
        an input that the outputs don't depend on. The message names the callable.
    UnsupportedError
        torch does not take part in captures on the current stream's backend, or autocast caches its casts:
        enter it with ``cache_enabled=False``.
    CaptureError
        A callable does what can't be captured, or the current stream is being captured.

    Notes
    -----
    A call copies its arguments to the static inputs, unless they are these, and replays the forward pass
    on the current stream, without waiting; autograd gets one node, which replays the backward pass. Calls
    on several streams wait for each other. A module in the other mode, training or evaluation, runs as it
    did before. A call under ``no_grad`` makes no node.

    **Outputs and gradients** are static memory, which the next call or the next backward pass overwrites,
    except a parameter's ``grad``, in which gradients accumulate. A part of a result that is not a tensor
    stays as it was in the capture.

    **Order**: the backward pass of a call must run before the next call of the same callable, and only once,
    otherwise `GraphStateError` is raised. Run the callables of one pool in the order in which they were
    given, and their backward passes in the reverse order. Gradients of gradients are refused.

    **Parameters** must not be added, removed or moved afterwards. The first call compares the addresses of
    samples, parameters and buffers with those in the capture, and raises `GraphStateError` if one was moved.
    Hooks of a module may be registered afterwards. Every replay draws new random numbers; the backward pass
    sees those of its forward pass.

    **A failure** leaves no graph, and leaves the modules and the current streams as they were. The warm-up
    has run: it has drawn random numbers and updated the buffers of the modules.
    """
    if inputs not in ("copy", "node"):
        raise ValueError(f"inputs must be 'copy' or 'node', not {inputs!r}.")
    num_warmup_iters = integer(num_warmup_iters, "num_warmup_iters")
    if num_warmup_iters < 0:
        raise ValueError(f"num_warmup_iters must be at least 0, not {num_warmup_iters}.")
    pool = check_pool(pool)
    single = not isinstance(callables, tuple)
    functions = (callables,) if single else callables
    samples = (sample_args,) if single else sample_args
    passes = _passes(functions, samples, allow_unused_input)
    stream = current_stream()
    _check_stream(stream)
    for each in passes:
        _check_places(each, stream)
    pool = graph_pool_handle() if pool is None else pool
    settable = Capability.SET_NODE in stream._backend.capabilities(stream.device)
    made = _capture(passes, stream, num_warmup_iters, pool, nodes=inputs == "node" and settable)
    found = _install(passes, made)
    return found[0] if single else found


def _passes(functions: tuple[Any, ...], samples: Sequence[Any], allow_unused: bool) -> list[Passes]:
    """Check the callables and their arguments, before anything has begun."""
    if not isinstance(samples, tuple | list) or len(samples) != len(functions):
        raise ValueError("sample_args must hold one tuple for every callable, in the same order.")
    if not functions:
        raise ValueError("callables must hold at least one callable.")
    passes: list[Passes] = []
    for i, (function, args) in enumerate(zip(functions, samples, strict=True)):
        if not callable(function):
            raise TypeError(f"callable {i} must be a module or a function, not {function!r}.")
        name = f"callable {i} ({getattr(function, '__qualname__', type(function).__qualname__)})"
        if not isinstance(args, tuple | list):
            raise TypeError(f"{name}: sample_args must hold a tuple of its arguments, not {type(args)!r}.")
        if any(function is each.function for each in passes if each.is_module):
            raise ValueError(f"{name} was given twice, and a module has one forward(); wrap it in functions.")
        passes.append(Passes(name, function, args, allow_unused))
    return passes


def _check_stream(stream: Stream) -> None:
    """Raise if nothing can be captured beside this stream."""
    if stream._is_capturing():
        subject = "the callables can't be captured"
        raise capture_error(subject, reason="foreign_capture", fact=captured_by(stream))
    if not interop.active(stream.backend):
        raise UnsupportedError(
            f"no framework takes part in captures on backend {stream.backend!r}, so torch does not."
        )


def _check_places(passes: Passes, stream: Stream) -> None:
    """Raise if the passes could not read their tensors, or an argument shares memory with another."""
    for label, tensor in (*passes.arguments, *passes.parameters):
        check_place(tensor, f"{passes.name}: {label}", stream)
    addresses = set()
    for label, tensor in passes.arguments:
        address = tensor.data_ptr()
        if address and (address in addresses or not writable(tensor)):
            raise ValueError(
                f"{passes.name}: {label} shares memory with another argument, or with itself, and every "
                "call writes all of them; pass its clone()."
            )
        addresses.add(address)


def _capture(
    passes: list[Passes], stream: Stream, warmup: int, pool: PoolId, *, nodes: bool
) -> list[Callable[..., Any]]:
    """Warm up, and capture the forward passes in order and the backward passes in the reverse order."""
    side = side_of(stream)
    captures = [(CapturedPass(side, pool), CapturedPass(side, pool)) for _ in passes]
    streams = PassStreams(stream)
    try:
        side._join(stream)
        try:
            with side:
                for each in passes:
                    for _ in range(warmup):
                        with _noting(each, "the warm-up"):
                            each.forward()
                            if each.prepare_backward():
                                each.backward()
                            each.forget()
        finally:
            stream._join(side)
        for each, (forward, _) in zip(passes, captures, strict=True):
            with _noting(each, "the capture of the forward pass"):
                if nodes:
                    nodes = forward.capture_with_copies(each.forward, each.statics, again=True)
                else:
                    forward.capture(each.forward)
        for each, (_, backward) in reversed(list(zip(passes, captures, strict=True))):
            with _noting(each, "the capture of the backward pass"), warnings.catch_warnings():
                warnings.simplefilter("ignore", EmptyGraphWarning)  # gradients may pass unchanged
                if each.prepare_backward() and nodes:
                    backward.capture_with_copies(each.backward, each.incoming, again=False)
                elif each.incoming:
                    backward.capture(each.backward)
        aliases = grad_aliases_of(tuple(pool))
        return [
            replaying(
                each,
                streams.preparing(forward.graph),
                streams.preparing(backward.graph),
                aliases,
                (forward.nodes, backward.nodes),
            )
            for each, (forward, backward) in zip(passes, captures, strict=True)
        ]
    except BaseException:
        for each in passes:
            each.forget()
        for pair in captures:
            for captured in pair:
                captured.graph.reset()
        raise


@contextmanager
def _noting(passes: Passes, when: str) -> Iterator[None]:
    """Add a note that names the callable to whatever is raised."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"{passes.name}: this was {when}.")
        raise


def _install(passes: list[Passes], made: list[Callable[..., Any]]) -> tuple[Any, ...]:
    """Put the replays into all modules or, if that fails, into none; return the modules and functions."""
    before = [(each.function, vars(each.function).copy()) for each in passes if each.is_module]
    try:
        for each, replay in zip(passes, made, strict=True):
            if each.is_module:
                each.function.forward = _forward(each.function, replay)
    except BaseException:
        for module, attributes in before:
            vars(module).pop("forward", None)
            if "forward" in attributes:
                vars(module)["forward"] = attributes["forward"]
        raise
    return tuple(each.function if each.is_module else made[i] for i, each in enumerate(passes))


def _forward(module: Any, replay: Callable[..., Any]) -> Callable[..., Any]:
    """Return the new ``forward`` of a module: the old one runs in the mode that was not captured."""
    before, captured_mode = module.forward, module.training

    def forward(*args: Any, **named: Any) -> Any:
        if module.training is not captured_mode:
            return before(*args, **named)
        return replay(*args, **named)

    return forward
