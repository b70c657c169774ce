"""Arguments that are integers (Python's, NumPy's, any other type's with ``__index__``) or booleans."""

from __future__ import annotations

from operator import index


def integer(value: object, name: str) -> int:
    """Return an argument as an `int`.

    Raises
    ------
    TypeError
        It is not an integer. True and False don't count as integers.
    """
    if not isinstance(value, bool):
        try:
            return index(value)  # type: ignore[arg-type]
        except TypeError:
            pass
    raise TypeError(f"{name} must be an int, not {value!r}.")


def boolean(value: object, name: str) -> bool:
    """Return an argument that is True or False. Raises TypeError for everything else."""
    if isinstance(value, bool):
        return value
    raise TypeError(f"{name} must be True or False, not {value!r}.")
