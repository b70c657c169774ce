"""Every error of the library, and the one place where the failures of a driver are put into words.

Each class is also the builtin exception that its users would expect (`RuntimeError`, `LookupError`, ...).
All of them take the message first and everything else by keyword, with defaults, so they can be pickled
and sent to another process. ``docs/errors.md`` has a heading for each class and each reason.
"""

from __future__ import annotations

from typing import Any, Literal

from ._interpreter import Record

Reason = Literal[
    "out_of_memory",
    "illegal_call",
    "invalidated",
    "unjoined",
    "wrong_thread",
    "default_stream",
    "foreign_capture",
    "device_lost",
    "other",
]
"""The neutral cause of a failure, the same on every backend, for code that branches on it."""

_EXPLANATIONS: dict[str, str] = {
    "out_of_memory": "there is not enough memory; free some, or capture less",
    "illegal_call": (
        "a call that is not permitted during a capture was made (usually a synchronisation, a query or an "
        "allocation); move it out of the captured code"
    ),
    "invalidated": (
        "an earlier call broke the capture (usually a synchronisation, a query, an allocation or work on "
        "the legacy default stream); move it out of the captured code"
    ),
    "unjoined": (
        "work was forked to another stream and not joined; let the captured stream wait for it "
        "before the capture ends"
    ),
    "wrong_thread": "only the thread that began a capture can end it; end it there",
    "default_stream": (
        "the default stream can't take part in a capture; capture on a stream of your own, for "
        "example `with accelerator_graph.Stream(), graph:`"
    ),
    "foreign_capture": (
        "the stream belongs to another capture, or waits for work outside its own capture; wait for that "
        "work before the capture begins, or take its stream into the capture: let it wait for the captured "
        "one before the work"
    ),
    "device_lost": "the device's context is lost; nothing on it works again before the process is restarted",
}

_OF_CALLS = ("illegal_call", "invalidated", "unjoined", "foreign_capture")
"""The reasons for which a diagnosis finds the call."""


def explain(reason: str) -> str:
    """Return what a neutral reason means and what to do; an empty string for ``"other"``."""
    return _EXPLANATIONS.get(reason, "")


class AcceleratorGraphError(Exception):
    """Base of all errors of this library."""


class BackendError(AcceleratorGraphError):
    """Base of all errors from a backend's name to its first use."""


class UnknownBackendError(BackendError, LookupError):
    """Raised when no backend of that name is installed or registered.

    The message has the known names and the closest match.
    """


class BackendUnavailableError(BackendError, RuntimeError):
    """Raised when a backend is known but can't run on this machine.

    Attributes
    ----------
    reasons : dict of str to str
        The reason by backend: the named one, or all that were tried if none was named.
    """

    def __init__(self, message: str, *, reasons: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.reasons: dict[str, str] = dict(reasons or {})


class BackendLoadError(BackendError, ImportError):
    """Raised when a plug-in can't be imported. The message has its distribution and version."""


class BackendContractError(BackendError, TypeError):
    """Raised when a plug-in does not fulfil the contract. The message says what is missing."""


class GraphStateError(AcceleratorGraphError, RuntimeError):
    """Raised when a call comes in the wrong order or from the wrong thread. Nothing has changed."""


class UnsupportedError(AcceleratorGraphError, NotImplementedError):
    """Raised when a backend does not have the feature that a call needs. Nothing has begun.

    Attributes
    ----------
    capability : str
        The missing capability, one of `backends.base.Capability`; may be empty.
    """

    def __init__(self, message: str, *, capability: str = "") -> None:
        super().__init__(message)
        self.capability = capability


class DriverError(AcceleratorGraphError, RuntimeError):
    """Raised when a call into a vendor's driver fails.

    Make one with `driver_error`, which chooses the class and words the message.

    Attributes
    ----------
    backend : str
        Name of the backend.
    call : str
        The function of the driver that failed.
    code : int or None
        The driver's error code.
    code_name : str
        The driver's name for that code.
    reason : str
        The neutral cause, one of `Reason`.
    detail : str
        The driver's own description of the code.
    """

    def __init__(
        self,
        message: str,
        *,
        backend: str = "",
        call: str = "",
        code: int | None = None,
        code_name: str = "",
        reason: Reason = "other",
        detail: str = "",
    ) -> None:
        super().__init__(message)
        self.detail = detail
        self.backend = backend
        self.call = call
        self.code = code
        self.code_name = code_name
        self.reason: Reason = reason


class OutOfMemoryError(DriverError, MemoryError):
    """Raised when the driver, or the device, is out of memory."""


class BreakingCall(Record):
    """A call that broke a capture, or may have, as `diagnose` finds it.

    Attributes
    ----------
    file : str
        The file of the user's code.
    line : int
        The line in that file.
    function : str
        The function that the line is in.
    call : str
        What the line called, down to the call that broke the capture; empty if that is not known.
    library : tuple of (str, int, str), or None
        File, line and function of the library that made the call; None if the user's code made it.
    thread : str
        The name of the thread; empty if it is the one that captured.
    stack : str
        The thread's stack, as in a traceback.
    """

    __slots__ = ("file", "line", "function", "call", "library", "thread", "stack")  # noqa: RUF023

    def __init__(
        self,
        file: str,
        line: int,
        function: str,
        call: str = "",
        library: tuple[str, int, str] | None = None,
        thread: str = "",
        stack: str = "",
    ) -> None:
        self.file: str = file
        self.line: int = line
        self.function: str = function
        self.call: str = call
        self.library: tuple[str, int, str] | None = library
        self.thread: str = thread
        self.stack: str = stack


class CaptureError(AcceleratorGraphError, RuntimeError):
    """Raised when a capture can't begin or did not become a graph.

    Afterwards the graph is empty, and the stream is usable and not capturing (unless `reason` is
    ``"device_lost"``: then nothing on that device is usable).

    Attributes
    ----------
    reason : str
        The neutral cause, one of `Reason`.
    code : int or None
        The driver's error code; None if the driver did not fail.
    code_name : str
        The driver's name for that code.
    calls : tuple of BreakingCall
        The call that broke the capture, as `diagnose` found it; several if any of them can be the one. With
        ``diagnose(all=True)``, all calls that can't be captured. Empty if the diagnosis was off, or did not
        find out.
    """

    def __init__(
        self,
        message: str,
        *,
        reason: Reason = "other",
        code: int | None = None,
        code_name: str = "",
        calls: tuple[BreakingCall, ...] = (),
    ) -> None:
        super().__init__(message)
        self.reason: Reason = reason
        self.code = code
        self.code_name = code_name
        self.calls = calls


class VerificationError(AcceleratorGraphError, AssertionError):
    """Raised when `verify` has found that replays give other results than eager runs.

    Attributes
    ----------
    report : Verification
        The cause, the wrong arrays, and where the graph is wrong. None if the error was made without one.
    """

    def __init__(self, message: str, *, report: Any = None) -> None:
        super().__init__(message)
        self.report: Any = report


class RanksDisagreeError(AcceleratorGraphError, RuntimeError):
    """Raised on every rank when `check_ranks` has found that their graphs can't be replayed together.

    Attributes
    ----------
    report : RanksReport or None
        The differences, the record of each rank, and the ranks that have sent none.
    """

    def __init__(self, message: str, *, report: Any = None) -> None:
        super().__init__(message)
        self.report: Any = report


class EmptyGraphWarning(UserWarning):
    """Issued when a capture recorded nothing, usually because the work went to another stream or device."""


class EmptyLabelWarning(UserWarning):
    """Issued when a capture recorded nothing inside a `label`, for the same reasons."""


class EscapedWorkWarning(UserWarning):
    """Issued under `diagnose` when work of the captured code went to a stream that is not captured."""


def driver_error(
    *, backend: str, call: str, code: int | None, code_name: str, reason: Reason = "other", detail: str = ""
) -> DriverError:
    """Make the error for a driver call that failed.

    Parameters
    ----------
    backend, call, code, code_name, reason
        The attributes of `DriverError`.
    detail : str
        The driver's own description of the code. Used if `reason` explains nothing.

    Returns
    -------
    DriverError
        An `OutOfMemoryError` if that is the reason. The caller raises it.
    """
    detail = detail.strip().rstrip(".")
    kind = OutOfMemoryError if reason == "out_of_memory" else DriverError
    return kind(
        _failed_call(f"backend {backend!r}", call, code, code_name, explain(reason) or detail),
        backend=backend,
        call=call,
        code=code,
        code_name=code_name,
        reason=reason,
        detail=detail,
    )


def capture_error(
    subject: str,
    error: DriverError | None = None,
    reason: Reason = "other",
    fact: str = "",
    *,
    diagnosed: bool = True,
) -> CaptureError:
    """Make the error for a capture that failed.

    `subject` begins the sentence: which capture, and what failed. The reason, the code and its name are those
    of `error`. Without one, `fact` is the rest of the sentence, by default the meaning of `reason`. If the
    capture was not `diagnosed`, and a diagnosis finds calls that fail for this reason, the message names it.
    """
    code, code_name = None, ""
    if error is None:
        message = f"{subject}: {fact or explain(reason)}."
    else:
        reason, code, code_name = error.reason, error.code, error.code_name
        meaning = explain(reason) or error.detail
        message = f"{subject}: {error}"
        if error.code_name:  # made by `driver_error`
            message = _failed_call(subject, error.call, code, code_name, meaning)
    if not diagnosed and reason in _OF_CALLS:
        message += " Begin the capture inside `with accelerator_graph.diagnose():` to find the call."
    return CaptureError(message, reason=reason, code=code, code_name=code_name)


def _failed_call(subject: str, call: str, code: int | None, code_name: str, meaning: str) -> str:
    number = "" if code is None else f" ({code})"
    message = f"{subject}: {call} returned {code_name}{number}"
    return f"{message}: {meaning}." if meaning else f"{message}."
