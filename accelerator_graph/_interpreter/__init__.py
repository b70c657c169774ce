"""Help with Python itself: forks and exits, ends of ``with`` blocks, threads, integers, exceptions."""

from __future__ import annotations

from typing import Any

in_c: Any = None
"""The C extension, once `_core.extension` has it."""
