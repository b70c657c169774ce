"""The commands in a terminal: its width, progress, Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from command_line.calls import ROOT

fcntl = pytest.importorskip("fcntl", reason="this system has no pseudo-terminals")
termios = pytest.importorskip("termios", reason="this system has no pseudo-terminals")

LONG_DEMO = ("demo", "cpu", "--size", "256", "--steps", "400000")


def in_terminal(
    *arguments: str, columns: int = 80, until: Callable[[str], bool] = lambda shown: False
) -> tuple[int, str]:
    """Run a command in a terminal, with Ctrl-C once `until` holds; return its status and what it shows."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    variables = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [sys.executable, "-m", "accelerator_graph", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**variables, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored in a shell's background
    )
    os.close(theirs)
    shown, pressed, end = "", False, time.monotonic() + 120
    try:
        with contextlib.suppress(OSError):  # the terminal of a process that has ended can't be read
            while part := os.read(ours, 65536):
                shown += part.decode()
                assert time.monotonic() < end, shown
                if not pressed and until(shown):
                    os.killpg(process.pid, signal.SIGINT)  # as the terminal does
                    pressed = True
        return process.wait(120), shown.replace("\r\n", "\n")
    finally:
        os.close(ours)
        process.kill()
        process.wait()


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_info_fits_into_the_terminal(columns: int) -> None:
    status, shown = in_terminal("info", columns=columns)
    assert status == 0
    lines = shown.splitlines()
    too_long = [line for line in lines if len(line) > columns and len(line.split()) > 1]
    assert too_long == []
    if columns == 60:
        assert max(map(len, lines)) > 50
    assert ("  takes part" in shown) == (
        "  takes part once your program has imported it" in shown
    ) or columns < 80


def test_every_line_of_the_table_is_whole_in_a_terminal_as_in_a_pipe() -> None:
    words = [in_terminal("info", columns=columns)[1].split() for columns in (40, 200)]
    assert words[0] == words[1]


def test_demo_shows_progress_and_ends_quietly_on_ctrl_c() -> None:
    status, shown = in_terminal(*LONG_DEMO, until=lambda shown: "solving eagerly, " in shown)
    assert status == 130
    assert "Traceback" not in shown
    assert re.search(r"\rsolving eagerly, \d+ of about \d+ s", shown)
    assert shown.rpartition("\r")[2].strip() == ""  # the line of progress is gone


def test_conformance_ends_quietly_on_ctrl_c() -> None:
    status, shown = in_terminal("conformance", "cpu", until=lambda shown: shown.count("passed") > 5)
    assert status == 130
    assert "Traceback" not in shown


def test_short_demo_shows_no_progress() -> None:
    status, shown = in_terminal("demo", "cpu", "--size", "8", "--steps", "20")
    assert status == 0
    assert "\r" not in shown
    assert shown.startswith("backend   cpu, ")
