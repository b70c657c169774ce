"""Reading JSON that has the version of a schema."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def read_json(text: str, what: str, short: str, newest: int, make: Callable[[dict[str, Any]], T]) -> T:
    """Return what `make` makes of the data, or raise ValueError.

    Parameters
    ----------
    text : str
        The JSON.
    what, short : str
        What it should be, for messages: at length, and in one word.
    newest : int
        The latest version of the schema that can be read.
    make : callable
        Raises KeyError, TypeError or IndexError if the data is damaged.
    """
    try:
        data = json.loads(text)
    except RecursionError as error:
        raise ValueError(f"the {short} is nested too deeply; read one that to_json() has written.") from error
    if not isinstance(data, dict) or "schema" not in data:
        raise ValueError(f"the text is not {what}; read one that to_json() has written.")
    if data["schema"] not in range(1, newest + 1):
        raise ValueError(
            f"the {short} has schema {data['schema']!r}, and this accelerator_graph reads up to {newest}; "
            "read it with the version that wrote it, or a later one."
        )
    try:
        return make(data)
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"the {short} is damaged ({error!r}); write it again with to_json().") from error
