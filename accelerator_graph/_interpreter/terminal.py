"""Writing to a terminal, a file or a pipe."""

from __future__ import annotations

import io
import os
import shutil
import sys
import textwrap
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue

PATIENCE = 2.0
"""For so many seconds nothing is said of work that is in progress."""


def rows(table: Sequence[Sequence[str]], indent: str = "") -> list[str]:
    """Return the lines of a table. Its last column is wrapped at the width of the terminal."""
    if not table:
        return []
    widths = [max(map(len, column)) for column in zip(*table, strict=True)][:-1]
    lines = []
    for *cells, last in table:
        head = indent + "".join(f"{cell:{width}}  " for cell, width in zip(cells, widths, strict=True))
        lines += wrapped(last, head)
    return lines


def wrapped(text: str, head: str = "") -> list[str]:
    """Return the lines of a text that begins with `head`, wrapped under the beginning of the text.

    The text begins on a line of its own if `head` leaves less than half of the terminal's width.
    """
    width = shutil.get_terminal_size().columns if is_terminal(sys.stdout) else sys.maxsize
    if len(head) > width // 2:
        indent = len(head) - len(head.lstrip())
        return [head.rstrip(), *wrapped(text, " " * min(indent + 4, width // 2))]
    return textwrap.wrap(
        text,
        width,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [head.rstrip()]


@contextmanager
def progress(work: str, about: float = 0.0) -> Iterator[None]:
    """Show on a terminal what the ``with`` block does, and for how long, once that is too long to wait for.

    Parameters
    ----------
    work : str
        What it does.
    about : float
        How many seconds it is expected to take, if that is known.
    """
    if not is_terminal(sys.stderr):
        yield
        return
    done: SimpleQueue[bool] = SimpleQueue()
    thread = threading.Thread(target=_show, args=(work, about, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.put(True)
        thread.join()


def _show(work: str, about: float, done: SimpleQueue[bool]) -> None:
    begun, shown = time.monotonic(), ""
    expected = f" of about {about:.0f}" if about >= PATIENCE else ""
    ended = False
    while not ended:
        with suppress(Empty):
            ended = done.get(timeout=1.0 if shown else PATIENCE)
            break
        line = f"{work}, {time.monotonic() - begun:.0f}{expected} s"
        sys.stderr.write(f"\r{line:{len(shown)}}")
        sys.stderr.flush()
        shown = line
    if shown:
        sys.stderr.write(f"\r{'':{len(shown)}}\r")
        sys.stderr.flush()


def is_terminal(file: object) -> bool:
    """Return True if a file is a terminal. It is None if the process was started without one."""
    return file is not None and bool(getattr(file, "isatty", bool)())


def check_file(path: str) -> None:
    """Raise OSError if a file can't be written there, so that nobody waits in vain for its contents."""
    if os.path.isdir(path):
        raise IsADirectoryError(f"{path} is a folder; name a file.")
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"{path} can't be written, because the folder {folder} does not exist.")
    if not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise PermissionError(f"{path} can't be written; name a file that you may write.")


def allow_all_characters() -> None:
    """Have the output escape the characters that its encoding lacks."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def flush() -> None:
    """Write what is buffered; OSError if that is impossible."""
    if sys.stdout is not None:
        sys.stdout.flush()


def give_up_output() -> None:
    """Drop the output that can't be written, so that the interpreter does not try again when it exits."""
    try:
        flush()
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
