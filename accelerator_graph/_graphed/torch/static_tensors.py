"""The static tensors of captured passes: copying to them, and which memory they share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

from ..input_nodes import InputNodes


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
