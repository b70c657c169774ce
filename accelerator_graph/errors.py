"""Every error of the library, and the one place where driver failures are put into words.

Each class is also the builtin exception that its users would expect (`RuntimeError`,
`LookupError`, ...). All of them take the message first and everything else by keyword, with
defaults, so they can be pickled and sent to another process.
"""

from __future__ import annotations

from typing import Literal

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
"""The neutral cause of a failure, the same on every backend, for code that has to branch."""

_EXPLANATIONS: dict[str, str] = {
    "out_of_memory": "there is not enough memory; release some, or capture less",
    "illegal_call": (
        "a call that is not permitted during a capture was made (a synchronisation, a query or an "
        "allocation are the usual ones); move it out of the captured code"
    ),
    "invalidated": (
        "an earlier call broke the capture (a synchronisation, a query, an allocation or work on "
        "the legacy default stream are the usual ones); move it out of the captured code"
    ),
    "unjoined": (
        "work was forked to another stream and not joined; let the captured stream wait for it "
        "before the capture ends"
    ),
    "wrong_thread": "a capture has to be ended by the thread that began it",
    "default_stream": (
        "the default stream can't take part in a capture; capture on a stream of your own, for "
        "example `with accelerator_graph.Stream(), graph:`"
    ),
    "foreign_capture": (
        "the stream takes part in another capture, or what it waits for is not part of its own; wait for "
        "that before the capture begins, or use a stream of your own"
    ),
    "device_lost": "the device's context is lost and can't be used again in this process",
}


def explain(reason: str) -> str:
    """Return what a neutral reason means and what to do, or an empty string if nothing is known."""
    return _EXPLANATIONS.get(reason, "")


def message_of(error: BaseException) -> str:
    """Return the message of any exception without its last full stop, even if its `__str__` raises."""
    try:
        return str(error).strip().rstrip(".")
    except Exception:
        return "its message can't be shown"


def text_of(error: BaseException) -> str:
    """Return type and message of any exception, as `message_of`."""
    name, message = type(error).__name__, message_of(error)
    return f"{name}: {message}" if message else name


class AcceleratorGraphError(Exception):
    """Base of every error that this library raises on its own account."""


class BackendError(AcceleratorGraphError):
    """Base of what can go wrong between a backend's name and its first use."""


class UnknownBackendError(BackendError, LookupError):
    """Raised when no backend of that name is installed or registered.

    The message has the names that are known and the closest match.
    """


class BackendUnavailableError(BackendError, RuntimeError):
    """Raised when a backend is known but can't run on this machine.

    Attributes
    ----------
    reasons : dict of str to str
        Why not, by the backend's name: all that were tried, if none was named.
    """

    def __init__(self, message: str, *, reasons: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.reasons = dict(reasons or {})


class BackendLoadError(BackendError, ImportError):
    """Raised when a plug-in can't be imported; the distribution and its version are in the message."""


class BackendContractError(BackendError, TypeError):
    """Raised when a plug-in does not fulfil the contract; the message says what is missing."""


class GraphStateError(AcceleratorGraphError, RuntimeError):
    """Raised when calls come in the wrong order, or from the wrong thread. Nothing was touched."""


class UnsupportedError(AcceleratorGraphError, NotImplementedError):
    """Raised, before anything has begun, when a backend does not have what was asked for.

    Attributes
    ----------
    capability : str
        The capability that is missing, as in `backends.base.Capability`; may be empty.
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
        The driver's function that failed.
    code : int or None
        The driver's error code.
    code_name : str
        The driver's name for that code.
    reason : str
        The neutral cause, one of `Reason`.
    detail : str
        What the driver says of it.
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


class CaptureError(AcceleratorGraphError, RuntimeError):
    """Raised when a capture can't begin or did not become a graph.

    The graph is empty afterwards, the stream is usable and no capture is left open on it
    (unless `reason` is ``"device_lost"``: then nothing on that device is usable).

    Attributes
    ----------
    reason : str
        The neutral cause, one of `Reason`.
    code : int or None
        The driver's error code, if the driver said it.
    code_name : str
        The driver's name for that code.
    site : str or None
        File and line of the call that broke the capture, where that is known.
    """

    def __init__(
        self,
        message: str,
        *,
        reason: Reason = "other",
        code: int | None = None,
        code_name: str = "",
        site: str | None = None,
    ) -> None:
        super().__init__(message)
        self.reason: Reason = reason
        self.code = code
        self.code_name = code_name
        self.site = site


class EmptyGraphWarning(UserWarning):
    """Issued when a capture recorded nothing: most often the work went to another stream or device."""


def driver_error(
    *,
    backend: str,
    call: str,
    code: int | None,
    code_name: str,
    reason: Reason = "other",
    detail: str = "",
) -> DriverError:
    """Make the error for a driver call that failed.

    Parameters
    ----------
    backend, call, code, code_name, reason
        As the attributes of `DriverError`.
    detail : str
        What the driver itself says of the code. Used where `reason` explains nothing.

    Returns
    -------
    DriverError
        An `OutOfMemoryError` if that is the reason. To be raised by the caller.
    """
    detail = detail.strip().rstrip(".")
    said = explain(reason) or detail
    number = "" if code is None else f" ({code})"
    message = f"backend {backend!r}: {call} answered {code_name}{number}"
    kind = OutOfMemoryError if reason == "out_of_memory" else DriverError
    return kind(
        f"{message}: {said}." if said else f"{message}.",
        backend=backend,
        call=call,
        code=code,
        code_name=code_name,
        reason=reason,
        detail=detail,
    )


def capture_error(
    subject: str, error: DriverError | None = None, reason: Reason = "other", fact: str = ""
) -> CaptureError:
    """Make the error for a capture that failed.

    Parameters
    ----------
    subject : str
        Which capture, and what was being done: the beginning of the sentence.
    error : DriverError, optional
        What the driver answered; its reason, code and name are taken over.
    reason : str
        The reason, where no driver was asked.
    fact : str
        What is known beyond that, with the way out; by default what the reason means.
    """
    if error is None:
        return CaptureError(f"{subject}: {fact or explain(reason)}.", reason=reason)
    number = "" if error.code is None else f" ({error.code})"
    said = explain(error.reason) or error.detail
    message = f"{subject}: {error.call} answered {error.code_name}{number}"
    return CaptureError(
        f"{message}: {said}." if said else f"{message}.",
        reason=error.reason,
        code=error.code,
        code_name=error.code_name,
    )
