"""The contract of a framework that takes part in captures: torch, CuPy, Numba, ...

A framework is one class in a package of its own, named by an entry point with the framework's import name::

    [project.entry-points."accelerator_graph.interop"]
    myframework = "myframework_graph:MyFramework"

It is asked only once its framework has been imported by somebody else. All methods but `backend` have
defaults: a framework takes part in as much as it says. Streams are handed over by their handles.

If `backend`, `current_stream` or `as_stream` raises, the framework is left out of what is going on, with a
RuntimeWarning: other frameworks and backends must not suffer. What its other methods raise abandons the
capture.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, ClassVar

from ..backends.base import Recorder

if TYPE_CHECKING:
    from ..backends.base import Backend

INTEROP_API_VERSION = 1
"""Raised when a method becomes abstract or changes its meaning; a new optional method does not."""

PoolId = tuple[int, int]
"""The id of a memory pool, as in torch: ``(0, n)`` or ``(n, 0)``."""

Undo = Callable[[], object]
"""Takes back what was done. Called on the same thread, also after an error, and again after an interrupt."""


class Framework(ABC):
    """Base class. One instance of it is made in a process, once the framework is found imported."""

    api_version: ClassVar[int]
    """The `INTEROP_API_VERSION` that the class was written for: a literal in every framework."""

    always_has_a_stream: ClassVar[bool] = False
    """Its current stream is never the default one, also if nobody has chosen it. It gives way to those of
    other frameworks then."""

    @abstractmethod
    def backend(self) -> str | None:
        """Return the name of the backend that its streams belong to.

        None as long as it has not initialised its device: there is nothing to ask then, and asking
        must not initialise it.
        """

    def as_stream(self, obj: object) -> int | None:
        """Return the handle of a stream object of the framework; None if `obj` is none."""
        return None

    def current_stream(self, device: int | None = None) -> tuple[int, int] | None:
        """Return handle and device of this thread's current stream, on a device or the current one.

        The handle of the default stream is 0. None if the framework has no current stream.
        """
        return None

    def current_handle(self, device: int) -> tuple[Callable[..., int], *tuple[object, ...]] | None:
        """Return the quickest way to ask for the handle of this thread's current stream on a device.

        A callable, and the one argument that it takes, if it takes one. None: `current_stream` is asked.
        """
        return None

    def use_stream(self, handle: int, device: int) -> Undo | None:
        """Make a stream the framework's current one on this thread, and its device; return what undoes that.

        None if the framework has no current stream. Called for every stream that is entered, whoever
        made it: the framework does not own it.
        """
        return None

    def prepare(self, device: int) -> None:
        """Release cached memory ahead of a capture, on a device where no capture is under way."""

    def route(
        self, pool: PoolId, handle: int, device: int, relaxed: Callable[[], AbstractContextManager[object]]
    ) -> Undo | None:
        """Send this thread's allocations to a memory pool from now on; return what ends that.

        Called ahead of every capture into the pool, before it begins. Replays use what the pool has handed
        out, also what Python has freed since: it has to stay allocated until `release`.

        Parameters
        ----------
        pool : PoolId
            Which pool. It belongs to `device`.
        handle, device : int
            The stream that will be captured.
        relaxed : callable
            Returns a context, to be entered once at any time, in which the thread disturbs no capture by
            what is refused in one, such as allocating. To be called while the stream is there.
        """
        return None

    def release(self, pool: PoolId) -> None:
        """Give up what a pool holds: the last graph that was captured into it is reset or gone.

        Called at most once for a pool, by any thread, also if `route` was never reached or raised.
        """

    def recorder(
        self, backend: Backend, pool: PoolId, device: int, generators: Sequence[object]
    ) -> FrameworkRecorder | None:
        """Return what records one capture in the framework's own way; None if nothing does.

        At most one framework records. Its recorder stands in for the backend from the capture's begin to the
        end of the executable.

        Parameters
        ----------
        backend : Backend
            The backend of the captured stream.
        pool : PoolId
            The pool of the capture, which is on `device`.
        device : int
            The ordinal of the device.
        generators : sequence
            The objects that were given to `Graph.register_generator_state`: this framework's
            `takes_generator`, or that of another framework, said yes to them.
        """
        return None

    def takes_generator(self, obj: object) -> bool:
        """Return True if `obj` is a random generator that can take part in the captures that it records."""
        return False

    def observe(self, pool: PoolId, used: Callable[[object], Undo]) -> Undo | None:
        """Call `used` for the arrays that this thread's work uses from now on; return what ends that.

        Called in a capture that has begun, if ``check_input_liveness`` asks for it. Each array once, at its
        first use, but none whose memory the capture or the pool provides: `used` returns what takes an array
        back if that turns out later. None if the framework can't see its arrays being used.
        """
        return None


class FrameworkRecorder(Recorder):
    """A recorder that leaves the recording, and what goes with it, to a framework.

    Graphs and executables are the framework's. What the backend makes of their handles by `borrow_graph` and
    `borrow_executable` is never destroyed by the backend.

    Parameters
    ----------
    backend : Backend
        The backend of the captured stream.
    pool : PoolId
        The pool of the capture.
    """

    __slots__ = ("backend", "pool")

    pool: PoolId
    """The id that the framework knows the pool by. Read after `capture_begin`."""

    def __init__(self, backend: Backend, pool: PoolId) -> None:
        self.name = backend.name
        self.backend = backend
        self.pool = pool
