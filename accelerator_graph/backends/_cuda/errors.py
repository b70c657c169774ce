"""The library's own errors for the error codes of the CUDA driver."""

from __future__ import annotations

import re
from typing import Any

from ...errors import DriverError, Reason, UnsupportedError, driver_error
from ..driver import reasons

_DEVICE_LOST = (214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911)
_REASONS = reasons(_DEVICE_LOST)


def explain(code: Any) -> tuple[str, str, Reason]:
    """Return the name of a ``CUresult``, what the documentation says of it, and the neutral reason."""
    return code.name, _explanation(code), _REASONS.get(int(code), "other")


def call_broke(
    backend: str, call: str, error: Exception, driver_version: str
) -> DriverError | UnsupportedError | None:
    """Make the error for a call in which the binding raised `error`; None for an error of any other kind.

    The binding raises `RuntimeError` if the driver does not have the function, and `ValueError` if the
    driver answers a code that the binding does not know.
    """
    if isinstance(error, RecursionError):  # a RuntimeError, too
        return None
    if isinstance(error, RuntimeError):
        return UnsupportedError(
            f"the driver, which supports CUDA {driver_version}, does not have {call}; install a newer driver."
        )
    unknown = re.fullmatch(r"(\d+) is not a valid CUresult", str(error))
    if unknown is None:
        return None
    code = int(unknown[1])
    return driver_error(
        backend=backend,
        call=call,
        code=code,
        code_name="an unknown code",
        reason=_REASONS.get(code, "other"),
        detail="the driver is newer than cuda-python, which has no name for it; upgrade cuda-python",
    )


def _explanation(code: Any) -> str:
    """Return the first sentence of the driver's documentation of a code."""
    text = code.__doc__ or ""
    if text == type(code).__doc__:  # an enum without documentation of its members
        return ""
    text = re.sub(r":py:obj:`~?\.?([^`]*)`", r"\1", " ".join(text.split()))
    return re.split(r"(?<=[^.])\.(?: |$)", text, maxsplit=1)[0]
