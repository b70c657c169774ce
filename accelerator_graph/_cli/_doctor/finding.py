"""What the doctor has found, and what to do about it."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """A fact that disturbs graphs, or may disturb them."""

    about: str
    """A backend, a library, a package or a variable."""
    fact: str
    """What was found, in sentences."""
    advice: str
    """What to do about it, in sentences."""
