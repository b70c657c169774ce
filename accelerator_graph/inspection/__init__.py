"""Seeing what is in a graph: descriptions, what differs between two of them, files and pictures."""

from .description import GraphDescription
from .difference import diff

__all__ = ["GraphDescription", "diff"]
