"""The owners of streams."""

from __future__ import annotations

from ..interop.base import Framework
from .ownership import Owned


class OwnedStream(Owned):
    """A stream that this library made and has to destroy."""

    __slots__ = ()

    def act(self) -> None:
        """Destroy the stream."""
        self.backend.destroy_stream(self.value)


class Borrowed:
    """The owner of a stream that was made elsewhere: the object that stood for it, which is kept alive."""

    __slots__ = ("obj",)

    def __init__(self, obj: object) -> None:
        self.obj = obj


class FrameworkCurrent:
    """The owner of a stream that was a framework's current one. Nothing keeps such a stream alive."""

    __slots__ = ("framework",)

    def __init__(self, framework: Framework) -> None:
        self.framework = framework


Owner = OwnedStream | Borrowed | FrameworkCurrent
