"""Notices every exception that a backend's method raises, even if the library catches it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from accelerator_graph.backends.base import Backend, Lends
from accelerator_graph.errors import AcceleratorGraphError

PERMITTED: dict[str, tuple[type[Exception], ...]] = {
    "fill": (TypeError, ValueError),
    "copy": (TypeError, ValueError),
    "launch": (TypeError, ValueError),
    "as_stream": (ValueError,),
    "dump": (OSError,),
}
"""What a method may raise beside the errors of the library."""

MEMBERS = [name for name in dir(Lends) if not name.startswith("_") and name != "probe"]
METHODS = [name for name in MEMBERS if inspect.isfunction(inspect.getattr_static(Lends, name))]


class Watch:
    """Wraps the contract's methods of a backend's class, from `begin` to `end`."""

    def __init__(self) -> None:
        self._kind: type[Backend] | None = None
        self._own: dict[str, Any] = {}
        self._escaped: list[tuple[str, Exception]] = []

    def begin(self, kind: type[Backend]) -> None:
        """Wrap the methods of a class."""
        self._kind = kind
        self._own = {name: vars(kind)[name] for name in METHODS if name in vars(kind)}
        for name in METHODS:
            method = inspect.getattr_static(kind, name, None)
            if callable(method) or isinstance(
                method, classmethod
            ):  # else a rule says that it must be a method
                setattr(kind, name, self._watched(name, method))

    def end(self) -> AssertionError | None:
        """Restore the class; return an error about the first exception that must not have come out."""
        if self._kind is None:
            return None
        for name in METHODS:
            if name in self._own:
                setattr(self._kind, name, self._own[name])
            elif name in vars(self._kind):
                delattr(self._kind, name)
        if not self._escaped:
            return None
        name, error = self._escaped.pop()
        found = AssertionError(
            f"{self._kind.__qualname__}.{name} let {type(error).__name__} out; raise an error of "
            "accelerator_graph.errors instead, with the vendor's exception as its cause"
        )
        found.__cause__ = error
        return found

    def _watched(self, name: str, method: Any) -> Callable[..., Any]:
        permitted: tuple[type[Exception], ...] = (AcceleratorGraphError, *PERMITTED.get(name, ()))

        def call(function: Callable[..., Any], *args: Any, **how: Any) -> Any:
            try:
                return function(*args, **how)
            except permitted:
                raise
            except Exception as error:
                if not self._escaped:
                    self._escaped.append((name, error))
                raise

        @wraps(method)
        def watched(backend: Backend, *args: Any, **how: Any) -> Any:
            found = call(method.__get__(backend, type(backend)), *args, **how)
            return partial(call, found) if name == "bind" else found

        return watched
