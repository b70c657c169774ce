"""`graphed(verify="first")`: the first graph of every signature is compared with eager runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .._arrays.signatures import Call
from .._core.streams import Stream
from .recorded_call import RecordedCall


def why_unproven(
    recorded: RecordedCall, function: Callable[..., Any], call: Call, names: Sequence[str], stream: Stream
) -> str:
    """Return why replays that use other arrays than the captured ones are not proven to be right; else ''.

    Whatever the proof raises is a reason, too. After an interrupt, the graph is given up.
    """
    from ..diagnosis.verification import why_unproven

    try:
        return why_unproven(function, call, names, recorded, stream)
    except Exception as error:
        return f"it could not be compared with an eager run: {type(error).__name__}: {error}".rstrip(".")
    except BaseException:
        recorded.close()
        raise


def checked(
    record: Callable[[], RecordedCall],
    function: Callable[..., Any],
    call: Call,
    names: Sequence[str],
    stream: Stream,
) -> tuple[Callable[[], RecordedCall], Callable[[RecordedCall], None]]:
    """Return what captures a call, and what compares the graph with eager runs that begin like the capture.

    The second raises `VerificationError`, and gives the graph up, if its replays differ from those.
    """
    from ..diagnosis.verification import RecordedCheck

    check = RecordedCheck(function, call, names, stream)

    def captured() -> RecordedCall:
        check.begin()
        return record()

    def compare(recorded: RecordedCall) -> None:
        try:
            check.compare(recorded)
        except TimeoutError:  # its work may never end, and giving up the graph would wait for it
            raise
        except BaseException:
            recorded.close()
            raise

    return captured, compare
