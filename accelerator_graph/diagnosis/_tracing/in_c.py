"""The events that C answers: those at which the capture still goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..._core.extension import fast
from . import forks
from .places import kind_of

if TYPE_CHECKING:
    from ..._core._fast import Watch
    from .trace import Trace

PURE = (callable, enumerate, id, isinstance, issubclass, len, object, range, super, type, zip)
"""Functions that are called often and break nothing. The line that called them is watched all the same."""

_kinds: dict[str, int] = {}


def watch(trace: Trace, *functions: Callable[..., Any], disable: object = None) -> Watch | None:
    """Return what answers the events of a capture that begins on this thread; None without the extension.

    Parameters
    ----------
    trace : Trace
        Watches the capture.
    functions : callable
        They handle a line, a return, a return from C and an exception in Python. Before Python 3.12, one
        function handles all events.
    disable : object
        The answer for places where no event is needed again.
    """
    if fast is None:
        return None
    status = trace.backend.status_function(trace.native)
    made: Watch = fast.Watch(
        ask=trace.goes_on,
        status=status.address if status else 0,
        alive=status.alive if status else 0,
        stream=trace.backend.handle_int(trace.native) if status else 0,
        active=status.active if status else 0,
        last=trace.last,
        kinds=_kinds,
        kind_of=kind_of,
        waits=forks.NAMES,
        waits_in_c=forks.IN_C,
        pure=PURE,
        after_call=trace.escapes.after_call if trace.escapes.asks else None,
        disable=disable,
        functions=functions,
    )
    return made
