"""Programs with torch in forks of one process: its import takes seconds of the CPU, a fork milliseconds."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from torch_cpu import server
from torch_cpu.environment import SERVER, environment

SOCKET = "TORCH_CPU_FORKS"
"""The variable with the socket of that process, the server."""


class Fork:
    """A Python of that environment in a fork of the server, with what tests need of `subprocess.Popen`."""

    returncode: int | None = None

    def __init__(
        self,
        command: Sequence[str | Path],
        env: Mapping[str, str],
        cwd: str | Path | None = None,
        stderr: int = subprocess.PIPE,
        **_: Any,
    ) -> None:
        self._held = ExitStack()
        self._server = self._held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        self._outputs = [self._file() for _ in range(2)]
        files = [self._outputs[0].fileno(), self._outputs[stderr != subprocess.STDOUT].fileno()]
        asked = {"arguments": [*map(str, command)][1:], "env": {**env}, "cwd": os.path.abspath(cwd or ".")}
        self._server.connect(env[SOCKET])
        socket.send_fds(self._server, [json.dumps(asked).encode()], files)
        self.pid = int(self._server.recv(server.LONGEST))

    def _file(self) -> IO[str]:
        return self._held.enter_context(tempfile.TemporaryFile("w+", errors="replace"))

    def __enter__(self) -> Fork:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def communicate(self, timeout: float) -> tuple[str, ...]:
        """Return what the program has said when it has ended."""
        self._server.settimeout(timeout)
        try:
            self.returncode = os.waitstatus_to_exitcode(int(self._server.recv(server.LONGEST)))
        except TimeoutError:
            raise subprocess.TimeoutExpired("a fork", timeout) from None
        for file in self._outputs:
            file.seek(0)
        said = tuple(file.read() for file in self._outputs)
        self._held.close()
        return said


def popen() -> Callable[..., Any]:
    """Return what starts a Python with torch: in a fork if this process is in one, else with an import."""
    return Fork if SOCKET in os.environ else subprocess.Popen


@contextmanager
def serving(python: Path, folder: Path) -> Iterator[None]:
    """Have a server for `Fork`, with its socket in a folder; `environment` names it."""
    path = folder / "forks"
    with subprocess.Popen(
        [python, server.__file__, path], env=environment(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as process:
        while not path.exists():
            assert process.poll() is None, "torch can't be imported"
            time.sleep(server.TURN)
        SERVER[SOCKET] = str(path)
        yield
        SERVER.clear()
