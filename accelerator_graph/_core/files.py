"""Replacing a file once the new one is whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def replacing(path: str) -> Iterator[str]:
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
