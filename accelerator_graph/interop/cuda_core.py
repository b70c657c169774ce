"""cuda.core: its streams and graph builders. It has no current stream: each call takes one."""

from __future__ import annotations

import sys
from typing import Any, ClassVar

from .base import Framework

_MODULES = ("cuda.core", "cuda.core.experimental")  # the second one is that of versions before 1.0


class CudaCore(Framework):
    """cuda.core, the Pythonic part of cuda-python."""

    api_version: ClassVar[int] = 1

    def backend(self) -> str | None:
        """Return ``"cuda"``. Its objects need no initialisation first."""
        return "cuda" if self._types() else None

    def as_stream(self, obj: object) -> int | None:
        """Return the handle of a ``cuda.core.Stream``, or of the stream that a ``GraphBuilder`` captures."""
        if not isinstance(obj, self._types()):
            return None
        stream: Any = getattr(obj, "stream", obj)
        return int(stream.handle)

    def _types(self) -> tuple[type, ...]:
        found = []
        for name in _MODULES:
            module = sys.modules.get(name)
            for home in (module, getattr(module, "graph", None)):
                found += [getattr(home, each, None) for each in ("Stream", "GraphBuilder")]
        return tuple(each for each in found if isinstance(each, type))
