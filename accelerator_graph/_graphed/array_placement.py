"""Where the arrays in a graphed function's arguments have to be, so that its graph can read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..backends.base import Capability
from ..interop import registry as interop
from .arrays import Family, place_of

if TYPE_CHECKING:
    from .._core.streams import Stream


def on_host(home: Stream) -> bool:
    """Return True if graphs of a stream's backend work on memory of the host."""
    return Capability.HANDLES not in home._backend.capabilities(home.device)


def only_ours(home: Stream) -> bool:
    """Return True if nothing but our streams can enqueue work on a stream's backend.

    So it is where the backend records explicitly, and where no other library could name a stream, as on the
    CPU backend; unless a framework takes part, which may record in its own way.
    """
    closed = home._backend.recording == "explicit" or on_host(home)
    return closed and not interop.active(home.backend)


def check_arguments(
    arrays: Sequence[Any], families: Sequence[Family], names: Sequence[str], home: Stream
) -> None:
    """Refuse arrays that a graph beside the current stream could not read.

    Raises
    ------
    TypeError, ValueError
        An array, which is named, is in other memory, on another device, is not strided, or requires grad.
    """
    host = on_host(home)
    for x, family, name in zip(arrays, families, names, strict=True):
        there, device = place_of(x)
        if there is not host:
            where, wanted = ("host", "device") if there else ("device", "host")
            raise TypeError(
                f"argument {name} is an array in {where} memory, and backend {home.backend!r} replays "
                f"on {wanted} memory; pass it there."
            )
        if device not in (None, home.device):
            raise ValueError(
                f"argument {name} is on device {device} and the current stream on device {home.device}; "
                "make a stream of the other device the current one."
            )
        if family.kind == "tensor" and x.layout is not family.module.strided:
            raise TypeError(f"argument {name} is not a strided array; pass the arrays that it is made of.")
        if family.kind == "tensor" and x.requires_grad and family.module.is_grad_enabled():
            raise ValueError(
                f"argument {name} requires grad, and no gradients pass through a graphed function; pass "
                "its detach(), or call under no_grad()."
            )
