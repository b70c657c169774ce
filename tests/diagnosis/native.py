"""A thread that runs no Python code, and calls a function in C after a while."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simulators.compiling import compiler

SOURCE = """
#include <pthread.h>
#include <unistd.h>
static int (*function)(void *);
static void *argument;
volatile int over;
static void *run(void *pause)
{
    usleep((unsigned long)pause);
    function(argument);
    over = 1;
    return NULL;
}
int begin(int (*called)(void *), void *given, unsigned long pause)
{
    pthread_t thread;
    function = called;
    argument = given;
    return pthread_create(&thread, NULL, run, (void *)pause) || pthread_detach(thread);
}
"""


def starter(folder: Path) -> tuple[Callable[[Any, int, int], int], ctypes.c_int]:
    """Return a function that starts such a thread, and a number that is 1 once the thread has made its call.

    The function takes the function to call, the one argument for it, and microseconds to wait before.
    """
    source, library = folder / "native.c", folder / "libnative.so"
    source.write_text(SOURCE)
    cc = compiler()
    assert cc is not None
    subprocess.run([cc, "-shared", "-fPIC", "-pthread", str(source), "-o", str(library)], check=True)
    loaded = ctypes.CDLL(str(library))
    begin = loaded.begin
    begin.argtypes = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_ulong

    def start(function: Any, argument: int, microseconds: int) -> int:
        return int(begin(ctypes.cast(function, ctypes.c_void_p), argument, microseconds))

    return start, ctypes.c_int.in_dll(loaded, "over")
