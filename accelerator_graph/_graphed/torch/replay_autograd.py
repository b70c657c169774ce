"""What runs the captured passes of a torch module or function: a callable, and a node of autograd."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from ...errors import GraphStateError

Lane = Callable[[], Callable[[], None]]
"""Gets a pass ready to run on the stream that is current by then, and returns what launches it."""

Run = Callable[[Sequence[Any]], tuple[Any, ...]]


class Captured(NamedTuple):
    """The static tensors of one callable's passes."""

    name: str
    """What the callable is called in messages."""
    args: tuple[Any, ...]
    statics: list[Any]
    """The tensors in the arguments."""
    params: list[Any]
    """The parameters that require grad."""
    result: Any
    incoming: list[Any]
    """The gradients of those outputs that require grad; none if there is no backward pass."""
    grads: Sequence[Any]
    """The gradients of those arguments that require grad, and of the parameters. None for what is unused."""


class Loans:
    """Static gradients that have become a parameter's ``grad`` as they were.

    Any pass of the pool may write their memory, so that they have to be settled ahead of each.
    """

    __slots__ = ("__weakref__", "given")

    def __init__(self) -> None:
        self.given: list[tuple[Any, int]] = []
        """Parameters, and where the gradients are that they were given."""

    def settle(self) -> None:
        """Let every parameter that still holds what it was given have a copy of its own."""
        given, self.given = self.given, []
        for param, pointer in given:
            grad = param.grad
            if grad is not None and grad.data_ptr() == pointer:
                param.grad = grad.clone()


_loans: WeakValueDictionary[Hashable, Loans] = WeakValueDictionary()


def loans_of(pool: Hashable) -> Loans:
    """Return the loans from a pool's memory, which all callables that were captured into it share."""
    return _loans.setdefault(pool, Loans())


def joined(torch: Any, it: Captured, forward: Lane, backward: Lane, loans: Loans) -> Callable[..., Any]:
    """Return the callable that replays the passes."""
    leaves, spec = torch.utils._pytree.tree_flatten(it.result)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    constant = [j for j, i in enumerate(places) if not leaves[i].requires_grad]
    outputs = [leaves[i].detach() for i in places]
    rest = [None if i in places else leaf for i, leaf in enumerate(leaves)]
    alone = isinstance(it.result, torch.Tensor)
    as_it_is = type(it.result) is tuple and all(isinstance(part, torch.Tensor) for part in it.result)
    flatten, unflatten = torch.utils._pytree.tree_flatten, torch.utils._pytree.tree_unflatten
    unwatched = [i for i, static in enumerate(it.statics) if not static.requires_grad]
    count, params, wanted = len(it.statics), tuple(it.params), flatten(it.args)[1]
    flat = len(it.args) == count and all(map(_is, it.statics, it.args))
    grad_enabled, no_grad = torch.is_grad_enabled, torch.no_grad
    transforms = torch._C._are_functorch_transforms_active
    calls = Calls()
    replay = _forward(torch, it, forward, outputs, calls, loans)
    apply: Any = None
    general: Any = None
    if it.incoming:
        replay_back = _backward(torch, it, backward, outputs, constant, loans)
        apply, general = _node(torch, it.name, calls, replay, replay_back, constant)
    name = it.name

    def call(*args: Any) -> Any:
        values = args if flat and len(args) == count else nested(args)
        try:
            if not grad_enabled():
                found = replay(values)
            else:
                for i in unwatched:
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
        if alone:
            return found[0]
        return found if as_it_is else filled(found)

    def nested(args: tuple[Any, ...]) -> Sequence[Any]:
        values: Sequence[Any]
        values, spec = flatten(args)
        if spec != wanted:
            raise TypeError(f"{name}: the arguments are not as many, or not nested, as in sample_args.")
        return values

    def filled(found: tuple[Any, ...]) -> Any:
        new = list(rest)
        for i, output in zip(places, found, strict=True):
            new[i] = output
        return unflatten(new, spec)

    return call


class Calls:
    """How often the static tensors were overwritten."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


def _forward(torch: Any, it: Captured, lane: Lane, outputs: list[Any], calls: Calls, loans: Loans) -> Run:
    """Return what replays the forward pass on other arguments. More than there were are left alone."""
    copy_in = _copier(torch, f"{it.name}: argument", it.statics)
    detach = torch.Tensor.detach

    def replay(values: Sequence[Any]) -> tuple[Any, ...]:
        launch = lane()
        if loans.given:
            loans.settle()
        copy_in(values)
        calls.count += 1
        launch()
        return tuple(map(detach, outputs))

    return replay


def _backward(
    torch: Any, it: Captured, lane: Lane, outputs: list[Any], constant: list[int], loans: Loans
) -> Run:
    """Return what replays the backward pass on gradients of all outputs, and gives those of the inputs.

    What nobody else holds becomes a parameter's ``grad`` as it is; of other gradients autograd makes copies.
    """
    copy_in = _copier(torch, f"{it.name}: gradient", it.incoming)
    wanted = [j for j in range(len(outputs)) if j not in constant]
    count, total = len(it.statics), len(it.statics) + len(it.params)
    places = [i for i, static in enumerate(it.statics) if static.requires_grad]
    places += range(count, total)
    found = [(place, grad) for place, grad in zip(places, it.grads, strict=True) if grad is not None]
    grads = [grad.detach() for _, grad in found]
    taken = [_memory(each) for each in (*grads, *it.incoming, *outputs, *it.statics, *it.params)]
    own = [place >= count and taken.count(_memory(grad)) == 1 for place, grad in found]
    given = [
        (it.params[place - count], grad.data_ptr())
        for (place, grad), own in zip(found, own, strict=True)
        if own
    ]
    shared = [i for i, own in enumerate(own) if not own]
    order = [place for place, _ in found]
    held: list[Any] = []
    detach = torch.Tensor.detach

    def replay(incoming: Sequence[Any]) -> tuple[Any, ...]:
        launch = lane()
        if loans.given:
            loans.settle()
        copy_in([incoming[j] for j in wanted] if constant else incoming)
        launch()
        loans.given += given
        new = list(map(detach, grads))
        held[:] = [new[i] for i in shared]
        if len(new) == total:
            return tuple(new)
        padded: list[Any] = [None] * total
        for place, grad in zip(order, new, strict=True):
            padded[place] = grad
        return tuple(padded)

    return replay


def _node(
    torch: Any, name: str, calls: Calls, replay: Run, replay_back: Run, constant: list[int]
) -> tuple[Any, Any]:
    """Return what replays in a node of autograd: as fast as can be, and for all circumstances."""
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
                f"{name}: what its backward pass reads is overwritten by the next call, and by the pass "
                "itself; run it once for every call, and before the next one."
            )
        calls.count += 1
        if grad_enabled():  # with create_graph=True: whoever differentiates again is to hear of it
            return once(ctx, *[grad.detach().requires_grad_() for grad in grads])
        return replay_back(grads)

    once = torch.autograd.function.once_differentiable(lambda ctx, *grads: replay_back(grads))
    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    node = type(function)("Graphed", (function,), members)
    return super(function, node).apply, node.apply


def _copier(torch: Any, what: str, targets: Sequence[Any]) -> Callable[[Sequence[Any]], None]:
    """Return what copies values to static tensors, except those that are there already."""
    plan = [(i, x.detach(), x.data_ptr(), x.shape, x.stride()) for i, x in enumerate(targets)]
    copy_all = torch._foreach_copy_
    storages = {_memory(x) for x in targets}
    ends = [(x.untyped_storage().data_ptr(), x.untyped_storage().nbytes()) for x in targets]
    first, last = min((p for p, _ in ends), default=0), max((p + size for p, size in ends), default=0)

    def copy(values: Sequence[Any]) -> None:
        there, here = [], []
        for value, (i, target, pointer, shape, strides) in zip(values, plan, strict=False):
            if value.shape != shape:
                raise ValueError(f"{what} {i} has shape {tuple(value.shape)}, not {tuple(shape)}.")
            place = value.data_ptr()
            if not first <= place < last or _memory(value) not in storages:
                there.append(target)
                here.append(value)
            elif place != pointer or value.stride() != strides or not _reads_as(value, target):
                there.append(target)  # it lies where one of the targets does, and may be overwritten first
                here.append(value.clone())
        if len(here) == 1:
            there[0].copy_(here[0])
        elif here:
            copy_all(there, here)

    return copy


def _reads_as(one: Any, other: Any) -> bool:
    """Say whether two tensors read the same bytes in the same way."""
    return bool(
        one.dtype is other.dtype and one.is_conj() is other.is_conj() and one.is_neg() is other.is_neg()
    )


def _memory(x: Any) -> int:
    """Return where the storage of a tensor is; those of no size share none."""
    try:
        return x.untyped_storage().data_ptr() or id(x)
    except (NotImplementedError, RuntimeError):  # it is sparse
        return id(x)


def _is(one: object, other: object) -> bool:
    return one is other
