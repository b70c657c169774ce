"""The arguments of a call: in one order, however they are given, and under their names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Any

from .._arrays.signatures import Shape

Source = int | str | None
"""Where a value of a call comes from: its position, its name, or the parameter's default."""

_MOST_PLANS = 64
_NOT_ORDINARY = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)


class Arguments:
    """Brings the arguments of every call of a function into one order, with a Python function's defaults.

    The first `skip` parameters are left out.
    """

    def __init__(self, function: Callable[..., Any], skip: int) -> None:
        self.positional = -1
        """As many arguments, if all are given by position, are in order already."""
        self._plans: dict[Hashable, tuple[Shape, list[Any]]] = {}
        try:
            parameters = list(inspect.signature(function).parameters.values())[skip:]
        except (TypeError, ValueError):  # a builtin: nothing is known of its parameters
            parameters = [
                inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
                inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD),
            ]
        self._signature = inspect.Signature(parameters)
        self._fills_in = _is_python(function)
        if all(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters):
            self.positional = len(parameters)

    def ordered(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Shape, Sequence[Any]]:
        """Return how the values are passed on, and the values; TypeError if the function can't take them."""
        given = (len(args), *kwargs)
        plan = self._plans.get(given)
        if plan is None:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            plan = self._plans[given] = self._plan(len(args), kwargs)
        shape, sources = plan
        return shape, [source(args, kwargs) for source in sources]

    def sources(self, count: int, names: Iterable[str]) -> list[Source]:
        """Return where each value of a call comes from that gives so many by position, and these by name."""
        values = self._bound(count, names)[1]
        return [value.where if isinstance(value, _Given) else None for value in values]

    def _plan(self, count: int, names: Iterable[str]) -> tuple[Shape, list[Any]]:
        shape, values = self._bound(count, names)
        return shape, [
            value.get if isinstance(value, _Given) else lambda args, kwargs, default=value: default
            for value in values
        ]

    def _bound(self, count: int, names: Iterable[str]) -> tuple[Shape, list[Any]]:
        args = [_Given(i, lambda args, kwargs, i=i: args[i]) for i in range(count)]
        kwargs = {name: _Given(name, lambda args, kwargs, name=name: kwargs[name]) for name in names}
        bound = self._signature.bind(*args, **kwargs)
        if self._fills_in:
            bound.apply_defaults()
        named = sorted(bound.kwargs.items())
        shape = len(bound.args), tuple(name for name, _ in named)
        return shape, [*bound.args, *(value for _, value in named)]

    def names(self, shape: Shape) -> list[str]:
        """Return the names of the values, for messages."""
        found: list[str] = []
        for parameter in self._signature.parameters.values():
            if parameter.kind is parameter.VAR_POSITIONAL:
                found += [f"{parameter.name}[{i}]" for i in range(shape[0] - len(found))]
            elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                found.append(parameter.name)
        return [*found[: shape[0]], *shape[1]]


def _is_python(function: Any) -> bool:
    """Return True if a function is written in Python: to it, a default and the same value given are alike."""
    function = inspect.unwrap(function)
    while isinstance(function, partial):
        function = inspect.unwrap(function.func)
    function = getattr(function, "__func__", function)
    return hasattr(function, "__code__") or hasattr(type(function).__call__, "__code__")


class _Given:
    """Stands for an argument while the order is found."""

    def __init__(self, where: int | str, get: Callable[..., Any]) -> None:
        self.where = where
        self.get = get


def check_ordinary(function: Callable[..., Any], caller: str) -> None:
    """Raise TypeError for a coroutine or a generator: a call of it runs none of its code."""
    if any(test(each) for each in (function, type(function).__call__) for test in _NOT_ORDINARY):
        raise TypeError(
            f"{caller}: {function!r} is a coroutine or a generator, which can't be captured; pass an "
            "ordinary function."
        )
