"""The stream that the tests of captures with breaks run on."""

from core.fixtures import stream

__all__ = ["stream"]
