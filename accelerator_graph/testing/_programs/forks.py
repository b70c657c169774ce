"""Random forks and joins without Hypothesis, for a rule of the kit."""

from __future__ import annotations

import random

from .body import STREAMS, Op, Wait
from .memory import Piece
from .program import Program
from .steps import Capture, Options, Traits

CELLS, OPS, REPLAYS = 4, 30, 3


def forks_and_joins(backend: str, seed: int) -> str:
    """Return the code of a program that replays one capture of slow work on several streams."""
    choose = random.Random(seed)
    body: list[Op] = []
    for _ in range(OPS):
        stream = choose.randrange(STREAMS)
        if choose.random() < 0.3:
            body.append(Wait(stream, choose.randrange(STREAMS), event=choose.random() < 0.5))
        else:
            cell, a, b = choose.randrange(CELLS), choose.randrange(1, 9, 2), choose.randrange(9)
            body.append(Piece(stream, cell, a, b, slow=True, route=choose.randrange(6)))
    capture = Capture(0, 0, body, STREAMS, replays=[None] * REPLAYS)
    return Program(Traits(backend), [Options()], [capture]).code
