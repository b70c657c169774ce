"""Replays without a line of Python, and events of captures. Optional: see `_core/fast`."""

from array import array
from collections.abc import Callable
from types import CodeType, FrameType, TracebackType
from typing import Any, final, overload

version: int
"""`extension.VERSION` of the library that it was built from."""

@final
class Lock:
    """A recursive lock, as `threading.RLock`, that a `Launch` takes or shares without waiting.

    Who enters it waits for the launches that share it, and for no new ones.
    """

    owner: Any
    """The owner whose launches may take the lock: those of others take their ordinary way."""

    def __enter__(self) -> None: ...
    def __exit__(
        self,
        kind: type[BaseException] | None = ...,
        error: BaseException | None = ...,
        traceback: TracebackType | None = ...,
        /,
    ) -> None: ...
    def _is_owned(self) -> bool: ...
    def _at_fork_reinit(self) -> None: ...

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
    lock : Lock
        Held during the call. If it is not free, or its `owner` is another one, the launcher takes its
        ordinary way.
    latest : int, optional
        Address of a ``void *`` that lives as long as the owner and is written with the lock held. While that
        is another stream, the launcher takes its ordinary way.
    current, context : int, optional
        Address of an ``int current(void **context)``, and what it has to answer: if it answers something
        else, the launcher takes its ordinary way. For streams that are those of the current context.
    capturing : int, optional
        Address of an ``int capturing(void *stream, int *status)``, asked before every call: unless it returns
        0 and the status is 0, the launcher takes its ordinary way.
    shared : bool, optional
        Launches may share the lock, so that only who enters it keeps them off.
    """

    @property
    def owner(self) -> object: ...
    def __init__(
        self,
        function: int,
        executable: int,
        stream: int,
        owner: object,
        failed: Callable[[int], object],
        lock: Lock,
        latest: int = 0,
        current: int = 0,
        context: int = 0,
        capturing: int = 0,
        shared: bool = False,
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
        *,
        exchange: tuple[type, int, int] | tuple[()] = ...,
    ) -> None: ...
    @overload
    def __init__(
        self,
        launchers: dict[int, Callable[[], None]],
        missing: Callable[[int], Callable[[], None]],
        current: Callable[[Any], int],
        argument: object,
        exchange: tuple[type, int, int] | tuple[()] = ...,
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

@final
class Patches:
    """The nodes of an executable that have addresses of arrays, and what changes them. At most 64 arrays.

    Parameters
    ----------
    owner : object
        As long as this lives, the parameters of the nodes do.
    executable : int
        Only its launches use this.
    now : buffer
        Of each array the address that the executable has, in words of 8 bytes, which are written; 0 if that
        is not known.
    sizes, captured : buffer
        Of each array the size, and the address that was captured.
    alignment : int
        The difference of an address and the captured one must be a multiple of this number.
    own : buffer
        Pairs of addresses: memory where no array may be.
    nodes : tuple
        Of each node the address of an ``int set(void *executable, void *node, void *parameters)``, which is
        called without the GIL, the second and the third argument, a fourth one or 0, and a tuple of tuples:
        where an address is in memory, the number of the array, and how far from its beginning.
    current, context : int, optional
        As of `Launch`.
    """

    def __init__(
        self,
        owner: object,
        executable: int,
        now: array[int],
        sizes: array[int],
        captured: array[int],
        alignment: int,
        own: array[int],
        nodes: tuple[tuple[object, ...], ...],
        current: int = 0,
        context: int = 0,
    ) -> None: ...
    def move(self, addresses: array[int], /) -> bool:
        """Have later runs use arrays at these addresses, wherever that is.

        Return False if the driver refuses: nothing has changed then, or some present addresses are 0.
        """
    def move_apart(self, addresses: array[int], /) -> bool:
        """As `move`; also False if an array shares memory with another one or with `own`."""

@final
class Guard:
    """Finds out whether a call is like another one, and repeats the latest one.

    Arrays are alike if DLPack's functions in C report the same of them, apart from the address, and they
    require grad as the other ones did. A call that gives one array twice is like none.

    Parameters
    ----------
    captures : dict
        As long as it holds anything, no call is like the other one.
    lock : Lock
        Held for a repeated call. If it is not free, none is repeated. Hold it to call `follow` and `stop`.
    positional, named : int
        How many arguments a call gives by position, and by name.
    parameters : tuple
        For each argument: its position or name; 0, 1 or 2; and an array, or a value that has to be the same
        object, or a weak reference to that. For an array also a callable, or None: if it does not return
        False for an array, no call with that is repeated.
    modes : tuple
        Questions, each a callable, its argument if it takes one, and the answer that has to come.
    """

    def __init__(
        self,
        captures: dict[Any, Any],
        lock: Lock,
        positional: int,
        named: int,
        parameters: tuple[tuple[object, ...], ...],
        modes: tuple[tuple[Any, ...], ...],
    ) -> None: ...
    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any], /) -> tuple[Any] | list[Any] | None:
        """Return the result in a tuple if the call was repeated, else a list if it is alike, or None.

        The list has the arrays, and at its end what stands for the stream, or None if that is not ready.
        """

    def follow(
        self,
        place: tuple[object, tuple[tuple[Any, ...], ...], int, int, int],
        how: tuple[object, ...],
        addresses: array[int] | None,
        arrays: list[Any] | None,
        /,
    ) -> None:
        """Repeat calls, unless there are no addresses: those of the arrays of the latest call.

        The place has what stands for the stream; questions about it, as those of the modes; its handle, and
        the addresses, or 0, of two ``int function(void *stream, int *status)`` that have to return 0, the
        first with the status 0.

        How calls are repeated: a Launcher; the result in a tuple, or None and a callable that takes the list
        of arrays and returns the result, with the lock held; Patches, or None if only calls with all arrays
        at these addresses are repeated; and None, or what is given to `record_stream` of each array but
        `arrays`. If there are such, and no Patches, a call has to give these very arrays.
        """

    def stop(self) -> int:
        """Repeat no call until `follow`. Return how often that was done since the last `stop`."""

@final
class Watch:
    """Answers the interpreter's events while a capture goes on, which has begun on the calling thread.

    Whatever else there is to do, at any event, the functions in Python do. They are called with what the
    methods were called with.

    Parameters
    ----------
    ask : callable
        Returns whether the capture goes on. Called for each event if `status` is 0.
    status, alive : int
        Addresses of an ``int function(void *stream, int *status)``. `alive` is called first and has to
        return 0; it may be 0. Then `status` has to return 0, too, with the status `active`.
    stream, active : int
        The handle of the captured stream, and its status while it captures.
    last : dict
        By thread: a tuple of the code, the line or the instruction's offset, and whether it is a line, of the
        latest event at which the capture still went on.
    kinds : dict
        By the name of a file: 0 if all its code is watched, 1 if none of its lines are, 2 if its calls are
        not either, 3 if the lines of its functions are. Missing ones are added.
    kind_of : callable
        Takes the name of a file and returns that.
    waits, waits_in_c : frozenset
        Names of functions in Python and in C that may let a stream wait: Python sees their returns.
    pure : tuple
        Functions in C whose returns need no answer.
    after_call : callable or None
        Called with the function and its first argument after each call into C of the thread that captures.
    disable : object
        Returned for lines and returns that are not watched.
    functions : tuple
        From Python 3.12 on, what handles a line, a return, a return from C and an exception. Before, one
        function that handles all events of a trace or a profile function.
    """

    alone: bool
    """False: Python sees all events. Before Python 3.12 only."""

    def __init__(
        self,
        ask: Callable[[], bool],
        status: int,
        alive: int,
        stream: int,
        active: int,
        last: dict[int, Any],
        kinds: dict[str, int],
        kind_of: Callable[[str], int],
        waits: frozenset[str],
        waits_in_c: frozenset[str],
        pure: tuple[object, ...],
        after_call: Callable[[Any, Any], object] | None,
        disable: object,
        functions: tuple[Callable[..., Any], ...],
    ) -> None: ...
    def close(self) -> None:
        """Ask the driver no more: from now on, Python sees all events."""

    # from Python 3.12 on
    def line(self, code: CodeType, line: int, /) -> Any: ...
    def python_returns(self, code: CodeType, offset: int, value: object, /) -> Any: ...
    def c_returns(self, code: CodeType, offset: int, function: object, first: object, /) -> Any: ...
    def raises(self, code: CodeType, offset: int, error: BaseException, /) -> Any: ...

    # before
    def trace_lines(self) -> None:
        """Become the trace function of this thread."""

    def trace_calls(self) -> None:
        """Become the profile function of this thread."""

    def __call__(self, frame: FrameType, event: str, arg: Any, /) -> Any: ...

@final
class Ask:
    """Asks a driver for a number of an object.

    Parameters
    ----------
    function : int
        Address of an ``int function(void *handle, void *answer)``, or of one without the handle. The answer
        has at most 8 bytes, and is 0 where the function does not write.
    failed : callable
        Takes a code that is not 0, and raises.
    waits : bool
        The function may take long with a handle: other threads run meanwhile.
    """

    def __init__(self, function: int, failed: Callable[[int], object], waits: bool = False) -> None: ...
    def __call__(self, handle: Any = ..., /) -> int:
        """Return the answer for a handle, or an object that `int` makes one."""

@final
class CaptureInfo:
    """Asks CUDA for the number of a capture, and how many nodes it has recorded.

    Parameters
    ----------
    info, nodes : int
        Addresses of ``cuStreamGetCaptureInfo`` and ``cuGraphGetNodes``.
    edges : bool
        The former is the function that reports edges, too.
    failed : callable
        Takes which of the two it was, 0 or 1, and a code that is not 0, and raises.
    """

    def __init__(self, info: int, nodes: int, edges: bool, failed: Callable[[int, int], object]) -> None: ...
    def __call__(self, stream: Any, /) -> tuple[int, int] | None:
        """Return the two; None if the stream is not capturing, or the capture is broken."""

@final
class Relaxing:
    """Makes a `Relaxed` for a context.

    Parameters
    ----------
    current : int
        Address of an ``int current(void **context)``.
    set_current : int
        Address of an ``int set_current(void *context)``.
    exchange : int
        Address of an ``int exchange(int *mode)``, which sets the thread's capture mode and reports the
        former.
    mode : int
        The relaxed mode.
    failed : callable
        Takes the number of one of these functions, from 0, and its code that is not 0, and raises.
    """

    def __init__(
        self, current: int, set_current: int, exchange: int, mode: int, failed: Callable[[int, int], object]
    ) -> None: ...
    def __call__(self, context: Any, /) -> Relaxed: ...

@final
class Relaxed:
    """A context is current, and calls of this thread disturb no capture. Afterwards both are as before."""

    def __enter__(self) -> None: ...
    def __exit__(self, *exc: object) -> None: ...
    def run(self, work: Callable[..., Any], *args: Any, **how: Any) -> Any:
        """Return what the work returns, done inside."""

def call_each(
    objects: bytes, questions: tuple[tuple[int, bytes, int], ...], other: int = 0, /
) -> tuple[int, int, bytes]:
    """Do what `backends._cuda.raw_calls.call_each` does."""

def numbers_of(objects: bytes, wanted: bytes, /) -> bytes:
    """Do what `backends._cuda.raw_calls.numbers_of` does."""

def distinct(objects: bytes, /) -> bytes:
    """Do what `backends._cuda.raw_calls.distinct` does."""
