"""What the library below AMD's runtime was asked to do, and what of it it could not."""

from __future__ import annotations

import ctypes


class Accounts:
    """Counts since the process began."""

    def __init__(self, library: str = "libhsa-runtime64.so.1") -> None:
        self._library = ctypes.CDLL(library)
        for name in ("launches", "unknown_kernels", "unknown_calls"):
            getattr(self._library, f"software_hsa_{name}").restype = ctypes.c_uint64

    @property
    def launches(self) -> int:
        """How many kernels have been carried out, those of the runtime's own included."""
        return int(self._library.software_hsa_launches())

    @property
    def unknown_kernels(self) -> int:
        """How many kernels were launched that have no twin here, and so did nothing."""
        return int(self._library.software_hsa_unknown_kernels())

    @property
    def unknown_calls(self) -> int:
        """How often a function, a property or a packet was asked for that the library doesn't have."""
        return int(self._library.software_hsa_unknown_calls())
