"""All public operations."""

from __future__ import annotations

from .on_captures import CAPTURES
from .on_graphs import GRAPHS
from .on_streams import STREAMS
from .operation import Operation

OPERATIONS: tuple[Operation, ...] = (*STREAMS, *CAPTURES, *GRAPHS)
