"""Faults after which something is wrong, until it is mended: each is expected to fail its test."""

from __future__ import annotations

from .calls import Call
from .operation import Operation

INTERRUPT = "answers.extend(map(getattr(self.api, function), (arg,))) > __new__: the capture mode"
"""An interrupt in the Python of the binding loses what cuThreadExchangeStreamCaptureMode answered, so that
`Driver.relaxed` can't set the thread's mode back."""


def finding(operation: Operation, call: Call, code: int, late: bool) -> str:
    """Return what is known to be wrong after this call failed so, or an empty string."""
    return ""
