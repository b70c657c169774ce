"""The contract of a framework that takes part in captures: torch, CuPy, Numba, ...

A framework is one class in a package of its own, named by an entry point with the framework's import name::

    [project.entry-points."accelerator_graph.interop"]
    myframework = "myframework_graph:MyFramework"

The library makes an instance only after the program has imported the framework. All methods but `backend`
have defaults: implement those for which the framework has something to do. Streams are passed as handles.

If `backend`, `current_stream`, `as_stream`, `pool_contents`, `blocks` or `history` raises, the framework is
left out with a RuntimeWarning, and other frameworks and backends go on working. An exception of any other
method abandons the capture.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cache
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar

from .._interpreter import imported_on_use
from ..backends.base import Backend, Recorder

if TYPE_CHECKING:
    from .records import BlockHistory as BlockHistory
    from .records import Collective as Collective
    from .records import FrameworkReport as FrameworkReport
    from .records import MemoryBlock as MemoryBlock
    from .records import PoolContents as PoolContents
    from .records import PoolSegment as PoolSegment
else:  # most captures need none of these
    __getattr__ = imported_on_use(
        __name__,
        {
            f"{__package__}.records": "BlockHistory Collective FrameworkReport MemoryBlock PoolContents "
            "PoolSegment"
        },
    )

INTEROP_API_VERSIONS = (1,)
"""The versions of this contract that the library supports, in ascending order, as `BACKEND_API_VERSIONS`."""

PoolId = tuple[int, int]
"""The id of a memory pool, as in torch: ``(0, n)`` or ``(n, 0)``."""


Undo = Callable[[], object]
"""Undoes a call. Called on the same thread, even after an error, and again if an interrupt cut it short."""


class ModeState(ABC):
    """The modes of a framework, such as torch's autocast, as they were on one thread at one moment.

    Two that are equal are the same modes.
    """

    __slots__ = ()

    @abstractmethod
    def are_on(self) -> bool:
        """Return True if the modes of this thread are these."""

    @abstractmethod
    def entered(self) -> AbstractContextManager[object]:
        """Return a context in which they are."""


InPlaceOf = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any], tuple[str, int]], Any]
"""Takes an operator, its arguments by position and by name, and the file and the line of the call. Returns
the result."""


class Framework(ABC):
    """Base class. A process has one instance, made when the library finds that the framework is imported."""

    api_version: ClassVar[int]
    """The version of this contract that the class was written for: a literal in every framework."""

    always_has_a_stream: ClassVar[bool] = False
    """Its current stream is never the default stream, even if nobody has chosen it. The current streams of
    other frameworks then take precedence."""

    current_handle: Callable[[int], int] | None = None
    """The fastest function that returns the handle of this thread's current stream on a device; a method will
    do. With None, `current_stream` is called. Read after `backend` has returned a name, as is `exchange`."""

    exchange: tuple[type, int] | None = None
    """A type whose arrays have DLPack's functions in C, one of which returns this thread's current stream,
    and DLPack's number for the kind of device. If this is None, or the type has no such function, the
    library calls `current_handle`."""

    @abstractmethod
    def backend(self) -> str | None:
        """Return the name of the backend that its streams belong to.

        None until it has initialised its device. This method must not initialise it. It is not called again
        in the process once it has returned a name.
        """

    def as_stream(self, obj: object) -> int | None:
        """Return the handle of a stream object of the framework; None if `obj` is not one."""
        return None

    def current_stream(self, device: int | None = None) -> tuple[int, int] | None:
        """Return handle and device of this thread's current stream, on the given or the current device.

        The handle of the default stream is 0. None if the framework has no current stream.
        """
        return None

    def keeps_stream(self, handle: int, device: int) -> bool:
        """Return True if this stream, which is current on this thread, is never destroyed.

        Calls of a graphed function are then ordered by the stream itself; otherwise by an event behind each.
        """
        return False

    def use_stream(self, handle: int, device: int) -> Undo | None:
        """Make a stream and its device the framework's current ones on this thread; return the undo.

        None if the framework has no current stream. Called for every stream that is entered. The framework
        does not own the stream.
        """
        return None

    def modes(self) -> ModeState | None:
        """Return the modes of this thread that change what functions do, as they are now; None without any.

        Called once the framework is imported, before it has initialised its device as well.
        """
        return None

    def replace(self, operators: Sequence[str], call: InPlaceOf) -> tuple[Undo, Undo] | None:
        """Return what begins and what ends to have `call` made in the place of these operators on a thread.

        None if the framework has no operators; ValueError for a name that it does not have. Both may be
        called again, and inside such a call. Calls that an operator makes itself are not replaced.
        """
        return None

    def prepare(self, device: int) -> None:
        """Release cached memory before a capture, on a device where no capture is in progress."""

    def clear_results(self) -> None:
        """Drop results that it keeps for later calls, as torch's autocast keeps casts of weights.

        Called when a capture begins and when it ends, and for each body of a loop or a branch in it. A graph
        must not read what was computed outside of it, nor work behind a body what only that body computes.
        """

    def route(
        self, pool: PoolId, handle: int, device: int, relaxed: Callable[[], AbstractContextManager[object]]
    ) -> Undo | None:
        """Send this thread's allocations to a memory pool from now on; return the undo.

        Called before every capture into the pool. Replays use all memory that the pool has given out, even
        if Python has freed it since, so the memory must stay allocated until `release`.

        Parameters
        ----------
        pool : PoolId
            The pool's id. The pool belongs to `device`.
        handle, device : int
            The stream that will be captured.
        relaxed : callable
            Returns a context in which the thread can make calls that a capture does not permit, such as
            allocating. Call it while the stream exists; enter the context once, at any time.
        """
        return None

    def release(self, pool: PoolId) -> None:
        """Free the memory of a pool: the last graph that was captured into it is reset or gone.

        Called once for a pool, by any thread, even if `route` was never called or raised; again only if an
        interrupt cut it short.
        """

    def pool_contents(self, pool: PoolId, device: int) -> PoolContents | None:
        """Return what a pool holds on a device at this moment, which may be nothing; None if not known.

        Called by any thread, even during captures, which it must not disturb. The default knows that a
        framework which neither routes allocations nor records has put nothing into a pool.
        """
        from .records import PoolContents

        kind = type(self)
        idle = kind.route is Framework.route and kind.recorder is Framework.recorder
        return PoolContents() if idle else None

    def blocks(self) -> Sequence[MemoryBlock] | None:
        """Return all blocks of memory that the allocator has, of every device and pool; None if not known.

        For `Graph.check`, on any thread, even during captures, which it must not disturb.
        """
        return None

    def history(self, address: int) -> BlockHistory | None:
        """Return where the memory at an address was allocated and freed last; None if not known.

        Asked only about addresses that `Graph.check` has found to be wrong.
        """
        return None

    def recorder(
        self, backend: Backend, pool: PoolId, device: int, generators: Sequence[object]
    ) -> FrameworkRecorder | None:
        """Return an object that records one capture in the framework's own way; None if the backend records.

        At most one framework can record. Its recorder takes the backend's place from the begin of the capture
        to the end of the executable.

        Parameters
        ----------
        backend : Backend
            The backend of the captured stream.
        pool : PoolId
            The pool of the capture, which is on `device`.
        device : int
            The ordinal of the device.
        generators : sequence
            The objects that were given to `Graph.register_generator_state`. `takes_generator` of this or of
            another framework has returned True for each.
        """
        return None

    def takes_generator(self, obj: object) -> bool:
        """Return True if `obj` is a random generator that can take part in a capture that it records."""
        return False

    def observe(self, pool: PoolId, used: Callable[[object], Undo]) -> Undo | None:
        """Call `used` for each array that this thread's work uses from now on; return the undo.

        The library calls this during a capture if an observer of the graph wants to know the arrays. Report
        each array once, at its first use, and leave out arrays whose memory comes from the capture or the
        pool; if that turns out later, call the undo that `used` returned. Return None if the framework can't
        see which arrays are used.
        """
        return None

    def refuses(self, error: Exception) -> bool:
        """Return True if an exception of the framework says that a call can't be made during a capture.

        Asked about what the body of a capture has raised if the driver has not invalidated the capture: the
        exception then becomes the cause of a `CaptureError`. In doubt False, so that it passes unchanged.
        """
        return False

    def observe_collectives(self, note: Callable[[Collective], object]) -> Undo | None:
        """Call `note` for each collective that this thread's captured work asks for; return the undo.

        Called before every capture. None if the framework has no collectives, or they are not set up.
        """
        return None


class Inspectable(Framework):
    """A framework that `verify` and `diagnose` can see into: what they ask of it, and captures do not."""

    def random_state(self, device: int, generators: Sequence[object]) -> Undo | None:
        """Return what sets random numbers back to where they are now; it may be called many times.

        These are the numbers that this thread's work draws by default on a device, and those of the given
        generators, for which `takes_generator` has returned True. None if the framework draws none, or its
        generators can't be set.
        """
        return None

    def fill_new(self, which: int, settle: Callable[[], object]) -> Undo | None:
        """Fill arrays that this thread makes without contents from now on; return the undo.

        `which` is 0 or 1: one of two patterns, harmless as numbers and as indices, that differ in every
        element. It shows which elements nobody writes. Call `settle` after each fill: it waits for the
        framework's current stream, since another stream may write to the array at once. None if the
        framework can't do that.
        """
        return None

    def clear_free(self, device: int) -> None:
        """Set memory to zero that the framework keeps for later and that no array has, as far as it can.

        Work that still reads such memory gives other results then. Called outside of captures.
        """

    def operations(self, seen: Callable[[str, int, int], bool]) -> Undo | None:
        """Call `seen` for each operation that this thread enqueues from now on; return the undo.

        Called during a capture that is diagnosed. `seen` takes the operation's name, and the handle and the
        device of the stream that its work goes to. It returns True for the captured stream, whose operations
        need not be reported again. None if the framework can't see its operations.
        """
        return None

    def enqueues(self, function: object, first: object) -> bool:
        """Return True if a call into C enqueues work on the framework's current stream.

        Called during a capture that is diagnosed, after each call of any function, with its first argument,
        if the framework has no `operations`. In doubt False: True lets the library warn of work on another
        stream.
        """
        return False

    def waiting(self, beside: Callable[[str], AbstractContextManager[None]]) -> Undo | None:
        """Run each operation of this thread that waits for the device in a context; return the undo.

        Called during a capture of which every call that breaks it is to be found, or ahead of an eager run.
        `beside` takes the operation's name, and returns a context in which this thread does not capture, and
        the work before is under way. In an eager run it may be entered after the operation. None if the
        framework can't see which operations wait.
        """
        return None


_STREAMS = ("backend", "as_stream", "current_stream")
_HOOKS = [
    name
    for name, member in vars(Framework).items()
    if isinstance(member, FunctionType) and name not in _STREAMS
]


@cache
def has_hooks(kind: type[Framework]) -> bool:
    """Return True if a framework's class has methods of its own that are not only about streams.

    cuda.core and Numba have none: a capture beside them costs what it costs alone.
    """
    own = any(getattr(kind, hook) is not getattr(Framework, hook) for hook in _HOOKS)
    return own or issubclass(kind, Inspectable)


class FrameworkRecorder(Recorder):
    """Base class of recorders that let a framework record.

    The framework owns graphs and executables. What `capture_end` and `instantiate` return has an attribute
    `native`: the backend's own object, made by `Lends.borrow`, which the
    backend never destroys. The library asks for it at each use, and passes it to the backend to count, list
    and measure what was recorded. A graph has one executable at a time: the library destroys the first one
    before it asks for a second.

    Parameters
    ----------
    backend : Backend
        The backend of the captured stream.
    pool : PoolId
        The pool of the capture.
    """

    __slots__ = ("backend", "counted", "pool")

    pool: PoolId
    """The id that the framework knows the pool by. Read after `capture_begin`."""
    counted: int | None
    """How many nodes were recorded, if that is known. The library sets it ahead of `capture_end`."""

    def __init__(self, backend: Backend, pool: PoolId) -> None:
        self.name: str = backend.name
        self.backend: Backend = backend
        self.pool = pool
        self.counted = None

    def another(self) -> FrameworkRecorder:
        """Return a recorder for one more capture into the pool, beside what this one has captured.

        By default this one, which has to be able to begin again then.
        """
        return self

    def records_bodies(self) -> bool:
        """Return True if work of a body that the device repeats can be recorded, as `body` has it."""
        return False

    def body(self, pool: PoolId, what: str) -> AbstractContextManager[object]:
        """Return a context in which this thread's work is recorded into a body that the device repeats.

        The backend captures the body, on a stream that is the framework's current one. The framework
        allocates from the pool meanwhile, which `Framework.release` ends, and refuses with `CaptureError`
        what would not be right in a second run, such as random numbers. Contexts are nested as bodies are.
        If a body raises, `capture_abandon` is called while those of the bodies around it are still open.
        The pool is a new one; `what` is the loop or the branch, for messages.
        """
        raise NotImplementedError

    def lends(self, made: Any) -> bool:
        """Return True if the backend alone can run the work of a graph or an executable.

        The library then launches the native executable itself, changes it in place, and may instantiate the
        graph as well. False if replays have to go through the framework, or that is not known yet: asked
        again at the next launch.
        """
        return False
