"""Exceptions of code that is not the library's: their messages, and whether they come again."""

from __future__ import annotations

from collections.abc import Callable


def message_of(error: BaseException) -> str:
    """Return the message of any exception without its last full stop, even if its `__str__` raises."""
    try:
        return str(error).strip().rstrip(".")
    except Exception:
        return "its message can't be shown"


def text_of(error: BaseException) -> str:
    """Return the type and the message of any exception."""
    name, message = type(error).__name__, message_of(error)
    return f"{name}: {message}" if message else name


def raises_again(call: Callable[[], object]) -> bool:
    """Call a plug-in again after it has raised; return True if it raises again.

    If it does not, the first exception may have come from a signal handler, such as the SystemExit of
    one that ends the process.
    """
    try:
        call()
    except (Exception, SystemExit):
        return True
    return False
