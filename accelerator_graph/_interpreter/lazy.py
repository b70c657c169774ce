"""Names that a module imports when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable


def imported_on_use(module: str, homes: dict[str, str]) -> Callable[[str], object]:
    """Return the `__getattr__` of a module. `homes` has the names, with spaces between, by their modules."""
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def __getattr__(name: str) -> object:
        if name not in home_of:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(home_of[name]), name)
        setattr(sys.modules[module], name, value)
        return value

    return __getattr__
