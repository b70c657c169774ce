"""What a function keeps from call to call: its arrays, and the Python references that no replay follows."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from types import CellType, CodeType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, NamedTuple

from ..interop import registry as interop

_MISSING = object()
_SIMPLE = (int, float, complex, str, bytes, bool)
_MOST = 200_000
"""How many references are looked at."""


class Slot(NamedTuple):
    """A place that holds a reference: an attribute, an item, a closure's variable or a global."""

    name: str
    get: Callable[[], Any]
    set: Callable[[Any], object]


class PythonState:
    """The references that a function can reach, as they were when this was made.

    Followed are the variables and globals of the function and of functions of its own package, attributes,
    and the items of lists and dicts; with `grads`, the gradients of tensors as well.
    """

    def __init__(self, function: Any, is_array: Callable[[Any], bool], *, grads: bool = False) -> None:
        self.function: Any = function
        self._is_array = is_array
        self._grads = grads
        package = getattr(function, "__module__", None) or ""
        package = package.partition(".")[0]
        self._package = None if package in (*interop.names(), "numpy") else package
        self.complete: bool = True
        """False if there are more references than are looked at."""
        self._keys: dict[int, set[Any]] = {}
        """What the dicts among the values had, by the dict's id."""
        self._saved = [(slot, slot.get()) for slot in self._slots(function)]

    def now(self) -> PythonState:
        """Return the references that the same function can reach now."""
        return PythonState(self.function, self._is_array, grads=self._grads)

    def restore(self) -> None:
        """Put back the references that were changed since.

        A dict that another one has replaced loses the items that it got before that.
        """
        for slot, value in self._saved:
            if slot.get() is not value:
                slot.set(value)
                if isinstance(value, dict) and id(value) in self._keys:
                    for key in value.keys() - self._keys[id(value)]:
                        del value[key]

    def values(self) -> Iterator[tuple[str, Any]]:
        """Yield what was found, with its name, but for objects that tell nothing of themselves."""
        for slot, value in self._saved:
            if value is not _MISSING and _tells(value):
                yield slot.name, value

    def changed(self) -> list[tuple[str, Any, Any]]:
        """Return the numbers, texts and arrays that are others now: their name, value then and value now."""
        found = []
        for slot, value in self._saved:
            now = slot.get()
            if now is value or now is _MISSING or value is _MISSING or not (_tells(now) and _tells(value)):
                continue
            simple = isinstance(value, _SIMPLE) and isinstance(now, _SIMPLE) and now != value
            if simple or (self._is_array(now) and self._is_array(value)):
                found.append((slot.name, value, now))
        return found

    def _slots(self, function: Any) -> Iterator[Slot]:
        rest: deque[tuple[str, Any]] = deque([("", function)])
        seen: set[int] = set()
        count = 0
        while rest and count < _MOST:
            name, x = rest.popleft()
            if id(x) in seen:
                continue
            seen.add(id(x))
            if isinstance(x, dict):
                self._keys[id(x)] = set(x)
            for slot in _slots_of(name, x):
                value = slot.get()
                count += 1
                yield slot
                if self._grads and self._is_array(value) and getattr(value, "is_leaf", False):
                    yield _grad(slot.name, value)
                if self._followed(value):
                    rest.append((slot.name, value))
            rest += _inside(name, x)
        self.complete = not rest

    def _followed(self, value: Any) -> bool:
        """Return True for objects whose insides may be the state of a user's function."""
        if not _tells(value):
            return False
        if isinstance(value, list | dict | partial | MethodType):
            return True
        if isinstance(value, ModuleType) or self._is_array(value):
            return False
        if isinstance(value, FunctionType | type):
            return (value.__module__ or "").partition(".")[0] == self._package
        package = type(value).__module__.partition(".")[0]
        ours = package not in sys.stdlib_module_names or package in ("__main__", "types")
        if not ours or package == __name__.partition(".")[0]:
            return False
        return hasattr(value, "__dict__") or any("__slots__" in vars(cls) for cls in type(value).__mro__)


def _tells(x: Any) -> bool:
    """Return False if asking for an attribute raises, as that of a proxy outside of its context does."""
    try:
        for name in ("__class__", "__dict__", "bit_generator"):
            hasattr(x, name)
    except Exception:
        return False
    return True


def _inside(name: str, x: Any) -> list[tuple[str, Any]]:
    """Return the functions and objects that a callable is made of."""
    if isinstance(x, MethodType):
        return [("", x.__func__), ("self", x.__self__)]
    if isinstance(x, partial):
        return [("", x.func), *((f"args[{i}]", each) for i, each in enumerate(x.args))]
    if isinstance(x, FunctionType):
        return [("", x.__wrapped__)] if hasattr(x, "__wrapped__") else []
    forward = getattr(type(x), "forward", None) or getattr(type(x), "__call__", None)  # noqa: B004
    return [("", forward)] if isinstance(forward, FunctionType) and not name else []


def _slots_of(name: str, x: Any) -> Iterator[Slot]:
    if isinstance(x, FunctionType):
        for variable, cell in zip(x.__code__.co_freevars, x.__closure__ or (), strict=True):
            yield _cell(variable, cell)
        for variable in dict.fromkeys(_names(x.__code__)):
            value = x.__globals__.get(variable, _MISSING)
            if value is not _MISSING and not issubclass(type(value), ModuleType):
                yield _item(variable, x.__globals__, variable)
    elif isinstance(x, dict):
        owner, found, _ = name.rpartition("_modules")
        for i, key in enumerate(list(x)):
            shown = repr(key) if isinstance(key, str | int) else f"key {i}"
            yield _item(f"{owner}{key}" if found else f"{name}[{shown}]", x, key)
    elif isinstance(x, list):
        for i in range(len(x)):
            yield _element(f"{name}[{i}]", x, i)
    else:
        is_class = isinstance(x, type)
        own: dict[str, Any] = {} if is_class else getattr(x, "__dict__", {})
        prefix = f"{name}." if name else ""
        for key in list(own):
            yield _item(f"{prefix}{key}", own, key)
        for cls in (x if is_class else type(x)).__mro__[:-1]:
            for key, value in list(vars(cls).items()):
                if isinstance(value, MemberDescriptorType) and "__slots__" in vars(cls) and not is_class:
                    yield _member(f"{prefix}{key}", x, value)
                elif key not in own and not key.startswith("__") and not hasattr(value, "__get__"):
                    yield _attribute(f"{prefix}{key}", cls, key)


def _cell(name: str, cell: CellType) -> Slot:
    def get() -> Any:
        try:
            return cell.cell_contents
        except ValueError:  # the variable has no value yet
            return _MISSING

    return Slot(name, get, lambda value: setattr(cell, "cell_contents", value))


def _item(name: str, where: dict[Any, Any], key: Any) -> Slot:
    def put(value: Any) -> None:
        if value is not _MISSING:
            where[key] = value

    return Slot(name, lambda: where.get(key, _MISSING), put)


def _attribute(name: str, cls: type, key: str) -> Slot:
    def put(value: Any) -> None:
        if value is not _MISSING:
            setattr(cls, key, value)

    return Slot(name, lambda: vars(cls).get(key, _MISSING), put)


def _member(name: str, x: Any, member: MemberDescriptorType) -> Slot:
    def get() -> Any:
        try:
            return member.__get__(x)
        except AttributeError:  # it has no value yet
            return _MISSING

    def put(value: Any) -> None:
        if value is not _MISSING:
            member.__set__(x, value)

    return Slot(name, get, put)


def _grad(name: str, x: Any) -> Slot:
    return Slot(f"{name}.grad", lambda: x.grad, lambda value: setattr(x, "grad", value))


def _element(name: str, where: list[Any], i: int) -> Slot:
    def put(value: Any) -> None:
        if i < len(where) and value is not _MISSING:
            where[i] = value

    return Slot(name, lambda: where[i] if i < len(where) else _MISSING, put)


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that a function, and the functions in it, may look up in its module."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
