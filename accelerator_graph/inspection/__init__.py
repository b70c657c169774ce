"""Seeing what is in a graph: descriptions, what differs between two of them, files and pictures."""
