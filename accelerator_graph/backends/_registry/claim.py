"""Whose stream is it: from an object of some runtime to the backend that understands it."""

from __future__ import annotations

from collections.abc import Iterator, Set
from functools import partial
from typing import Any

from ..._interpreter.exceptions import raises_again, text_of
from ..._plugins.catalogue import Catalogue
from ...errors import AcceleratorGraphError, BackendContractError, BackendError
from ..base import Backend
from .choice import third_parties
from .instances import Instances


def claim(
    obj: object,
    chosen: str | None,
    catalogue: Catalogue[Backend],
    instances: Instances,
    reasons: dict[str, str],
) -> tuple[Backend, Any] | None:
    """Ask the backends that may know the object's type, and return the first answer.

    Notes in `reasons` why plug-ins can't be loaded, since the object may have been theirs.

    Raises
    ------
    AcceleratorGraphError, ValueError
        No backend claims the object, and one for the package that defines it can't be used or refuses it.
    """
    modules = [getattr(cls, "__module__", None) for cls in type(obj).__mro__]
    packages = {module.partition(".")[0] for module in modules if isinstance(module, str)} - {"builtins"}
    failures: list[Exception] = []
    for name in _in_order(chosen, catalogue, reasons) if packages else ():
        if packages.isdisjoint(_stream_modules(name, catalogue)):
            continue
        try:
            backend = instances.get(name)
        except BackendError as error:
            failures.append(error)
            continue
        try:
            stream = backend.as_stream(obj)
        except (AcceleratorGraphError, ValueError) as error:  # a stream of this backend that can't be used
            failures.append(error)
        except (Exception, SystemExit) as error:
            if not raises_again(partial(backend.as_stream, obj)):
                raise
            failures.append(
                BackendContractError(f"backend {name!r}: its as_stream() raised {text_of(error)}.")
            )
            failures[-1].__cause__ = error
        else:
            if stream is not None:
                return backend, stream
    if failures:
        raise failures[0]
    return None


def _in_order(chosen: str | None, catalogue: Catalogue[Backend], reasons: dict[str, str]) -> Iterator[str]:
    if chosen is not None:
        yield chosen
    yield from (name for name in catalogue.builtins if name != chosen)
    yield from (name for name, _ in third_parties(catalogue, reasons) if name != chosen)


def _stream_modules(name: str, catalogue: Catalogue[Backend]) -> Set[str]:
    """Return the packages that define the backend's own stream objects."""
    try:
        return frozenset(catalogue.load(name).stream_modules)
    except BackendError:
        return frozenset()
