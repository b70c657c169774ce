"""The backend: all that an author writes for a runtime like CUDA's whose binding returns codes and values."""

from __future__ import annotations

from typing import Any, ClassVar

from accelerator_graph.backends.base import Availability
from accelerator_graph.backends.driver import Driver, DriverBackend, Names, reasons
from accelerator_graph.errors import Reason

from . import musart


class MusaNames(Names, prefix="musa"):
    """The names of CUDA's runtime under another prefix."""


class MusaDriver(Driver):
    """The binding, initialised."""

    __slots__ = ()

    names = MusaNames

    def __init__(self, name: str) -> None:
        super().__init__(name, musart)
        self.stream_type = musart.musaStream_t
        self.success = musart.musaError.musaSuccess
        self.copy_kind = (4,)
        self.device_count = self.call("musaGetDeviceCount")

    def explain(self, function: str, code: Any) -> tuple[str, str, Reason]:
        """Return the name of a code, no explanation, and the neutral reason."""
        return code.name, "", _REASONS.get(int(code), "other")


_REASONS = reasons(device_lost=(700, 719))


class MusaBackend(DriverBackend):
    """GPUs of a made-up vendor."""

    __slots__ = ()

    api_version: ClassVar[int] = 1
    stream_modules: ClassVar[frozenset[str]] = frozenset((__name__.partition(".")[0],))
    hiding = "MUSA_VISIBLE_DEVICES"
    driver_type = MusaDriver

    @classmethod
    def look(cls) -> Availability:
        """Return that the runtime is there: it is in this folder."""
        return Availability(True, versions={"musart": "0"}, devices=musart.DEVICES)
