"""`graphed(verify="first")`: the first graph of every signature is compared with eager runs."""

from __future__ import annotations

from collections.abc import Callable

from .recorded_call import Capturable, RecordedCall


def checked(
    record: Callable[[], RecordedCall], wanted: Capturable
) -> tuple[Callable[[], RecordedCall], Callable[[RecordedCall], None]]:
    """Return what captures a call, and what compares the graph with eager runs that begin like the capture.

    The second raises `VerificationError`, and gives the graph up, if its replays differ from those.
    """
    from ..diagnosis.verification import RecordedCheck

    check = RecordedCheck(wanted)

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
