"""Classes that a plug-in offers beside its backend, by entry points of the backend's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from ..errors import UnsupportedError
from . import Catalogue

T = TypeVar("T")


class Hook(Catalogue[T]):
    """The classes for one use, by the names of their backends. `noun` is the word for one in messages."""

    def __init__(
        self,
        *,
        noun: str,
        group: str,
        builtins: Mapping[str, str],
        base: type[T] | None = None,
        problem: Callable[[type[T]], str] = lambda found: "",
    ) -> None:
        super().__init__(
            kind=f"the {noun} of backend", group=group, base=base, builtins=builtins, problem=problem
        )
        self._noun = noun

    def load(self, name: str) -> type[T]:
        """Return the class for a backend.

        Raises UnsupportedError if its distribution has none, and what `Catalogue.load` raises.
        """
        if not self.find(name):
            raise UnsupportedError(
                f"backend {name!r} has no {self._noun}; its author can declare one in pyproject.toml: "
                f'[project.entry-points."{self._group}"] {name} = "module:Class".'
            )
        return super().load(name)
