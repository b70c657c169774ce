"""Whose exception is it: the plug-in's that was called, or a signal handler's."""

from __future__ import annotations

from collections.abc import Callable


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
