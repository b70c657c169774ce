"""Which backend the user has named: with `use_backend`, or in the environment."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import ContextDecorator
from contextvars import ContextVar
from typing import Any, TypeVar

from ..._interpreter.environment import variable
from ..._plugins.entry_points import is_name

F = TypeVar("F", bound=Callable[..., Any])

VARIABLE = "ACCELERATOR_GRAPH_BACKEND"

_RUNS_LATER = 0x20 | 0x80 | 0x200  # the flags of generators, coroutines and asynchronous generators

_blocks: ContextVar[tuple[Block, ...]] = ContextVar("accelerator_graph_backend", default=())
"""The ``with`` blocks that this thread (or task) is in, the innermost last."""


def by_environment() -> str | None:
    """Return the name that ``ACCELERATOR_GRAPH_BACKEND`` gives; ValueError if it can't be a name."""
    name = variable(VARIABLE)
    if name and not is_name(name):
        raise ValueError(
            f"{VARIABLE} is {name!r}, which can't be the name of a backend; set it to one of "
            f"accelerator_graph.backends.names(), or unset it."
        )
    return name or None


class Block(ContextDecorator):
    """Names a backend for a ``with`` block, or for every call of the function that it decorates."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._used = False

    def __enter__(self) -> None:
        self._used = True
        before = _blocks.get()
        try:
            _blocks.set((*before, self))
        except BaseException:  # an interrupt
            _blocks.set(before)
            raise

    def __exit__(self, *exc: object) -> None:
        blocks = _blocks.get()
        for index in reversed(range(len(blocks))):  # a generator may have left another block open
            if blocks[index] is self:
                _blocks.set(blocks[:index] + blocks[index + 1 :])
                return

    def __call__(self, function: F) -> F:
        """Return a function that runs with the backend named; TypeError for generators and coroutines."""
        self._used = True
        flags = getattr(getattr(function, "__code__", None), "co_flags", 0)
        if flags & _RUNS_LATER:
            raise TypeError(
                f"use_backend can't decorate {function!r}, whose body runs after the call; write "
                f"`with use_backend({self.name!r}):` inside it."
            )
        return super().__call__(function)

    def __del__(self) -> None:
        if not self._used:
            warnings.warn(
                f"use_backend({self.name!r}) did nothing: it names the backend of a `with` block; "
                f"write `with use_backend({self.name!r}):`, or set {VARIABLE} for the whole process.",
                RuntimeWarning,
                stacklevel=2,
            )
