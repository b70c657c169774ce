"""How many objects of some classes are alive."""

from __future__ import annotations

import gc
from collections import Counter


def live_instances(*modules: str) -> dict[str, int]:
    """Count the objects whose classes are defined in some modules, or in packages of these names.

    It counts what Python's garbage collector tracks, which is every object that can refer to others.

    Parameters
    ----------
    *modules : str
        The names of modules and packages.

    Returns
    -------
    dict of str to int
        The number of objects, by the module and the name of the class.
    """
    packages = tuple(f"{module}." for module in modules)
    kinds = Counter(map(type, gc.get_objects()))
    return {
        f"{kind.__module__}.{kind.__qualname__}": count
        for kind, count in kinds.items()
        if f"{kind.__module__}.".startswith(packages)
    }
