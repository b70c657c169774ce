"""The messages of any exceptions, even of those that can't be shown."""

from __future__ import annotations


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
