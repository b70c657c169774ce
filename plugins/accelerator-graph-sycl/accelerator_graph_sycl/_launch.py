"""The sizes of a launch, checked before anything is enqueued: in a capture the runtime would not do it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from operator import index


def launch_sizes(
    global_size: int | Sequence[int], local_size: int | Sequence[int] | None, most: int
) -> tuple[list[int], list[int] | None]:
    """Return both sizes as lists.

    Parameters
    ----------
    global_size, local_size
        As for `SyclBackend.launch`.
    most : int
        How many work-items a work-group of the kernel can have.

    Raises
    ------
    TypeError
        A size is not an integer.
    ValueError
        There are no such sizes, or they don't fit together.
    """
    sizes = _listed(global_size, "global_size")
    if local_size is None:
        return sizes, None
    local = _listed(local_size, "local_size")
    if len(local) != len(sizes) or any(whole % part for whole, part in zip(sizes, local, strict=True)):
        raise ValueError(f"local_size {local} does not divide global_size {sizes}; pass one that does.")
    if prod(local) > most:
        raise ValueError(
            f"local_size {local} makes work-groups of {prod(local)}, and the kernel allows {most}; pass a "
            "smaller one."
        )
    return sizes, local


def _listed(size: int | Sequence[int], name: str) -> list[int]:
    sizes = [index(each) for each in size] if isinstance(size, Sequence) else [index(size)]
    if not 1 <= len(sizes) <= 3 or min(sizes) < 1:
        raise ValueError(f"{name} must be one to three positive integers, not {size!r}.")
    return sizes
