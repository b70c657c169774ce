"""What there is to know of a graph: its state, its handles, its drawing. Nothing here changes it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Literal

from .backends.base import Capability
from .errors import GraphStateError, UnsupportedError

if TYPE_CHECKING:
    from ._core.capture import Capture
    from ._core.ownership import Owned
    from ._core.pools import Lease, PoolId
    from ._core.replay import Runner
    from ._core.streams import Stream
    from .backends.base import Backend

State = Literal["empty", "capturing", "captured", "ready"]


class Inspection:
    """The part of `Graph` that answers questions."""

    __slots__ = (
        *("__weakref__", "_backend_name", "_capture", "_captured", "_held", "_launch", "_lease"),
        *("_num_nodes", "_runner", "_state", "_stream"),
    )

    _launch: Callable[[], None] | None
    _state: State
    _stream: Stream | None
    _backend_name: str | None
    _capture: Capture | None
    _captured: Owned | None
    _held: Stream | None
    _runner: Runner | None
    _lease: Lease | None
    _num_nodes: int | None

    def _check(self, what: str) -> None:
        """Raise `GraphStateError` if this may not be asked in the present state."""
        raise NotImplementedError

    def pool(self) -> PoolId:
        """Return the id of the graph's memory pool, for other graphs to share."""
        self._check("pool()")
        assert self._lease is not None
        return self._lease.shown

    def debug_dump(self, path: str | os.PathLike[str], verbose: bool = True) -> None:
        """Write the graph in the DOT language.

        Parameters
        ----------
        path : path-like
            Where to. An existing file is replaced, once the new one is whole.
        verbose : bool
            With the parameters of the nodes, where the backend knows them.

        Raises
        ------
        GraphStateError
            Nothing was captured, or the graph was not kept.
        OSError
            The file can't be written.
        """
        captured = self._kept("debug_dump()")
        path = os.path.realpath(os.fsdecode(path))
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if os.path.exists(path) and not os.path.isfile(path):  # a pipe or a device is written, not replaced
            captured.backend.dump(captured.value, path, verbose)
            return
        with _replacing(path) as unfinished:
            captured.backend.dump(captured.value, unfinished, verbose)

    def raw_graph(self) -> int:
        """Return the vendor's handle of the graph. It stays owned by this object, until `reset`."""
        captured = self._kept("raw_graph()")
        return captured.backend.handle_int(captured.value)

    def raw_executable(self) -> int:
        """Return the vendor's handle of the executable. Valid until `reset` or `instantiate`."""
        self._check("raw_executable()")
        runner = self._runner
        assert runner is not None
        assert runner.executable is not None
        return runner.executable.backend.handle_int(runner.executable.value)

    def raw_cuda_graph(self) -> int:
        """As `raw_graph`, on backends whose graphs are a ``cudaGraph_t`` or ``hipGraph_t``."""
        _check_cuda_like(self._kept("raw_cuda_graph()").backend)
        return self.raw_graph()

    def raw_cuda_graph_exec(self) -> int:
        """As `raw_executable`, on backends where that is a ``cudaGraphExec_t`` or ``hipGraphExec_t``."""
        self._check("raw_cuda_graph_exec()")
        assert self._stream is not None
        _check_cuda_like(self._stream._backend)
        return self.raw_executable()

    def _kept(self, what: str) -> Owned:
        self._check(what)
        if self._captured is None:
            raise GraphStateError(
                f"Graph.{what}: the graph was not kept; make it with keep_graph=True, or call "
                "enable_debug_mode() before the capture."
            )
        return self._captured

    @property
    def state(self) -> State:
        """``"empty"``, ``"capturing"``, ``"captured"`` (no executable yet) or ``"ready"``."""
        return self._state

    @property
    def backend(self) -> str | None:
        """Name of the backend; None until it is known."""
        return self._backend_name if self._stream is None else self._stream.backend

    @property
    def device(self) -> int | None:
        """Ordinal of the device; None until it is known."""
        return None if self._stream is None else self._stream.device

    @property
    def stream(self) -> Stream | None:
        """The stream that is being captured; else the one that replays go to. None until it is known.

        If that was closed after the capture, another hold on it, to wait for replays with.
        """
        if self._capture is not None:
            return self._capture.stream
        if self._held is not None and self._stream is not None and self._stream._closed:
            return self._held.held()
        return self._stream

    @property
    def num_nodes(self) -> int:
        """How many nodes were captured."""
        self._check("num_nodes")
        if self._num_nodes is None and self._captured is not None:
            self._num_nodes = self._captured.backend.node_count(self._captured.value)
        if self._num_nodes is None:
            assert self._stream is not None
            raise self._stream._backend.unsupported(Capability.NODES)
        return self._num_nodes


def _check_cuda_like(backend: Backend) -> None:
    if not backend.cuda_like:
        raise UnsupportedError(
            f"backend {backend.name!r} has no handles like CUDA's; raw_graph() and raw_executable() return "
            "its own, if it has any."
        )


@contextmanager
def _replacing(path: str) -> Iterator[str]:
    """Yield the path of a new, empty file in the same folder, which takes the place of `path` at the end.

    Nobody can guess its name, so it is nobody else's file, or link to one. It goes if something raises.

    Raises
    ------
    OSError
        The file can't be made; with `path` in the message.
    """
    unfinished = ""
    try:
        while not unfinished:
            name = os.path.join(os.path.dirname(path), f"{os.urandom(16).hex()}.tmp")
            try:
                os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
                unfinished = name
            except FileExistsError:
                continue
            except OSError as error:
                raise OSError(error.errno, error.strerror, path) from None
        yield unfinished
        try:
            os.replace(unfinished, path)
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from None
        unfinished = ""
    finally:
        if unfinished:
            with suppress(FileNotFoundError):
                os.unlink(unfinished)
