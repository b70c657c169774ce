"""What a function keeps from call to call: its arrays, and the Python references that no replay follows."""

from __future__ import annotations

import copy
import itertools
import sys
import warnings
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from enum import Enum
from functools import partial
from numbers import Number
from types import CellType, CodeType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, NamedTuple

from ..interop import registry as interop

_MISSING = object()
_SIMPLE = (Number, str, bytes, Enum, type(None))
_CONTAINERS = (list, dict, set, deque)
_REPEATABLE = (
    *map(type, (iter([]), iter(()), iter(range(0)), iter(range(1 << 64)))),
    itertools.count,
)
"""Iterators that a copy begins again at the same place."""
_MOST = 200_000
"""How many references are looked at."""


class Slot(NamedTuple):
    """A place that holds a reference: an attribute, an item, a closure's variable or a global."""

    name: str
    get: Callable[[], Any]
    set: Callable[[Any], object]


class PythonState:
    """The references that a function can reach, as they were when this was made.

    Followed are the variables, defaults and globals of the function and of functions of its own package,
    attributes, and the items of containers.

    Parameters
    ----------
    function : callable
        The function.
    is_array : callable
        Returns True for arrays.
    grads : bool
        Whether to follow the gradients of tensors.
    contents : bool
        Whether to put back the items of all containers as well, and the memory of tensors and the position of
        iterators. By default only a dict that another one has replaced loses the items that it got before.
    arguments : sequence of pair of str and object
        What else can be reached: the arguments of a call, by their names.
    """

    def __init__(
        self,
        function: Any,
        is_array: Callable[[Any], bool],
        *,
        grads: bool = False,
        contents: bool = False,
        arguments: Sequence[tuple[str, Any]] = (),
    ) -> None:
        self.function: Any = function
        self._is_array = is_array
        self._grads = grads
        self._contents = contents
        package = getattr(function, "__module__", None) or ""
        package = package.partition(".")[0]
        self._packages = {"__main__", package} - {*interop.names(), "numpy"}
        self._arguments = [pair for pair in arguments if is_array(pair[1]) or self._followed(pair[1])]
        self.complete: bool = True
        """False if there are more references than are looked at."""
        self.lost: list[str] = []
        """The names of the iterators that can't be put back."""
        self._containers: dict[int, tuple[str, Any, Any]] = {}
        """Containers and their items, by the id of the container."""
        self._tensors: list[tuple[str, Any, Any]] = []
        """Tensors, and others in the same memory, which a tensor can leave for other memory."""
        self._iterators: list[tuple[Slot, Any, Any]] = []
        """Where iterators are, these, and copies of them."""
        self._saved = [(slot, slot.get()) for slot in self._slots(function)]

    def now(self) -> PythonState:
        """Return the references that the same function can reach now."""
        return PythonState(
            self.function,
            self._is_array,
            grads=self._grads,
            contents=self._contents,
            arguments=self._arguments,
        )

    def restore(self, keep: str = "") -> bool:
        """Put back the references, the items and the memory that were changed since, but for those of a name.

        In the place of an iterator comes a copy that has its position. Return True if a tensor has its former
        memory back.
        """
        for slot, value in self._saved:
            if slot.get() is not value and slot.name != keep:
                slot.set(value)
                if isinstance(value, dict) and id(value) in self._containers:
                    _refill(*self._containers[id(value)][1:])
        if not self._contents:
            return False
        for name, x, items in self._containers.values():
            if keep != f"len({name})":
                _refill(x, items)
        moved = [(x, data) for name, x, data in self._tensors if name != keep and _memory(x) != _memory(data)]
        for x, data in moved:
            x.data = data
        for slot, _, unused in self._iterators:
            if keep != f"the position of {slot.name}":
                slot.set(_copied(unused))
        return bool(moved)

    def put_back(self) -> None:
        """Put back everything, and the iterators themselves: `restore` has kept them from being used."""
        self.restore()
        for slot, iterator, _ in self._iterators:
            slot.set(iterator)

    def values(self) -> Iterator[tuple[str, Any]]:
        """Yield what was found, with its name, but for objects that say nothing about themselves."""
        for slot, value in self._saved:
            if value is not _MISSING and _tells(value):
                yield slot.name, value

    def changed(self) -> list[tuple[str, Any, Any]]:
        """Return the name, the value then and the value now of what is another one now.

        First come numbers, texts and members of enums, and how many items containers have; then arrays that
        are others, or lie elsewhere; and then other objects.
        """
        simple: list[tuple[str, Any, Any]] = []
        arrays: list[tuple[str, Any, Any]] = []
        others: list[tuple[str, Any, Any]] = []
        for slot, value in self._saved:
            now = slot.get()
            if now is value or not (_tells(now) and _tells(value)):
                continue
            found = (slot.name, value, now)
            if _is_simple(value) and _is_simple(now):
                if type(now) is not type(value) or now != value:
                    simple.append(found)
            elif now is not _MISSING and value is not _MISSING:
                (arrays if self._is_array(now) and self._is_array(value) else others).append(found)
        for name, x, items in self._containers.values():
            if len(x) != len(items):
                simple.append((f"len({name})", len(items), len(x)))
        for slot, _, unused in self._iterators:
            then, now = _position(unused), _position(slot.get())
            if then != now:
                simple.append((f"the position of {slot.name}", then, now))
        arrays += [(name, data, x.data) for name, x, data in self._tensors if _memory(x) != _memory(data)]
        return simple + arrays + others

    def _slots(self, function: Any) -> Iterator[Slot]:
        rest: deque[tuple[str, Any]] = deque([("", function), *self._arguments])
        seen: set[int] = set()
        count = 0
        while rest and count < _MOST:
            name, x = rest.popleft()
            if id(x) in seen:
                continue
            seen.add(id(x))
            if self._is_array(x):
                self._note_memory(name, x)
                continue
            own = getattr(x, "__dict__", None)  # a class has a proxy, which is no dict
            for label, each in ((name, x), (f"vars({name})", own)):
                if isinstance(each, _CONTAINERS):
                    self._containers[id(each)] = label, each, _items_of(each)
            for slot in _slots_of(name, x):
                value = slot.get()
                count += 1
                if self._contents and _is_iterator(value):
                    if isinstance(value, _REPEATABLE):
                        self._iterators.append((slot, value, _copied(value)))
                    else:
                        self.lost.append(slot.name)
                    continue
                yield slot
                if self._is_array(value):
                    if self._contents:
                        rest.append((slot.name, value))
                    if self._grads and getattr(value, "is_leaf", False):
                        yield _slot(
                            f"{slot.name}.grad",
                            partial(getattr, value, "grad"),
                            partial(setattr, value, "grad"),
                        )
                elif self._followed(value):
                    rest.append((slot.name, value))
            rest += _inside(name, x)
            if self._contents:
                rest += self._methods(x)
        self.complete = not rest

    def _note_memory(self, name: str, x: Any) -> None:
        if isinstance(x, bytearray | array):
            self._containers[id(x)] = name, x, x[:]
        with suppress(Exception):  # arrays of other libraries, and tensors without memory of their own
            data = x.data
            if _memory(x) == _memory(data):
                self._tensors.append((name, x, data))

    def _is_own(self, value: Any) -> bool:
        return (value.__module__ or "").partition(".")[0] in self._packages

    def _methods(self, x: Any) -> Iterator[tuple[str, Any]]:
        """Yield the functions of an object's own classes, which may use globals."""
        for cls in filter(self._is_own, type(x).__mro__):
            for value in vars(cls).values():
                function = getattr(value, "fget", None) or getattr(value, "__func__", value)
                if isinstance(function, FunctionType):
                    yield "", function

    def _followed(self, value: Any) -> bool:
        """Return True for objects whose insides may be the state of a user's function."""
        if not _tells(value):
            return False
        if isinstance(value, dict) and "__builtins__" in value:
            return False  # a module's variables, of which functions name the ones that they use
        if isinstance(value, (tuple, *_CONTAINERS, partial, MethodType)):
            return True
        if isinstance(value, ModuleType) or self._is_array(value):
            return False
        if isinstance(value, FunctionType | type):
            return self._is_own(value)
        package = type(value).__module__.partition(".")[0]
        ours = package not in sys.stdlib_module_names or package in ("__main__", "types", "_thread")
        if not ours or package == __name__.partition(".")[0]:
            return False
        return hasattr(value, "__dict__") or any("__slots__" in vars(cls) for cls in type(value).__mro__)


def _tells(x: Any) -> bool:
    """Return False if asking for an attribute raises, as that of a proxy outside of its context does."""
    try:
        for name in ("__class__", "__dict__"):
            hasattr(x, name)
    except Exception:
        return False
    return True


def _is_simple(x: Any) -> bool:
    return isinstance(x, _SIMPLE) or (isinstance(x, tuple) and all(map(_is_simple, x)))


def _is_iterator(x: Any) -> bool:
    """Return True for the iterators of Python itself; another one is an object with attributes."""
    return hasattr(type(x), "__next__") and type(x).__module__ in ("builtins", "itertools")


def _copied(iterator: Any) -> Any:
    with warnings.catch_warnings():  # itertools are not copied from Python 3.14 on
        warnings.simplefilter("ignore", DeprecationWarning)
        return copy.copy(iterator)


def _position(iterator: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        found = iterator.__reduce__()
    return found[2] if isinstance(found[-1], int) else found[1][0]


def _memory(x: Any) -> tuple[Any, ...]:
    """Return which memory a tensor has."""
    return x.data_ptr(), tuple(x.shape), tuple(x.stride())


def _items_of(x: Any) -> Any:
    """Return the items of a container."""
    return dict(x) if isinstance(x, dict) else set(x) if isinstance(x, set) else list(x)


def _refill(x: Any, items: Any) -> None:
    """Give a container the items back that it had."""
    if isinstance(x, dict):
        for key in [key for key in x if key not in items]:
            del x[key]
        for key, value in items.items():
            if x.get(key, _MISSING) is not value:
                x[key] = value
    elif isinstance(x, set):
        x &= items
        x |= items
    elif len(x) != len(items) or any(now is not then for now, then in zip(x, items, strict=True)):
        if isinstance(x, deque):
            x.clear()
            x.extend(items)
        else:
            x[:] = items


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
        named = x.__code__.co_varnames[: x.__code__.co_argcount][::-1]
        for parameter, value in zip(named, (x.__defaults__ or ())[::-1], strict=False):
            yield _constant(parameter, value)
        for parameter, value in (x.__kwdefaults__ or {}).items():
            yield _constant(parameter, value)
        for variable, cell in zip(x.__code__.co_freevars, x.__closure__ or (), strict=True):
            yield _cell(variable, cell)
        for variable in dict.fromkeys(_names(x.__code__)):
            value = x.__globals__.get(variable, _MISSING)
            if value is not _MISSING and not issubclass(type(value), ModuleType):
                yield _item(variable, x.__globals__, variable)
        for key in list(x.__dict__):
            yield _item(f"{name or x.__name__}.{key}", x.__dict__, key)
    elif isinstance(x, dict):
        owner, found, _ = name.rpartition("_modules")
        for i, key in enumerate(list(x)):
            shown = repr(key) if isinstance(key, str | int) else f"key {i}"
            yield _item(f"{owner}{key}" if found else f"{name}[{shown}]", x, key)
    elif isinstance(x, list | deque):
        for i in range(len(x)):
            yield _element(f"{name}[{i}]", x, i)
    elif isinstance(x, tuple | set):
        for i, each in enumerate(x):
            yield _constant(f"{name}[{i}]", each)
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


def _slot(name: str, get: Callable[[], Any], put: Callable[[Any], object], *missing: type[Exception]) -> Slot:
    """Return a slot that gives `_MISSING` where `get` raises `missing`, and that is left alone with that."""

    def found() -> Any:
        try:
            return get()
        except missing:
            return _MISSING

    return Slot(name, found if missing else get, lambda value: value is _MISSING or put(value))


def _constant(name: str, value: Any) -> Slot:
    return Slot(name, lambda: value, lambda new: None)


def _cell(name: str, cell: CellType) -> Slot:
    return _slot(name, lambda: cell.cell_contents, partial(setattr, cell, "cell_contents"), ValueError)


def _item(name: str, where: dict[Any, Any], key: Any) -> Slot:
    return _slot(name, lambda: where.get(key, _MISSING), partial(where.__setitem__, key))


def _attribute(name: str, cls: type, key: str) -> Slot:
    return _slot(name, lambda: vars(cls).get(key, _MISSING), partial(setattr, cls, key))


def _member(name: str, x: Any, member: MemberDescriptorType) -> Slot:
    return _slot(name, lambda: member.__get__(x), partial(member.__set__, x), AttributeError)


def _element(name: str, where: list[Any] | deque[Any], i: int) -> Slot:
    def put(value: Any) -> None:
        if i < len(where):
            where[i] = value

    return _slot(name, lambda: where[i], put, IndexError)


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that a function, and the functions in it, may look up in its module."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
