"""The contract of a framework that takes part in captures: torch, CuPy, Numba, ...

A framework is one class in a package of its own, named by an entry point with the framework's import name::

    [project.entry-points."accelerator_graph.interop"]
    myframework = "myframework_graph:MyFramework"

It is asked only once its framework has been imported by somebody else. All methods but `backend` have
defaults: a framework takes part in as much as it says. Streams are handed over by their handles.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from ..backends.base import Backend
    from ..pools import PoolId

INTEROP_API_VERSION = 1
"""Raised when a method becomes abstract or changes its meaning; a new optional method does not."""

Undo = Callable[[], object]
"""Takes back what was done. Called once, on the same thread, also after an error; does not raise."""


class Framework(ABC):
    """Base class. One instance of it is made in a process, once the framework is found imported."""

    api_version: ClassVar[int]
    """The `INTEROP_API_VERSION` that the class was written for: a literal in every framework."""

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

    def use_stream(self, handle: int, device: int) -> Undo | None:
        """Make a stream the framework's current one on this thread, and its device; return what undoes that.

        None if the framework has no current stream. Called for every stream that is entered, whoever
        made it: the framework does not own it.
        """
        return None

    def prepare(self, device: int) -> None:
        """Release cached memory ahead of a capture, on a device where no capture is under way."""

    def route(self, pool: PoolId, handle: int, device: int) -> Undo | None:
        """Send this thread's allocations to a memory pool from now on; return what ends that.

        What the pool holds has to live as long as the framework is told by `release`.
        """
        return None

    def recorder(self, backend: Backend) -> Recorder | None:
        """Return what records a capture on this backend in the framework's own way; None if nothing does.

        It stands in for the backend in the life of one graph. At most one framework records.
        """
        return None

    def clear_error(self) -> None:
        """Have the framework's runtime forget this thread's last error."""


class Recorder:
    """A backend that leaves the recording, and what goes with it, to a framework.

    All that a subclass does not define is the backend's own. The graph and the executable that it
    returns are the framework's: what the backend makes of their handles by `borrow_graph` and
    `borrow_executable` is never destroyed by it.
    """

    pool: PoolId | None = None
    """The pool of the capture. Set before `capture_begin`."""

    generators: Sequence[object] = ()
    """What was given to `Graph.register_generator_state`. Set before `capture_begin`."""

    executable_needs_graph = True

    def __init__(self, backend: Backend) -> None:
        self.base = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self.base, name)
