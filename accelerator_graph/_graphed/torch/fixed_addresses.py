"""The addresses that captured passes go on using: static inputs, parameters and buffers must stay there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...errors import GraphStateError
from .captured_passes import Passes


class FixedAddresses:
    """Where the tensors of captured passes were in the capture, until the first replay has compared that.

    It looks them up in the module again, so a tensor that was replaced by another is found, too.
    """

    __slots__ = ("_addresses", "_module", "_name", "_statics")

    def __init__(self, passes: Passes) -> None:
        self._name = passes.name
        self._statics = passes.arguments
        self._module = passes.function if passes.is_module else None
        self._addresses = dict(self._now())

    def check(self) -> None:
        """Raise `GraphStateError` if one of the tensors is elsewhere, or gone."""
        now = dict(self._now())
        for label, address in self._addresses.items():
            if now.get(label) != address:
                fact = "was moved to other memory" if label in now else "was removed"
                raise GraphStateError(
                    f"{self._name}: {label} {fact} since the capture, and a replay would read what is in the "
                    "old place now; copy new contents into it with copy_(), or capture again."
                )

    def _now(self) -> Iterator[tuple[str, int]]:
        tensors = [(f"sample {label}", tensor) for label, tensor in self._statics]
        if self._module is not None:
            tensors += [(f"parameter {key!r}", tensor) for key, tensor in self._module.named_parameters()]
            tensors += [(f"buffer {key!r}", tensor) for key, tensor in self._module.named_buffers()]
        for label, tensor in tensors:
            address = _address(tensor)
            if address:
                yield label, address


def _address(tensor: Any) -> int:
    try:
        return int(tensor.data_ptr())
    except (NotImplementedError, RuntimeError):  # it is sparse
        return 0
