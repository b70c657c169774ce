"""Where Python hands signals to their handlers."""

from __future__ import annotations

import dis
from functools import cache
from itertools import pairwise
from types import CodeType

LOOKS_FOR_SIGNALS = frozenset(("CALL", "CALL_KW", "CALL_FUNCTION_EX", "RESUME", "JUMP_BACKWARD"))
"""The instructions after which it does so; a call of a Python function, which returns straight, is none."""


@cache
def steps(code: CodeType) -> frozenset[tuple[int, int]]:
    """Return the steps from one instruction to the next between which a signal can be handled.

    Raising before the second has the same effect as raising in the first, as long as the same
    ``except`` and ``finally`` watch over both: other steps are left out.
    """
    instructions = list(dis.get_instructions(code))
    watched = dis._parse_exception_table(code)  # type: ignore[attr-defined]

    def handler(offset: int) -> int:
        return next((each.target for each in watched if each.start <= offset < each.end), -1)

    return frozenset(
        (first.offset, second.offset)
        for first, second in pairwise(instructions)
        if first.opname in LOOKS_FOR_SIGNALS and handler(first.offset) == handler(second.offset)
    )
