"""Operators of torch in whose place something else is called."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ...errors import UnsupportedError
from ..base import InPlaceOf
from .observing import dispatch_mode, mode_stack


class Replaced:
    """Has a call made in the place of those of operators, by a dispatch mode; see `Framework.replace`."""

    def __init__(self, torch: Any, names: Sequence[str], call: InPlaceOf) -> None:
        self._torch = torch
        self._operators = {each for name in names for each in _overloads(torch, name)}
        self._call = call
        self._inside = False
        """Whether the mode is handling such a call: torch has taken it off, and puts it on again."""
        self._mode = dispatch_mode(torch, self._handle)

    def _handle(self, operator: Any, args: Any, kwargs: Any) -> Any:
        if operator not in self._operators:
            return operator(*args, **kwargs)
        self._inside = True
        try:
            return self._call(operator, args, kwargs, _site())
        finally:
            self._inside = False

    def begin(self) -> None:
        """Have the calls replaced from now on; the mode is ahead of all others."""
        if not self._inside and self._mode not in mode_stack(self._torch):
            self._mode.__enter__()

    def end(self) -> None:
        """Have them replaced no more. Raises `UnsupportedError` if another mode was entered since."""
        if self._inside or self._mode not in (stack := mode_stack(self._torch)):
            return
        if stack[-1] is not self._mode:
            raise UnsupportedError(
                f"a break inside of {stack[-1]!r}: where operators are breaks, a mode of torch can't begin "
                "in one segment and end in another; enter it around the capture, or in the eager call.",
                capability="breaks",
            )
        self._mode.__exit__(None, None, None)


def _site() -> tuple[str, int]:
    """Return where an operator is called, outside of torch and of this package."""
    frame = sys._getframe(1)
    inner = (__name__.partition(".")[0], "torch")
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in inner:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def _overloads(torch: Any, name: str) -> list[Any]:
    """Return the overloads of an operator, or the one that is named; ValueError if there is none."""
    namespace, _, rest = name.partition("::")
    short, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), short, None)
    names = packet.overloads() if isinstance(packet, torch._ops.OpOverloadPacket) else ()
    found = [getattr(packet, each) for each in names if overload in ("", each)]
    found = [each for each in found if torch._C._dispatch_has_kernel(each.name())]
    if not found:
        raise ValueError(f"graph: breaks names the operator {name!r}, which torch does not have.")
    made_of_others = torch._C._dispatch_has_kernel_for_dispatch_key
    seen = [each for each in found if not made_of_others(each.name(), "CompositeImplicitAutograd")]
    if not seen:
        raise ValueError(
            f"graph: breaks names the operator {name!r}, in whose place torch calls what it is made of; "
            "name one of those operators, or a function that calls it."
        )
    return seen
