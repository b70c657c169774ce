"""A capture of a graphed function that was broken is made once more, to find the call that broke it."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from .._core.observers import DIAGNOSE
from .._interpreter import outside, setting
from ..diagnosis import _tracing
from ..errors import CaptureError
from .recorded_call import RecordedCall

NOT_BY_A_CALL = frozenset(("out_of_memory", "device_lost", "wrong_thread"))
"""Reasons for which no line of the function is to blame."""


def may_follow(error: CaptureError, calls: int) -> bool:
    """Return True if a second capture may find out why a capture has failed.

    It runs the function again, so the function must have run with arguments like these before: `calls` is
    how often. Without a warm-up, nobody knows whether it can run twice.
    """
    if not calls or not _is_broken(error):
        return False
    return not (setting(DIAGNOSE, "1", "0") or _tracing.is_on())


def diagnosed(record: Callable[[], RecordedCall]) -> RecordedCall:
    """Capture with the diagnosis on."""
    with _tracing.diagnose():
        return record()


def capture_again(record: Callable[[], RecordedCall], failed: CaptureError, function: object) -> RecordedCall:
    """Capture a second time, with the diagnosis on, and raise the error that names the call.

    If the second capture succeeds, a warning has the first one's error. If it fails for another reason, the
    first one's error is raised.
    """
    found = _recorded_or_error(record)
    if isinstance(found, RecordedCall):
        warnings.warn(
            f"{function!r} was captured at the second attempt; the first one failed: {failed}",
            RuntimeWarning,
            stacklevel=outside()[0],
        )
        return found
    raise failed if found is None else found


def _recorded_or_error(record: Callable[[], RecordedCall]) -> RecordedCall | CaptureError | None:
    try:
        return diagnosed(record)
    except CaptureError as error:
        if not _is_broken(error):
            return None
        error.add_note(
            "The function was captured a second time, with the diagnosis on, to find this; "
            f"{DIAGNOSE}=0 turns that off."
        )
        return error
    except Exception:  # what the function raises depends on how often it ran
        return None


def _is_broken(error: CaptureError) -> bool:
    """Return True if the driver has given up the capture, as opposed to what `graphed` itself refuses."""
    return error.reason not in NOT_BY_A_CALL and (bool(error.code_name) or error.reason == "invalidated")
