"""What `verify` says of a program that is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import accelerator_graph as ag


def accusation(make: Callable[..., tuple[Any, dict[str, Any]]], *place: Any) -> ag.VerificationError:
    """Return the error by which `verify` refuses the program that `make` makes."""
    args, how = make(*place)
    with pytest.raises(ag.VerificationError) as raised:
        ag.verify(*args, **how)
    return raised.value
