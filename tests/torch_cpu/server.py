"""A process that has imported torch and forks for each program that is wanted: python server.py SOCKET

It ends with its input. `torch_cpu.forks` starts it and asks it.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import socket
import sys
import types
from collections.abc import Sequence
from typing import Any

IMPORTED = ("numpy", "pytest", "torch", "torch._dynamo", "torch.distributed")
LONGEST = 1 << 17
"""What is asked for takes fewer bytes."""
TURN = 0.05
"""How many seconds may pass before it is seen that a program has ended."""


def serve(path: str) -> None:
    """Fork whenever a program is wanted, and report how each has ended; in the fork, run the program."""
    for name in IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    running: dict[int, socket.socket] = {}
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.bind(f"{path}.unfinished")
    server.listen()
    os.rename(f"{path}.unfinished", path)
    while sys.stdin not in (ready := select.select((server, sys.stdin), (), (), TURN)[0]):
        if ready:
            client, _ = server.accept()
            asked, files, *_ = socket.recv_fds(client, LONGEST, 2)
            if not (pid := os.fork()):
                for connection in (server, client, *running.values()):
                    connection.close()
                become(files, **json.loads(asked))
                break
            for file in files:
                os.close(file)
            running[pid] = client
            client.send(str(pid).encode())
        for pid, status in ended(running):
            with running.pop(pid) as client:
                client.send(str(status).encode())


def ended(running: dict[int, socket.socket]) -> list[tuple[int, int]]:
    """Return the programs that have ended, with the status of each."""
    looks = [os.waitpid(pid, os.WNOHANG) for pid in running]
    return [(pid, status) for pid, status in looks if pid]


def become(files: Sequence[int], arguments: Sequence[str], env: dict[str, str], cwd: str) -> None:
    """Run a program as ``python *arguments`` does, with these files for its output and errors."""
    for number, file in enumerate(files, 1):
        os.dup2(file, number)
        os.close(file)
    os.chdir(cwd)
    ours = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ.clear()
    os.environ.update(env)
    what, *rest = arguments
    own = cwd if what in ("-m", "-c") else os.path.dirname(what)
    theirs = env.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = filter(None, (own, *theirs, *(path for path in sys.path[1:] if path not in ours)))
    sys.argv[:] = arguments[what in ("-m", "-c") :]
    if what == "-m":
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif what == "-c":
        main: Any = types.ModuleType("__main__")
        sys.argv[0], sys.modules["__main__"] = what, main
        exec(compile(rest[0], "<string>", "exec"), vars(main))
    else:
        runpy.run_path(what, run_name="__main__")


if __name__ == "__main__":
    serve(*sys.argv[1:])
