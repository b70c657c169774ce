"""Writing a file as a whole, or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress


def write_file(path: str | os.PathLike[str], write: Callable[[str], object]) -> None:
    """Have `write` make a file, which replaces an existing one once it is whole.

    Parameters
    ----------
    path : path-like
        The file. A pipe or a device is written, not replaced.
    write : callable
        Takes the path to write to.

    Raises
    ------
    OSError
        The file can't be made; with `path` in the message.
    """
    path = os.path.realpath(os.fsdecode(path))
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if os.path.exists(path) and not os.path.isfile(path):
        write(path)
        return
    unfinished = ""
    try:
        while not unfinished:  # nobody can guess the name, so it is nobody else's file, or link to one
            name = os.path.join(os.path.dirname(path), f"{os.urandom(16).hex()}.tmp")
            try:
                os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
                unfinished = name
            except FileExistsError:
                continue
            except OSError as error:
                raise OSError(error.errno, error.strerror, path) from None
        write(unfinished)
        try:
            os.replace(unfinished, path)
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from None
        unfinished = ""
    finally:
        if unfinished:
            with suppress(FileNotFoundError):
                os.unlink(unfinished)
