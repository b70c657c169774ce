"""The static arrays that a graph reads in the place of the arrays in a call's arguments."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import is_
from typing import TYPE_CHECKING, Any

from .._arrays.arrays import ArrayType, Assign, Enqueue, detaching
from .._arrays.placement import works_on_host, writable
from .._arrays.signatures import Leaves
from .._core import capture_table, stream_stack
from .._core.ownership import Callback
from .._core.streams import Stream
from ..api import Graph
from .binding import BoundInputs, Inputs, bind
from .call_order import CallOrder, lives_while_held
from .input_nodes import InputNodes
from .results import Result, contents

if TYPE_CHECKING:
    from .._core._fast import Patches


Planned = tuple[int, Any, Assign]
"""A copy between an argument, by its index, and another array."""


class StaticInputs:
    """One static array for each of the arrays in a call's arguments; one for those that are the same.

    A graph that is captured beside `stream` can read the leaves. `nodes` says whether copies may be nodes of
    the graph.
    """

    def __init__(
        self,
        leaves: Leaves,
        array_types: list[ArrayType],
        stream: Stream,
        order: CallOrder,
        enqueue: Enqueue,
        *,
        nodes: bool,
    ) -> None:
        self.array_types = array_types
        self.enqueue = enqueue
        self._on_host = works_on_host(stream)
        ids = [id(leaf) for leaf in leaves]
        self._firsts = [i for i, each in enumerate(ids) if ids.index(each) == i]
        # with the stream entered in all frameworks: some would copy on another stream else
        made = stream_stack.within(stream, self._static_copies, leaves)
        self.arrays: list[Any] = [made[each] for each in ids]
        """In the order of the leaves."""
        merged = [i for i in self._firsts if self._counts_no_writes(array_types[i]) and writable(leaves[i])]
        new = stream_stack.within(stream, lambda: [array_types[i].empty_like(leaves[i]) for i in merged])
        self.merged: dict[int, Any] = dict(zip(merged, new, strict=True))
        """Arrays for what the arrays that do not count their writes held before a run, by their index."""
        nodes = nodes and not self._on_host  # arrays of the host may be gone when a run begins
        self._nodes = InputNodes(stream, leaves, self.arrays, array_types, self._firsts if nodes else ())
        self.bound: BoundInputs | None = None
        """The arguments that calls do not copy at all, once they are known."""
        self.copied: frozenset[int] = frozenset()
        """Those of them that the latest call has copied all the same."""
        self.in_graph: bool = bool(self._nodes.arguments)
        """True if some copies are nodes of the graph."""
        if not self._on_host and lives_while_held(stream):
            held = order.hold(stream)
            kept = ([self.arrays, new], held, order)
            self._finalizer = Callback(_released, kept, held._backend, held._owner)

    def _counts_no_writes(self, array_type: ArrayType) -> bool:
        """Return True if the writes to arrays of a type have to be found by a comparison.

        Tensors count their writes, but on the host not those of work that is enqueued to a stream.
        """
        return array_type.merge is not None and (self._on_host or array_type.kind != "tensor")

    def _static_copies(self, leaves: Leaves) -> dict[int, Any]:
        return {id(leaves[i]): self.array_types[i].static_copy(leaves[i]) for i in self._firsts}

    # ---- during the capture --------------------------------------------------------------------

    def fill(self, stream: Stream, leaves: Leaves) -> None:
        """Copy a call's arrays in, ahead of a capture that is a run as well."""
        self.plan_copies(())
        stream_stack.within(stream, self.copy_in, leaves, stream)
        if self._on_host:
            stream.synchronize()  # the copies count as writes when they are made

    def record_copies(self, stream: Stream, leaves: Leaves) -> None:
        """Record the copies that are nodes of the graph, as its first work."""
        self._nodes.record(stream, leaves)

    def arguments(self, leaves: Leaves) -> list[Any]:
        """Return the static arrays as the function gets them, in the order of the leaves."""
        made = {
            id(leaves[i]): self.array_types[i].as_argument(self.arrays[i], leaves[i]) for i in self._firsts
        }
        return [made[id(leaf)] for leaf in leaves]

    def indices(self, arguments: list[Any]) -> dict[int, int]:
        """Return the index of each of the arguments, by its id."""
        return {id(arguments[i]): i for i in self._firsts}

    def connect(self, graph: Graph) -> bool:
        """Prepare the copies that are nodes. Return False if a call can't change where they read from."""
        return self._nodes.connect(graph)

    def bind(
        self,
        graph: Graph,
        leaves: Leaves,
        result: Result,
        roots: Sequence[object],
        stream: Stream,
        capture: Callable[[Sequence[Any]], Graph],
    ) -> list[int]:
        """Find the arguments that need no copies, as `binding.bind` does, and return the others."""
        inputs = Inputs(leaves, self.arrays, self.array_types, self._firsts)
        outputs = [array for array, _ in result.outputs]
        self.bound = bind(graph, inputs, outputs, roots, stream, capture)
        rest = (i for i in self._firsts if i not in self.bound.arguments)
        return [i for i in rest if self.array_types[i].kind != "place"]

    def contents(self) -> list[object]:
        """Return objects that differ once a static array in host memory has been written."""
        return [contents(*pair) for pair in zip(self.arrays, self.array_types, strict=True)]

    def versions(self) -> list[int | None]:
        """Return how often each static array was written, as far as arrays count that."""
        return [_version(array) for array in self.arrays]

    def written(self, versions: list[int | None], leaves: Leaves, names: Sequence[str]) -> set[int]:
        """Return the indices of the arrays that were written since `versions` returned this, or may be.

        Arrays that are merged are left out. Raises ValueError if an array was written that can't be.
        """
        changed = {i for i in self._firsts if versions[i] != _version(self.arrays[i])}
        for i in changed:
            if not writable(leaves[i]):
                raise ValueError(
                    f"argument {names[i]} is written by the graphed function, and can't be: its elements "
                    "share memory; pass its clone()."
                )
        return (changed | {i for i in self._firsts if versions[i] is None}) - self.merged.keys()

    # ---- at every run --------------------------------------------------------------------------

    def plan_copies(self, back: Iterable[int]) -> list[ArrayType]:
        """Decide what every run copies to the static arrays, and `back` to which of the caller's arrays.

        Return the types of the arrays that are copied.
        """
        for i, array_type in enumerate(self.array_types):
            if array_type.kind == "tensor" and self.arrays[i].requires_grad:  # the function has set it
                self.arrays[i] = self.arrays[i].detach()
        copied = [each for each in self.array_types if each.kind != "place"]
        firsts = [i for i in self._firsts if i not in self._nodes.arguments]
        self._copies_in = [
            (i, static, _assign_both(assign, self.merged[i]) if i in self.merged else assign)
            for i, static, assign in self._plan(firsts)
        ]
        self._copies_before = [
            (i, before, self._assign(self.array_types[i].assign, i))
            for i, before in self.merged.items()
            if i not in firsts
        ]
        """Copies of what the calls themselves do not copy to static arrays, since nodes do."""
        self._merges = [
            (i, self.arrays[i], self._assign(partial(_merge, merge, before), i))
            for i, before in self.merged.items()
            if (merge := self.array_types[i].merge) is not None
        ]
        """Copies of the elements that a run has changed, of arrays that do not count their writes. The run
        may write the others in another way: as another argument, as a result, or as state."""
        self._back = set(back)
        self._plan_back()
        tensors = all(each.kind == "tensor" for each in self.array_types)
        at_once = tensors and len(firsts) > 1 and not self._on_host and self.bound is None
        self._assign_all = getattr(copied[0].package, "_foreach_copy_", None) if at_once else None
        self._targets = [static for _, static, _ in self._copies_in]
        return copied

    def note_written(self, arguments: Iterable[int]) -> None:
        """Copy these arguments back as well, wherever they are copied."""
        self._back |= {i for i in arguments if i in self._firsts}
        self._plan_back()

    def _plan_back(self) -> None:
        self._written = self._plan(sorted(self._back))
        self._copies_back = [*self._merges, *self._written]

    def _plan(self, indices: Iterable[int]) -> list[Planned]:
        return [
            (i, self.arrays[i], self._assign(self.array_types[i].assign, i))
            for i in indices
            if self.array_types[i].kind != "place"
        ]

    def _assign(self, assign: Assign, i: int) -> Assign:
        return detaching(assign) if self._on_host and self.array_types[i].kind == "tensor" else assign

    def copy_in(self, leaves: Leaves, stream: Stream) -> None:
        """Copy the caller's arrays to the static ones, or have the graph copy them."""
        copies = self._copies_in
        if self._copies_before:
            self.enqueue(stream, _copy_in, self._copies_before, leaves)
        if self.bound is not None:
            self.copied = self.bound.patch(leaves)
            copies = [each for each in copies if self._is_copied(each[0], self.bound)]
        elif self.in_graph:
            self._nodes.read_from(leaves)
        if self._assign_all is not None:
            values = [leaves[i] for i, _, _ in self._copies_in]
            if not any(map(is_, self._targets, values)):
                self._assign_all(self._targets, values)
                return
        if copies:
            self.enqueue(stream, _copy_in, copies, leaves)

    def _is_copied(self, i: int, bound: BoundInputs) -> bool:
        """Return True if the latest call has copied an argument."""
        return i in self.copied or i not in bound.arguments

    def addresses(self) -> array[int] | None:
        """Return where the graph reads the arrays of the latest call, and writes them if it does.

        None if a call that has its arrays there has anything to copy.
        """
        if self._copies_back:
            return None
        if self.bound is not None:
            return self.bound.addresses(len(self.arrays))
        return None if self._copies_in else self._nodes.addresses(len(self.arrays))

    def patches(self) -> tuple[Patches | None, object]:
        """Return what makes the graph use other arrays in C, and the stream to record their use on, or None.

        The framework's current stream has to be that of the calls.
        """
        if self.bound is None:
            return self._nodes.patches, None
        user = self.bound.user(self.arrays[0].device)
        return None if user is None else self.bound.patches, user

    def copies_back(self, leaves: Leaves) -> list[Planned]:
        """Return the copies to the caller's arrays of what the function has written: for `copy_out`."""
        bound = self.bound
        if bound is None:
            return self._copies_back
        copies = [*self._merges]
        for each in self._written:
            if self._is_copied(each[0], bound):
                copies.append(each)
            else:
                self.array_types[each[0]].count_write(leaves[each[0]])
        bound.keep(leaves)
        return copies


def _copy_in(copies: Iterable[Planned], leaves: Leaves) -> None:
    """Copy the caller's arrays to others."""
    for i, target, assign in copies:
        if target is not leaves[i]:
            assign(target, leaves[i])


def copy_out(
    back: Iterable[Planned], leaves: Leaves, fills: Iterable[tuple[Any, Assign]], new: Iterable[Any]
) -> None:
    """Copy what a run has written back to the caller's arrays, and fill the new arrays of a result."""
    for i, source, assign in back:
        if leaves[i] is not source:
            assign(leaves[i], source)
    for target, (source, assign) in zip(new, fills, strict=False):
        assign(target, source)


def _merge(merge: Callable[[Any, Any, Any], object], before: Any, target: Any, source: Any) -> None:
    merge(target, source, before)


def _assign_both(assign: Assign, before: Any) -> Assign:
    """Return what copies to an array as `assign` does, and to another one."""

    def assign_both(target: Any, source: Any) -> None:
        assign(target, source)
        assign(before, source)

    return assign_both


def _released(kept: tuple[list[list[Any]], Stream, CallOrder]) -> None:
    """Release static arrays: their memory is used again in the order of the stream that they were made on."""
    _, stream, order = kept
    if not capture_table.live and not stream._is_capturing():
        order.wait(stream)


def _version(x: Any) -> int | None:
    """Return how often an array was written; None if it does not count that."""
    try:
        return getattr(x, "_version", None)
    except RuntimeError:
        return None
