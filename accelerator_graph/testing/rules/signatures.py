"""The members of a backend, without which no other rule could say what is wrong."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Set
from typing import Any

from accelerator_graph.backends.base import CaptureStatus, Lends

from .._case import Case
from .._watch import METHODS

NAMED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class SignatureRules(Case):
    """Parameters of methods, and types of answers."""

    def test_methods_take_the_arguments_of_the_contract(self) -> None:
        """Every method takes the arguments of the contract, with and without those that have a default."""
        found = [wrong for name in METHODS if (wrong := self._wrong_signature(name))]
        if found:
            raise AssertionError("; ".join(found))

    def test_answers_have_the_types_of_the_contract(self) -> None:
        """`device_count`, `capabilities`, `device_of` and `capture_status` answer as the contract says."""
        backend = self.backend
        self._has_type("device_count", backend.device_count(), int)
        self._has_type("capabilities", backend.capabilities(0), Set)
        stream = backend.create_stream(0)
        try:
            self._has_type("device_of", backend.device_of(stream), int)
            self._has_type("capture_status", backend.capture_status(stream), CaptureStatus)
        finally:
            backend.destroy_stream(stream)

    def _has_type(self, method: str, answer: object, wanted: type) -> None:
        if not isinstance(answer, wanted):
            raise AssertionError(
                f"{type(self.backend).__qualname__}.{method} must return a {wanted.__name__}, not {answer!r}"
            )

    def _wrong_signature(self, name: str) -> str | None:
        """Return a sentence if a method can't be called as the contract says."""
        kind = type(self.backend)
        if not hasattr(kind, name):
            return None  # one of `Lends`, for a backend that frameworks do not record on
        if not callable(getattr(kind, name)):
            return f"{kind.__qualname__}.{name} must be a method, not {inspect.getattr_static(kind, name)!r}"
        wanted = inspect.signature(getattr(Lends, name).__get__(self.backend))
        try:
            given = inspect.signature(getattr(self.backend, name))
        except ValueError:  # written in C, without a signature
            return None
        if _takes(given, wanted, optional=True) and _takes(given, wanted, optional=False):
            return None
        return f"{kind.__qualname__}.{name} must take {_bare(wanted)}, not {_bare(given)}"


def _takes(given: inspect.Signature, wanted: inspect.Signature, *, optional: bool) -> bool:
    """Return True if a method can be called with all wanted arguments, or with those that have no default."""
    asked = [each for each in wanted.parameters.values() if optional or each.default is each.empty]
    by_place = [None for each in asked if each.kind in NAMED]
    by_name: dict[str, Any] = {each.name: None for each in asked if each.kind is each.KEYWORD_ONLY}
    if any(each.kind is each.VAR_KEYWORD for each in wanted.parameters.values()):
        by_name |= {each.name: None for each in given.parameters.values() if each.kind is each.KEYWORD_ONLY}
    bind: Callable[..., object] = given.bind
    try:
        bind(*by_place, **by_name)
    except TypeError:
        return False
    return True


def _bare(signature: inspect.Signature) -> str:
    """Return a signature without annotations."""
    parameters = [each.replace(annotation=each.empty) for each in signature.parameters.values()]
    return str(signature.replace(parameters=parameters, return_annotation=signature.empty))
