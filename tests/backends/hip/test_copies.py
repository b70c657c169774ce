"""One copy of the runtime in a process: each has streams of its own, which the others don't know."""

import os
import shutil

import pytest

from accelerator_graph.backends._hip.library import mapped_copies
from backends.tools import python

pytest_plugins = ["backends.hip.fixtures"]

START = (
    "import ctypes\n"
    "from accelerator_graph.backends._hip.library import import_hip, mapped_copies\n"
    "from accelerator_graph.backends.hip import HipBackend\n"
    "from backends.hip.bench import opened\n"
    "hip = import_hip()\n"
)
WORK = (
    "backend = opened()\n"
    "stream = backend.create_stream(0)\n"
    "code, made = hip.hipStreamCreateWithFlags(hip.hipStreamNonBlocking)\n"
    "assert code == 0 and int(backend.as_stream(made)) == int(made)\n"
    "assert int(hip.hipStreamSynchronize(stream)[0]) == 0\n"
    "graph = backend.capture_end(backend.capture_begin(made, 'thread_local'))\n"
    "backend.destroy_executable(backend.instantiate(graph))\n"
    "backend.destroy_graph(graph)\n"
)


@pytest.fixture(scope="module")
def own(backend, runtime):
    """The file of the runtime that hip-python finds."""
    (own,) = mapped_copies()
    return own


@pytest.fixture(scope="module")
def copies(own, tmp_path_factory):
    """Two copies of the runtime, such as packages bring with them."""
    made = []
    for name in ("one", "another"):
        made.append(str(tmp_path_factory.mktemp(name) / os.path.basename(own)))
        shutil.copy(own, made[-1])
    yield made
    for copy in made:
        os.remove(copy)


def test_the_one_that_is_loaded_already_is_used(copies):
    code = (
        f"copy = {copies[0]!r}\n{START}"
        "ctypes.CDLL(copy)\n"
        "assert HipBackend.probe().usable, HipBackend.probe().reason\n"
        "assert mapped_copies() == [copy], mapped_copies()\n"
        "assert int(hip.hipRuntimeGetVersion()[0]) == 0\n"
        f"{WORK}"
        "print(*mapped_copies())"
    )
    assert python(code) == copies[0]


def test_the_one_of_hip_python_is_used(own):
    code = (
        f"{START}"
        "assert int(hip.hipRuntimeGetVersion()[0]) == 0\n"
        "before = mapped_copies()\n"
        "assert HipBackend.probe().usable\n"
        f"{WORK}"
        "assert mapped_copies() == before\n"
        "print(*before)"
    )
    assert python(code) == own


def test_hip_python_after_the_probe_uses_the_same(own):
    code = f"{START}assert HipBackend.probe().usable\n{WORK}print(*mapped_copies())"
    assert python(code) == own


TWICE = "print(HipBackend.probe().reason)\ntry: opened()\nexcept RuntimeError as error: print(error)\n"


def reason(*files):
    return (
        f"there are two copies of the HIP runtime in this process, {' and '.join(sorted(files))}. Have all "
        "packages use one: import the one that brings its own before anything else uses hip-python"
    )


def test_another_one_beside_that_of_hip_python_is_refused(own, copies):
    code = f"{START}assert int(hip.hipRuntimeGetVersion()[0]) == 0\nctypes.CDLL({copies[0]!r})\n{TWICE}"
    because = reason(own, copies[0])
    assert python(code) == f"{because}\nbackend 'hip' is not available: {because}."


def test_another_one_after_the_probe_is_refused(own, copies):
    code = f"{START}assert HipBackend.probe().usable\nctypes.CDLL({copies[0]!r})\n{TWICE}"
    assert python(code).startswith(reason(own, copies[0]))


def test_two_others_are_refused(copies):
    code = f"{START}for copy in {copies!r}: ctypes.CDLL(copy)\n{TWICE}print(*mapped_copies())"
    printed = python(code).splitlines()
    assert printed[0] == reason(*copies)
    assert printed[-1].split() == sorted(copies)  # that of hip-python was not loaded beside them


def test_hip_python_that_uses_another_one_than_was_found_is_refused(own, copies):
    """A copy is loaded first, but hip-python has its own open by then: both are there."""
    code = f"{START}ctypes.CDLL({copies[0]!r})\nassert int(hip.hipRuntimeGetVersion()[0]) == 0\n{TWICE}"
    assert python(code).startswith(reason(own, copies[0]))


def test_a_link_to_the_same_file_is_no_copy(own, tmp_path):
    link = tmp_path / "libamdhip64.so"
    link.symlink_to(own)
    code = f"{START}ctypes.CDLL({str(link)!r})\n{WORK}print(*mapped_copies())"
    assert python(code) == own


def test_the_loader_of_hip_python_is_left_as_it_was(copies):
    code = (
        f"{START}"
        "from accelerator_graph.backends._hip.library import _loader\n"
        "loader = _loader(hip)\n"
        "before = getattr(loader, 'get_library_path', None)\n"
        f"ctypes.CDLL({copies[0]!r})\n"
        "assert HipBackend.probe().usable\n"
        "print(getattr(loader, 'get_library_path', None) is before)"
    )
    assert python(code) == "True"
