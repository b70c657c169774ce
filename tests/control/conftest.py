"""The stream that the tests of control flow run on."""

from core.fixtures import stream

__all__ = ["stream"]
