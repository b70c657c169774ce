"""What is said where SYCL is missing or finds no device, and what happens at the end of a process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from accelerator_graph_sycl import SyclBackend


def run(program: str, **variables: str) -> str:
    """Run a program in a process of its own and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_probing_loads_nothing() -> None:
    loaded = run(
        "import sys, accelerator_graph as ag; "
        "assert 'sycl' in [each.name for each in ag.backends.report() if each.usable]; "
        "print([name for name in ('dpctl', 'numpy') if name in sys.modules])"
    )
    assert loaded.strip() == "[]"


def test_without_dpctl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accelerator_graph_sycl._backend.find_spec", lambda name: None)
    assert SyclBackend.probe().reason == "dpctl is not installed. Install it with: pip install dpctl"


def test_without_the_shim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accelerator_graph_sycl._library.find_spec", lambda name: None)
    assert "was not compiled" in SyclBackend.probe().reason


def test_without_a_device() -> None:
    said = run(
        "import accelerator_graph as ag\n"
        "try: ag.Stream(backend='sycl')\n"
        "except ag.BackendUnavailableError as error: print(error)",
        OCL_ICD_FILENAMES="",
        OCL_ICD_VENDORS="/nowhere",
    )
    assert said.startswith("backend 'sycl' is not available: SYCL finds no device that supports graphs. ")


def test_it_is_never_chosen_automatically() -> None:
    said = run(
        "import accelerator_graph as ag\n"
        "ag.Stream(backend='sycl')\n"
        "found = {each.name: each.only_named for each in ag.backends.report()}\n"
        "print(ag.Stream().backend, found['sycl'])"
    )
    assert said.split() == ["cpu", "True"]


@pytest.mark.parametrize("when", ["idle", "running", "capturing"])
def test_the_interpreter_exits_with_everything_alive(when: str) -> None:
    """Runs are waited for: the memory that they use is freed at the exit."""
    said = run(
        "import atexit, accelerator_graph as ag\n"
        "atexit.register(lambda: print(work.read(cell)))\n"  # called last
        "from accelerator_graph_sycl.conformance import SyclWork\n"
        "work = SyclWork(); stream = ag.Stream(backend='sycl'); cell = work.new()\n"
        "with ag.Graph(stream=stream, keep_graph=True) as graph: work.enqueue_slow(stream, cell, 1, 1)\n"
        "graph.replay(); event = stream.record(); launch = graph.bind(); loop = [graph]; loop.append(loop)\n"
        f"when = {when!r}\n"
        "if when == 'running':\n"
        "    for _ in range(100): launch()\n"
        "else: stream.synchronize()\n"
        "if when == 'capturing':\n"
        "    other = ag.Graph(stream=stream); other.capture_begin(); work.enqueue(stream, cell, 1, 1)\n"
    )
    assert said.split() == ["101" if when == "running" else "1"]


def test_a_forked_child_destroys_nothing_of_its_parent() -> None:
    said = run(
        "import gc, os, sys, warnings, accelerator_graph as ag\n"
        "from accelerator_graph_sycl.conformance import SyclWork\n"
        "warnings.simplefilter('ignore', DeprecationWarning)\n"
        "work = SyclWork(); stream = ag.Stream(backend='sycl'); cell = work.new()\n"
        "with ag.Graph(stream=stream, keep_graph=True) as graph: work.enqueue(stream, cell, 1, 1)\n"
        "graph.replay(); backend = ag.backends.get('sycl')\n"
        "events = [backend.record_event(stream.native)]\n"
        "stream.synchronize()\n"
        "from accelerator_graph_sycl._library import Handle\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    Handle.close = lambda self: os.write(1, b'destroyed ')\n"
        "    events.clear(); graph = None; gc.collect()\n"
        "    os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "graph.replay(); stream.synchronize(); print(work.read(cell))\n"
    )
    assert said.split() == ["2"]
