"""The collectives of torch.distributed that a capture's work asks for.

Whatever torch itself offers goes through an operator: the functions of torch.distributed, the methods of a
process group, functional collectives (compiled ones as well), DDP and FSDP. Not seen are a backend's own
methods (``group._get_backend(device).allreduce``), other libraries' calls of NCCL, and whatever a custom
operator calls inside of itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from ..base import Collective, Undo
from .observing import observe_operators

_NAMESPACES = {"c10d", "_c10d_functional", "c10d_functional", "symm_mem"}

_KINDS = {
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce",
    "allgather_": "all_gather",
    "_allgather_base_": "all_gather",
    "allgather_coalesced_": "all_gather",
    "allgather_into_tensor_coalesced_": "all_gather",
    "_reduce_scatter_base_": "reduce_scatter",
    "alltoall_": "all_to_all",
    "alltoall_base_": "all_to_all",
    "recv_any_source_": "recv",
    "isend": "send",
    "irecv": "recv",
}
_SUFFIXES = ("_out", "_coalesced", "_into_tensor", "_tensor", "_single")
_GROUPS = ("process_group", "group_name", "group")
_PEERS = ("root_rank", "dst", "src", "root")
_WHOLE = {
    "all_gather": ("output_tensors", "output_tensor", "outputs", "output_lists"),
    "reduce_scatter": ("input_tensors", "input_tensor", "inputs", "input"),
    "gather": ("input_tensors",),
    "scatter": ("output_tensors",),
    "barrier": (),
    "monitored_barrier": (),
}
"""The arguments whose size is the same on all ranks; the first one with tensors if nothing is said here."""


def observe_collectives(
    torch: Any, note: Callable[[Collective], object], captured: Callable[[Any], bool]
) -> Undo:
    """Call `note` for each collective on tensors for which `captured` is True; return the undo."""
    distributed = torch.distributed

    def seen(operator: Any, args: Any, kwargs: Any, result: Any) -> None:
        if operator.namespace not in _NAMESPACES:
            return
        given = {each.name: arg for each, arg in zip(operator._schema.arguments, args, strict=False)} | kwargs
        group = next((given[name] for name in _GROUPS if name in given), None)
        if group is not None and any(map(captured, _tensors(torch, given.values()))):
            name = operator._schema.name.partition("::")[2]
            try:
                collectives = list(_read(torch, distributed, name, given, group))
            except Exception:  # an operator of a later torch, which must not break the capture
                collectives = [Collective(_kind(name), str(group))]
            for collective in collectives:
                note(collective)

    return observe_operators(torch, seen)


def _read(torch: Any, distributed: Any, name: str, given: dict[str, Any], group: Any) -> Iterator[Collective]:
    """Yield what an operator with these arguments asks for."""
    group_name, ranks = _group(torch, distributed, group)
    file, line = _site(torch)

    def of(kind: str, tensors: Sequence[Any], count: int | None, peer: int | None) -> Collective:
        dtypes = sorted({str(each.dtype).rpartition(".")[2] for each in tensors})
        if peer is not None:
            peer = ranks[peer] if 0 <= peer < len(ranks) else None
        return Collective(kind, group_name, ranks, "+".join(dtypes), count, peer, file, line)

    if name == "batch_p2p_ops":
        for each, peer, tensor in zip(given["op_list"], given["peer_list"], given["tensors"], strict=True):
            yield of(_KINDS.get(each, each), [tensor], tensor.numel(), peer)
        return
    kind = _kind(name)
    tensors = _sized(torch, kind, given)
    peer = next((given[each] for each in _PEERS if isinstance(given.get(each), int)), None)
    yield of(kind, tensors, _count(kind, given, tensors), peer)


def _kind(name: str) -> str:
    """Return a collective's name without the variants of its operator."""
    kind = _KINDS.get(name) or name.rstrip("_")
    while suffix := next((each for each in _SUFFIXES if kind.endswith(each)), ""):
        kind = kind.removesuffix(suffix)
    return kind


def _sized(torch: Any, kind: str, given: dict[str, Any]) -> list[Any]:
    """Return the tensors whose size is the same on all ranks."""
    names = _WHOLE.get(kind)
    if names is not None:
        for name in names:
            if found := list(_tensors(torch, [given.get(name)])):
                return found
        if not names:
            return []
    return next(filter(None, (list(_tensors(torch, [each])) for each in given.values())), [])


def _count(kind: str, given: dict[str, Any], tensors: Sequence[Any]) -> int | None:
    """Return how many elements there are in all; None if the ranks may rightly have different ones."""
    sizes = [int(each.numel()) for each in tensors]
    if kind == "all_to_all":
        splits = [*(given.get("input_split_sizes") or ()), *(given.get("output_split_sizes") or ())]
        if len(set(splits or sizes)) > 1:
            return None
    if kind == "all_gather" and "group_size" in given:  # the functional ones return the output
        return sum(sizes) * int(given["group_size"])
    return sum(sizes)


def _group(torch: Any, distributed: Any, group: Any) -> tuple[str, tuple[int, ...]]:
    """Return the name and the ranks of a group; no ranks if it is not one of torch.distributed's."""
    native = torch._C._distributed_c10d
    try:
        if isinstance(group, str):
            group = native._resolve_process_group(group)
        elif not isinstance(group, native.ProcessGroup):
            group = native.ProcessGroup.unbox(group)
        return str(group.group_name), tuple(distributed.get_process_group_ranks(group))
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError):
        return str(getattr(group, "group_name", group)), ()


def _tensors(torch: Any, values: Any) -> Iterator[Any]:
    for each in values:
        if isinstance(each, torch.Tensor):
            yield each
        elif isinstance(each, list | tuple):
            yield from _tensors(torch, each)


def _site(torch: Any) -> tuple[str, int]:
    """Return the innermost file and line outside of torch, of this package, and of other dispatch modes."""
    own = {torch.__name__, __name__.partition(".")[0]}
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (
        frame.f_globals.get("__name__", "").partition(".")[0] in own
        or frame.f_code.co_name == "__torch_dispatch__"
    ):
        frame = frame.f_back
    return ("", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)
