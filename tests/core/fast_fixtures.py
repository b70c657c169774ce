"""The fixtures of the tests of the fast path."""

import ctypes

import pytest

from core.fast_bench import LAUNCHES, TIMEOUT, compiled, extension, load


@pytest.fixture(scope="module")
def fast():
    return load(extension())


@pytest.fixture(scope="module")
def vendor():
    library = ctypes.CDLL(str(compiled("launches", LAUNCHES, ".so", f"-DSECONDS={TIMEOUT}")))
    library.make.restype = ctypes.c_void_p
    library.calls.restype = library.launched_dead.restype = ctypes.c_long
    library.stream.restype = ctypes.c_size_t
    for name in ("reached", "open_one", "calls", "most", "stream"):
        getattr(library, name).argtypes = [ctypes.c_void_p]
    library.destroy.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.launch.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    library.address = ctypes.cast(library.launch, ctypes.c_void_p).value
    return library
