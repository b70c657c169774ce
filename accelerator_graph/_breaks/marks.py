"""Marks of what a capture with breaks does not record: `eager`, `graph_break` and `live`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from enum import Enum
from functools import wraps
from numbers import Number
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from .._interpreter import runs_later

if TYPE_CHECKING:
    from .recording import Recording

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


_VALUES = (Number, str, bytes, tuple, frozenset, Enum, type(None))
"""Types whose objects Python may share."""


class _Thread(threading.local):
    recording: Recording | None = None
    calls = 0


thread = _Thread()
"""`thread.recording`: the capture with breaks that this thread has begun, outside of its eager calls.
`thread.calls`: how many eager calls the captures of this thread have made."""


@overload
def eager(function: Callable[P, R], /) -> Callable[P, R]: ...


@overload
def eager(
    *, valid_rows: Callable[..., int] | None = None, streams: Iterable[object] = ()
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def eager(
    function: Any = None, /, *, valid_rows: Callable[..., int] | None = None, streams: Iterable[object] = ()
) -> Any:
    """Mark a function whose calls a capture with breaks does not record: every replay calls it anew.

    In a capture that was begun with ``graph(g, breaks=True)`` a call ends the segment that is being
    recorded. The segment runs, the function is called on the captured stream, and what follows is recorded
    into the next segment. Everywhere else the function is as it was: outside a capture, in a capture without
    breaks, and in an eager call.

    In a replay the function gets the arguments of the capture: the same arrays, which hold what the
    segments before have just written, and the same Python values. The graph keeps them alive. What must
    come from the replay itself is `live`. The arrays that it returns are copied into those that it returned
    in the capture.

    Parameters
    ----------
    function : callable
        The function; no generator and no coroutine, whose bodies run after the call.
    valid_rows : callable, optional
        Takes the arguments of a call and returns how many rows of its results are valid. A replay sets the
        others, the later ones along the first dimension, to zero.
    streams : iterable of stream
        Other streams on which the function leaves work: the next segment waits for it, in every replay.

    Returns
    -------
    callable
        The function with the mark, or what marks one.

    Raises
    ------
    TypeError
        The function can't be called, or its body runs after the call.
    """
    if function is None:
        return lambda given: _marked(given, valid_rows, tuple(streams))
    return _marked(function, valid_rows, tuple(streams))


def _marked(
    function: Callable[P, R], valid_rows: Callable[..., int] | None, streams: tuple[object, ...]
) -> Callable[P, R]:
    if not callable(function) or isinstance(function, staticmethod):
        raise TypeError(
            f"eager: the argument must be a function, not {function!r}; write @eager below @staticmethod and "
            "@classmethod."
        )
    if runs_later(function):
        raise TypeError(
            f"eager can't mark {function!r}, whose body runs after the call; mark a function "
            "that calls it to the end."
        )

    @wraps(function)
    def marked(*args: P.args, **kwargs: P.kwargs) -> R:
        recording = thread.recording
        if recording is None or not recording.is_innermost():
            return function(*args, **kwargs)
        found: R = recording.call(function, args, kwargs, valid_rows, streams)
        return found

    return marked


_example: Any = eager(len)
EAGER: CodeType = _example.__code__
"""The code in whose frames marked functions run."""


# ---- marks for the time of one capture -----------------------------------------------------------


def checked_breaks(breaks: object) -> tuple[object, ...] | None:
    """Return the functions, modules and operators that `graph` was given for `breaks`; None for False.

    Raises
    ------
    TypeError
        It is something else.
    """
    if isinstance(breaks, bool):
        return () if breaks else None
    if not isinstance(breaks, Iterable) or isinstance(breaks, str):
        raise TypeError(
            "graph: breaks must be True, False, or functions, methods, modules and operators, not "
            f"{breaks!r}."
        )
    named = tuple(breaks)
    if not named:
        raise TypeError("graph: breaks names nothing; pass True for what is marked, or False for no breaks.")
    for each in named:
        operator = isinstance(each, str) and "::" in each
        function = isinstance(each, FunctionType) or hasattr(each, "forward")
        if not (operator or function) or runs_later(each):
            raise TypeError(
                f"graph: breaks can't name {each!r}; name functions, methods as in Class.method, modules of "
                "torch, and its operators as in 'aten::nonzero', or mark what calls it with "
                "accelerator_graph.eager."
            )
    return named


def mark_until(stack: ExitStack, named: Iterable[Any]) -> None:
    """Mark functions, methods and modules, wherever they are found by name, until the stack is closed.

    Raises
    ------
    ValueError
        A function is found in no module and in no class.
    """
    for each in named:
        places = places_of(each)
        if not places:
            raise ValueError(
                f"graph: {each!r} is found by its name in no module and no class, so nobody sees its calls; "
                "mark it with accelerator_graph.eager."
            )
        for owner, name in places:
            marked = eager(getattr(owner, name))
            static = isinstance(vars(owner).get(name), staticmethod)
            _put(stack, owner, name, staticmethod(marked) if static else marked)


def places_of(named: Any) -> list[tuple[Any, str]]:
    """Return the objects that have a function as an attribute, and its name there."""
    if not isinstance(named, FunctionType):
        return [(named, "forward")]
    scope: Any = sys.modules.get(named.__module__)
    *outer, name = named.__qualname__.split(".")
    for each in outer:
        scope = getattr(scope, each, None)
    if outer:
        found = vars(scope).get(name) if isinstance(scope, type) else None
        plain = found.__func__ if isinstance(found, staticmethod) else found
        return [(scope, name)] if plain is named else []
    modules = [each for each in list(sys.modules.values()) if isinstance(each, ModuleType)]
    return [
        (module, key) for module in modules for key, value in list(vars(module).items()) if value is named
    ]


def _put(stack: ExitStack, owner: Any, name: str, value: Any) -> None:
    if name in vars(owner):
        stack.callback(setattr, owner, name, vars(owner)[name])
    else:
        stack.callback(delattr, owner, name)
    setattr(owner, name, value)


# ---- marks inside a capture ----------------------------------------------------------------------


def graph_break() -> None:
    """End the segment that a capture with breaks is recording, and begin the next. Elsewhere, do nothing."""
    recording = thread.recording
    if recording is not None and recording.is_innermost():
        recording.end_segment("graph_break()")
        recording.begin_segment()


def live(name: str, obj: T) -> T:
    """Name an argument of eager calls that every replay gives anew, and return it.

    ``graph.replay(live={name: new})`` passes the new object where the capture passed this one, alone or in
    lists, tuples, dicts and dataclasses. Outside of a capture with breaks the object is only returned.

    Parameters
    ----------
    name : str
        The name.
    obj : object
        The object of the capture. No segment may have used it, if it is an array. It is found by its
        identity, so that it can be neither a number nor a text nor a tuple: put those into a list.

    Raises
    ------
    TypeError, ValueError
        The name is not a string, or stands for another object already; or the object is one that can't be
        told from its equals.
    """
    if not isinstance(name, str):
        raise TypeError(f"live: the name must be a str, not {name!r}.")
    if isinstance(obj, _VALUES):
        raise TypeError(
            f"live: {obj!r} can't be told from others of its value; name an object that holds it, such as a "
            "list."
        )
    recording = thread.recording
    if recording is not None:
        recording.name(name, obj)
    return obj
