"""The replay of captured passes: a callable, its node of autograd, and the static tensors of both."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import Any
from weakref import WeakValueDictionary

from ...errors import GraphStateError
from ..input_nodes import InputNodes
from .captured_passes import FixedAddresses, Passes


@dataclass(eq=False, slots=True, weakref_slot=True)
class GradAliases:
    """Parameters whose ``grad`` is static memory, which any pass of the pool may write."""

    aliases: list[tuple[Any, int]] = field(default_factory=list)
    """The parameters, each with the address of the static gradient that it was given."""

    def replace(self) -> None:
        """Give every parameter that still holds its static gradient a copy of it."""
        aliases, self.aliases = self.aliases, []
        for param, address in aliases:
            grad = param.grad
            if grad is not None and grad.data_ptr() == address:
                param.grad = grad.clone()


_aliases: WeakValueDictionary[Hashable, GradAliases] = WeakValueDictionary()


def grad_aliases_of(pool: Hashable) -> GradAliases:
    """Return the aliases in a pool's memory, which all callables that were captured into it share."""
    return _aliases.setdefault(pool, GradAliases())


def copying(
    torch: Any, what: str, targets: Sequence[Any], nodes: InputNodes | None = None
) -> Callable[[Sequence[Any]], None]:
    """Return what copies values to static tensors, except values that are those tensors already.

    Its argument may have more values than there are tensors. If there are `nodes` for some of the tensors,
    these copy in the next run, unless the bytes of a value are not those that the tensor is to have.
    """
    plan = [(i, x.detach(), x.data_ptr(), x.shape, x.stride()) for i, x in enumerate(targets)]
    statics = [each[1] for each in plan]
    copy_all = torch._foreach_copy_
    plain = (torch.Tensor, torch.nn.Parameter)
    number_of = {} if nodes is None else nodes.arguments
    storages = {storage_of(x) for x in targets}
    ends = [(x.untyped_storage().data_ptr(), x.untyped_storage().nbytes()) for x in targets]
    first = min((start for start, _ in ends), default=0)
    last = max((start + size for start, size in ends), default=0)

    def copy(values: Sequence[Any]) -> None:
        written, read = [], []
        if nodes is not None:
            sources, given = [*statics], nodes.statics[:]
        for value, (i, target, address, shape, strides) in zip(values, plan, strict=False):
            if value.shape != shape:
                raise ValueError(f"{what} {i} has shape {tuple(value.shape)}, not {tuple(shape)}.")
            place = value.data_ptr()
            alike = value.stride() == strides and _reads_as(value, target)
            if not first <= place < last or storage_of(value) not in storages:
                if i in number_of and alike and type(value) in plain and value.device == target.device:
                    sources[i], given[number_of[i]] = value, place
                else:
                    written.append(target)
                    read.append(value)
            elif place != address or not alike:
                written.append(target)  # the value shares memory with a target, which may be written first
                read.append(value.clone())
        if len(read) == 1:
            written[0].copy_(read[0])
        elif read:
            copy_all(written, read)
        if nodes is not None:
            nodes.read_at(given, sources)

    return copy


def storage_of(x: Any) -> int | None:
    """Return the address of a tensor's storage; None for a tensor that is sparse or empty."""
    try:
        return x.untyped_storage().data_ptr() or None
    except (NotImplementedError, RuntimeError):  # it is sparse
        return None


def _reads_as(one: Any, other: Any) -> bool:
    """Return True if two tensors at one address read its bytes in the same way."""
    return bool(
        one.dtype is other.dtype and one.is_conj() is other.is_conj() and one.is_neg() is other.is_neg()
    )


Prepare = Callable[[], Callable[[], None]]
"""Prepares a pass for the current stream, and returns what launches it."""

Run = Callable[[Sequence[Any]], tuple[Any, ...]]


@dataclass(eq=False, slots=True)
class _Calls:
    """Counts how often the static tensors were overwritten."""

    count: int = 0
    checked: bool = False
    """Whether the addresses were compared."""


def replaying(
    passes: Passes,
    forward: Prepare,
    backward: Prepare,
    aliases: GradAliases,
    nodes: tuple[InputNodes | None, InputNodes | None],
) -> Callable[..., Any]:
    """Return the callable that replays captured passes, and drop the graph that autograd has made.

    The `nodes` of the two graphs copy to the static tensors, if there are any.
    """
    torch = passes.torch
    flatten, unflatten = torch.utils._pytree.tree_flatten, torch.utils._pytree.tree_unflatten
    leaves, result_spec = flatten(passes.result)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    constant = [j for j, i in enumerate(places) if not leaves[i].requires_grad]
    outputs = [leaves[i].detach() for i in places]
    others = [None if i in places else leaf for i, leaf in enumerate(leaves)]
    is_tensor = isinstance(passes.result, torch.Tensor)
    is_tuple = type(passes.result) is tuple and all(isinstance(each, torch.Tensor) for each in passes.result)
    without_grad = [i for i, static in enumerate(passes.statics) if not static.requires_grad]
    name, params, args_spec = passes.name, tuple(passes.params), flatten(passes.args)[1]
    count = len(passes.statics)
    flat = len(passes.args) == count and all(map(is_, passes.statics, passes.args))
    grad_enabled, no_grad = torch.is_grad_enabled, torch.no_grad
    transforms = torch._C._are_functorch_transforms_active
    calls = _Calls()
    replay = _forward(passes, forward, outputs, calls, aliases, nodes[0])
    apply: Any = None
    general: Any = None
    if passes.incoming:
        replay_back = _backward(passes, backward, outputs, constant, aliases, nodes[1])
        apply, general = _node(torch, name, calls, replay, replay_back, constant)
    passes.forget()

    def call(*args: Any) -> Any:
        values = args if flat and len(args) == count else flattened(args)
        try:
            if not grad_enabled():
                found = replay(values)
            else:
                for i in without_grad:
                    if values[i].requires_grad:
                        raise ValueError(
                            f"{name}: argument {i} requires grad, and its sample did not, so no gradient was "
                            "captured; pass its detach(), or a sample that requires grad."
                        )
                if apply is not None:
                    found = (general if transforms() else apply)(*values, *params)
                else:
                    with no_grad():
                        found = replay(values)
        except AttributeError:
            for i, value in enumerate(values):
                if not isinstance(value, torch.Tensor):
                    kind = f"of type {type(value).__name__!r}"
                    raise TypeError(f"{name}: argument {i} is {kind}; pass a tensor.") from None
            raise
        if is_tensor:
            return found[0]
        return found if is_tuple else filled(found)

    def flattened(args: tuple[Any, ...]) -> Sequence[Any]:
        values: Sequence[Any]
        values, spec = flatten(args)
        if spec != args_spec:
            raise TypeError(f"{name}: the number or the nesting of the arguments differs from sample_args.")
        return values

    def filled(found: tuple[Any, ...]) -> Any:
        new = list(others)
        for i, output in zip(places, found, strict=True):
            new[i] = output
        return unflatten(new, result_spec)

    return call


def _forward(
    passes: Passes,
    prepare: Prepare,
    outputs: list[Any],
    calls: _Calls,
    aliases: GradAliases,
    nodes: InputNodes | None,
) -> Run:
    """Return what replays the forward pass on arguments, which parameters may follow."""
    copy_in = copying(passes.torch, f"{passes.name}: argument", passes.statics, nodes)
    detach = passes.torch.Tensor.detach
    addresses = FixedAddresses(passes)

    def replay(values: Sequence[Any]) -> tuple[Any, ...]:
        if not calls.checked:
            addresses.check()
            calls.checked = True
        launch = prepare()
        if aliases.aliases:
            aliases.replace()
        copy_in(values)
        calls.count += 1
        launch()
        return tuple(map(detach, outputs))

    return replay


def _backward(
    passes: Passes,
    prepare: Prepare,
    outputs: list[Any],
    constant: list[int],
    aliases: GradAliases,
    nodes: InputNodes | None,
) -> Run:
    """Return what replays the backward pass on gradients of all outputs, and returns those of the inputs.

    A gradient becomes a parameter's ``grad`` as it is if nothing else shares its memory; autograd copies the
    other gradients, since they are held here.
    """
    copy_in = copying(passes.torch, f"{passes.name}: gradient", passes.incoming, nodes)
    wanted = [j for j in range(len(outputs)) if j not in constant]
    count, total = len(passes.statics), len(passes.statics) + len(passes.params)
    inputs = [i for i, static in enumerate(passes.statics) if static.requires_grad] + [*range(count, total)]
    found = [(i, grad.detach()) for i, grad in zip(inputs, passes.grads, strict=True) if grad is not None]
    grads = [grad for _, grad in found]
    static = (*grads, *passes.incoming, *outputs, *passes.statics, *passes.params)
    storages = [storage_of(each) for each in static]
    shared: list[int] = []
    given: list[tuple[Any, int]] = []
    for n, (i, grad) in enumerate(found):
        storage = storage_of(grad)
        if i >= count and storage is not None and storages.count(storage) == 1:
            given.append((passes.params[i - count], grad.data_ptr()))
        else:
            shared.append(n)
    held: list[Any] = []
    detach = passes.torch.Tensor.detach

    def replay(incoming: Sequence[Any]) -> tuple[Any, ...]:
        launch = prepare()
        if aliases.aliases:
            aliases.replace()
        copy_in([incoming[j] for j in wanted] if constant else incoming)
        launch()
        aliases.aliases += given
        new = list(map(detach, grads))
        held[:] = [new[n] for n in shared]
        if len(new) == total:
            return tuple(new)
        padded: list[Any] = [None] * total
        for (i, _), grad in zip(found, new, strict=True):
            padded[i] = grad
        return tuple(padded)

    return replay


def _node(
    torch: Any, name: str, calls: _Calls, replay: Run, replay_back: Run, constant: list[int]
) -> tuple[Any, Any]:
    """Return what replays in a node of autograd: the fast way, and the way for torch's transforms."""
    function = torch.autograd.Function
    grad_enabled = torch.is_grad_enabled

    def forward(ctx: Any, *inputs: Any) -> tuple[Any, ...]:
        new = replay(inputs)
        ctx.call = calls.count
        if constant:
            ctx.mark_non_differentiable(*[new[j] for j in constant])
        return new

    def backward(ctx: Any, *grads: Any) -> Any:
        if ctx.call != calls.count:
            raise GraphStateError(
                f"{name}: the next call, and the backward pass itself, overwrite the tensors that it reads; "
                "run it once for every call, and before the next one."
            )
        calls.count += 1
        if grad_enabled():  # with create_graph=True: a second differentiation has to raise
            return once(ctx, *[grad.detach().requires_grad_() for grad in grads])
        return replay_back(grads)

    once = torch.autograd.function.once_differentiable(lambda ctx, *grads: replay_back(grads))
    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    node = type(function)("Graphed", (function,), members)
    return super(function, node).apply, node.apply
