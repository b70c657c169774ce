"""Whose stream is it: from an object of some runtime to the backend that understands it."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any

from ..errors import BackendError
from ._automatic import third_parties
from ._catalogue import Catalogue
from ._instances import Instances
from .base import Backend

STREAM_MODULES: dict[str, Set[str]] = {
    "cuda": {"cuda"},
    "hip": {"hip", "rocm"},
    "cpu": {"accelerator_graph"},
}
"""Which top-level packages define the stream objects of a built-in backend's runtime."""


def claim(
    obj: object, chosen: str | None, catalogue: Catalogue[Backend], instances: Instances
) -> tuple[Backend, Any] | None:
    """Ask the backends that may know the object's type; the first answer wins."""
    modules = [getattr(cls, "__module__", None) for cls in type(obj).__mro__]
    packages = {module.partition(".")[0] for module in modules if isinstance(module, str)} - {"builtins"}
    for name in _in_order(chosen, catalogue) if packages else ():
        try:
            if packages.isdisjoint(_stream_modules(name, catalogue)):
                continue
            backend = instances.get(name)
        except BackendError:
            continue
        stream = backend.as_stream(obj)
        if stream is not None:
            return backend, stream
    return None


def _in_order(chosen: str | None, catalogue: Catalogue[Backend]) -> Iterator[str]:
    if chosen is not None:
        yield chosen
    yield from (name for name in catalogue.builtins if name != chosen)
    yield from (name for name in third_parties(catalogue, {}) if name != chosen)


def _stream_modules(name: str, catalogue: Catalogue[Backend]) -> Set[str]:
    if name in catalogue.builtins:
        return STREAM_MODULES.get(name, frozenset())
    return catalogue.load(name).stream_modules
