"""One graphed function is captured at a time: some frameworks record only one capture."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial

from .._interpreter.process import after_fork
from .._interpreter.sure_exit import Between

_turn: dict[str, object] = {}
"""The call that is being captured, under ``"now"``. Nobody waits for it: a signal handler would wait for the
call that it has interrupted."""


def taking_turn(call: object) -> AbstractContextManager[None]:
    """Take the turn of capturing for a call, unless another call has it; see `has_turn`."""
    return Between(partial(_turn.setdefault, "now", call), partial(_give_up, call))


def has_turn(call: object) -> bool:
    """Return True if a call has the turn."""
    return _turn.get("now") is call


def _give_up(call: object) -> None:
    if has_turn(call):
        _turn.pop("now", None)


after_fork(_turn.clear)
