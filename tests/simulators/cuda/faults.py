"""What tests ask of a library that was built to fail: of the software driver, or of any with ``faults.c``."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

ALWAYS = (1 << 64) - 1
"""As `times`: every call from then on."""


class Faults:
    """Calls that fail or take long, and the count of all calls. Knows no vendor.

    Parameters
    ----------
    library : str
        Path or name of a shared library that has ``faults.c`` in it.
    """

    def __init__(self, library: str) -> None:
        self._library = ctypes.CDLL(library)
        self._library.fault_fail.argtypes = (
            *(ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64),
            *(ctypes.c_int, ctypes.c_int),
        )
        self._library.fault_delay.argtypes = (ctypes.c_char_p, ctypes.c_uint)
        self._library.fault_pending.restype = ctypes.c_uint

    def fail(
        self, function: str = "", *, code: int, nth: int = 1, times: int = 1, after: bool = False
    ) -> None:
        """Let calls of a function fail.

        Parameters
        ----------
        function : str
            Name of the function in the API, such as ``"cuStreamCreate"``; any function, if empty.
        code : int
            What the calls answer.
        nth : int
            Which call from now on fails first; 1 is the next.
        times : int
            How many fail, one after another.
        after : bool
            Whether they do their work all the same: as calls do that answer for what went wrong earlier.
        """
        assert code != 0, "that would be success"
        assert function in ("", *self.calls()), f"the library has no {function}"
        if self._library.fault_fail(function.encode(), nth, times, code, after):
            raise ValueError(f"nth is {nth}, times is {times}, and there is room for 64 faults at a time.")

    def delay(self, function: str, microseconds: int) -> None:
        """Let every call of a function wait so long before it does anything."""
        assert function in self.calls(), f"the library has no {function}"
        self._library.fault_delay(function.encode(), microseconds)

    @property
    def pending(self) -> int:
        """How many faults have not happened yet, or not as often as was asked."""
        return int(self._library.fault_pending())

    def calls(self) -> dict[str, int]:
        """Return how often each function was called, those that were not called included."""
        return _listed(self._library.fault_calls)

    def reset(self) -> None:
        """Forget faults, delays and numbers of calls."""
        self._library.fault_reset()


class Accounts:
    """What lives in the software CUDA driver, and what it was asked that it could not answer."""

    def __init__(self, library: str = "libcuda.so.1") -> None:
        self._library = ctypes.CDLL(library)
        for name in ("driver_stale_handles", "driver_unknown_calls"):
            getattr(self._library, name).restype = ctypes.c_uint64

    def live(self) -> dict[str, int]:
        """Return how many contexts, streams, events, graphs, executables, ... live."""
        return _listed(self._library.driver_account)

    @property
    def stale_handles(self) -> int:
        """How often a handle was used that was none, or none any more."""
        return int(self._library.driver_stale_handles())

    @property
    def unknown_calls(self) -> int:
        """How often a function or a kernel was asked for that the driver doesn't have."""
        return int(self._library.driver_unknown_calls())


LISTING = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_uint, ctypes.POINTER(ctypes.c_uint64))


@cache
def _asking(address: int) -> Callable[..., bytes | None]:
    return LISTING(address)


def _listed(function: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    value = ctypes.c_uint64()
    ask = _asking(ctypes.cast(function, ctypes.c_void_p).value)
    for number in range(1 << 16):
        name = ask(number, ctypes.byref(value))
        if name is None:
            break
        found[name.decode()] = found.get(name.decode(), 0) + value.value
    return found
