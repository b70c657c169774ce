"""`inputs="bind"`: a graph that reads and writes the arrays of a call where they lie.

Other rooms come in by this door. `bind` has the function captured again, with other arrays in the place of
the static ones (`captures`), and finds the words of the parameters that follow these (`argument_words`).
`BoundInputs` changes these words for each call (`bound_inputs`). In doubt, `bind` gives up, and the arrays
are copied. `proof` compares replays with eager runs before the first use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..._arrays.placement import extent
from ..._core.streams import Stream
from ...api import Graph
from ..results import reachable
from .argument_words import NotFollowing
from .bound_inputs import BoundInputs, Inputs, Unpatchable, bindables

__all__ = ["BoundInputs", "Inputs", "NotFollowing", "Unpatchable", "bind", "why_copied"]


def bind(
    graph: Graph,
    inputs: Inputs,
    outputs: Sequence[Any],
    roots: Sequence[object],
    stream: Stream,
    capture: Callable[[Sequence[Any]], Graph],
) -> BoundInputs:
    """Find the arguments that need no copies, by capturing the function again with other arrays.

    `outputs` are the graph's own arrays in the result. What the `roots` can reach stays in use after a call.
    Raises `NotFollowing` if there is a doubt.
    """
    from .captures import bound_inputs

    kept = [*outputs, *_kept_arrays(roots, inputs.statics)]
    found = bindables(inputs, kept)
    if not found and bindables(inputs, ()):
        if any(extent(each) is None for each in kept):
            raise NotFollowing("the result or the function keeps an array that does not report its memory")
        raise NotFollowing("the result or the function keeps a part of every dense argument")
    return bound_inputs(graph, inputs, found, outputs, stream, capture)


def why_copied(names: Sequence[str]) -> str:
    """Return why arguments are copied beside others that are not."""
    if not names:
        return ""
    fact = "only dense tensors of which neither the result nor the function keeps a part need no copies"
    return f"{fact}, so copied are: {', '.join(names)}"


def _kept_arrays(roots: Sequence[object], arrays: Sequence[Any]) -> list[Any]:
    """Return the arrays that can be reached from some objects, of the types of other arrays.

    Raises `NotFollowing` if one of them has a graph of autograd.
    """
    types = {type(each) for each in arrays}
    found = [x for x in reachable(roots) if type(x) in types]
    if any(getattr(x, "grad_fn", None) is not None for x in found):
        raise NotFollowing("it keeps a tensor with a graph of autograd, which may have saved its arguments")
    return found
