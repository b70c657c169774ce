"""Replays without a line of Python. Optional: built where there is a C compiler; see `_core/_fast.c`."""

from collections.abc import Callable
from types import TracebackType
from typing import Any, final, overload

@final
class Lock:
    """A recursive lock, as `threading.RLock`, that a `Launch` takes without waiting."""

    def __enter__(self) -> None: ...
    def __exit__(
        self,
        kind: type[BaseException] | None = ...,
        error: BaseException | None = ...,
        traceback: TracebackType | None = ...,
        /,
    ) -> None: ...

@final
class Launch:
    """An executable on a stream, and the function that launches it. Never changed.

    Parameters
    ----------
    function : int
        Address of an ``int function(void *executable, void *stream)``, called without the GIL.
    executable, stream : int
        What it is called with.
    owner : object
        As long as this lives, the executable does.
    failed : callable
        Takes a code that is not 0, and raises.
    lock : Lock, optional
        Held during the call. If it is not free, the launcher takes its ordinary way.
    latest : int, optional
        Address of a ``void *`` that lives as long as the owner and is written with the lock held. While that
        is another stream, the launcher takes its ordinary way.
    current, context : int, optional
        Address of an ``int current(void **context)``, and what it has to answer: if it answers something
        else, the launcher takes its ordinary way. For streams that are those of the current context.
    capturing : int, optional
        Address of an ``int capturing(void *stream, int *status)``, asked before every call: unless it returns
        0 and the status is 0, the launcher takes its ordinary way.
    """

    def __init__(
        self,
        function: int,
        executable: int,
        stream: int,
        owner: object,
        failed: Callable[[int], object],
        lock: Lock | None = None,
        latest: int = 0,
        current: int = 0,
        context: int = 0,
        capturing: int = 0,
    ) -> None: ...

@final
class Launcher:
    """Launches its target, or calls `ordinary` while there is none, or while `captures` holds anything.

    A call holds its target until it is through, whatever becomes of the launcher meanwhile.
    """

    target: Launch | None
    """Replaced as a whole, by any thread."""

    def __init__(self, captures: dict[Any, Any], ordinary: Callable[[], Any]) -> None: ...
    def __call__(self) -> None: ...

@final
class Follower:
    """Calls ``launchers[current()]``, the launcher of the current stream, else ``missing(handle)``."""

    @overload
    def __init__(
        self,
        launchers: dict[int, Callable[[], None]],
        missing: Callable[[int], Callable[[], None]],
        current: Callable[[], int],
    ) -> None: ...
    @overload
    def __init__(
        self,
        launchers: dict[int, Callable[[], None]],
        missing: Callable[[int], Callable[[], None]],
        current: Callable[[Any], int],
        argument: object,
    ) -> None: ...
    def __call__(self) -> None: ...

@final
class Method:
    """A method that calls the object in a slot of its instance.

    Parameters
    ----------
    slot : object
        The descriptor of the slot, which ``__slots__`` has made.
    function : callable
        What is called instead where the slot holds None, or if there are arguments.
    """

    def __init__(self, slot: object, function: Callable[..., Any]) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
