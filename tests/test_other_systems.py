"""Windows and macOS: a process that lacks what these systems lack uses the library and its commands.

It can't show everything about them: the interpreter and its standard library are those of this system.
"""

import os
import textwrap

import pytest

from processes import python

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

LACKS = {
    "win32": {
        "os": """
            fork forkpty register_at_fork posix_spawn posix_spawnp wait wait3 wait4 waitid WIFEXITED WNOHANG
            RTLD_DEEPBIND RTLD_GLOBAL RTLD_LAZY RTLD_LOCAL RTLD_NODELETE RTLD_NOLOAD RTLD_NOW
            sched_getaffinity sched_setaffinity sched_yield getuid geteuid getgid getegid getgroups getpgid
            getsid setsid killpg uname getloadavg sysconf confstr pathconf mkfifo mknod chown chroot
            fchmod fchown fdatasync pread pwrite sendfile openpty ttyname nice getpriority memfd_create
        """,
        "signal": """
            SIGALRM SIGHUP SIGKILL SIGUSR1 SIGUSR2 SIGQUIT alarm setitimer getitimer pthread_kill
            pthread_sigmask sigwait pause siginterrupt
        """,
        "time": "clock_gettime clock_getres pthread_getcpuclockid tzset CLOCK_MONOTONIC CLOCK_REALTIME",
        "modules": "fcntl resource pwd grp termios tty pty syslog _posixshmem",
        "folders": "/proc /dev /sys /etc /opt/rocm",
    },
    "darwin": {
        "os": """
            RTLD_DEEPBIND sched_getaffinity sched_setaffinity memfd_create getrandom eventfd pidfd_open
            posix_fadvise copy_file_range
        """,
        "signal": "SIGRTMIN SIGRTMAX sigtimedwait sigwaitinfo",
        "time": "CLOCK_BOOTTIME pthread_getcpuclockid",
        "modules": "spwd ossaudiodev",
        "folders": "/proc /sys /opt/rocm",
    },
}

PRELUDE = """
import argparse, ctypes, importlib.metadata, json, os, pathlib, platform, signal, subprocess
import sys, tempfile, threading, time, traceback
def without(lacks):
    def name_of(path):
        return os.fsdecode(path) if isinstance(path, (str, bytes, os.PathLike)) else ""
    folders = tuple(lacks["folders"].split())
    def refuse(event, arguments):
        if event in ("open", "os.listdir", "os.scandir") and name_of(arguments[0]).startswith(folders):
            raise FileNotFoundError(2, "this system has no such folder", arguments[0])
    for module in (os, signal, time):
        for name in lacks[module.__name__].split():
            vars(module).pop(name, None)
    for name in lacks["modules"].split():
        sys.modules[name] = None
    sys.addaudithook(refuse)
"""

USE = """
import accelerator_graph as ag
log = []
stream, side = ag.Stream(backend="cpu"), ag.Stream(backend="cpu")
graph = ag.Graph(keep_graph=True, stream=stream)
with graph:
    side.wait(stream)
    stream.launch(log.append, 1)
    side.launch(log.append, 1)
    stream.wait(side)
launch = graph.bind()
for _ in range(3):
    launch()
graph.replay()
stream.synchronize()
assert log == [1] * 8 and stream.query()
with tempfile.TemporaryDirectory() as folder:
    graph.debug_dump(os.path.join(folder, "graph.dot"))
    assert os.listdir(folder) == ["graph.dot"]
failing = ag.Stream(backend="cpu")
failing.launch(int, "x")
try:
    failing.synchronize()
except ag.errors.DriverError as error:
    assert "enqueued at <string>" in str(error)
assert not ag.is_graph_available()
assert ag.Stream().backend == "cpu"
assert {row.name: row.usable for row in ag.backends.report()} == {"cpu": True, "cuda": False, "hip": False}
print("used")
"""


def run(system, code):
    prelude = f"{PRELUDE}\nwithout({LACKS[system]!r})\nsys.platform = {system!r}\n"
    hidden = {"CUDA_VISIBLE_DEVICES": "-1", "HIP_VISIBLE_DEVICES": "-1"}
    return python(prelude + textwrap.dedent(code), **hidden)


@pytest.mark.parametrize("system", LACKS)
def test_the_cpu_backend_and_the_registry_work(system):
    assert run(system, USE) == "used\n"


@pytest.mark.parametrize("command", ["info", "demo cpu --size 16 --steps 20"])
@pytest.mark.parametrize("system", LACKS)
def test_the_commands_work(system, command, tmp_path):
    words = command.split() + (["--output", str(tmp_path / "demo.dot")] if "demo" in command else [])
    code = f"import accelerator_graph.__main__ as command; sys.exit(command.main({words!r}))"
    said = run(system, code)
    if command == "info":
        assert "cpu" in said
        assert "A bare Stream() takes backend 'cpu', because no accelerator can be used." in said
    else:
        assert "identical, bit for bit" in said
        assert (tmp_path / "demo.dot").read_text().startswith("digraph")


@pytest.mark.parametrize("system", LACKS)
def test_a_missing_driver_is_said_to_be_missing(system):
    """The loader's words for it differ from system to system."""
    code = """
    def load(name, *args, **how):
        raise OSError(f"the loader of {sys.platform} has not found {name}")
    ctypes.CDLL = load
    from accelerator_graph.backends._cuda import probe
    print(probe._driver_missing({}))
    """
    library = {"win32": "nvcuda.dll", "darwin": "libcuda.so.1"}[system]
    assert run(system, code) == f"no driver library ({library}) was found. Install NVIDIA's driver\n"
