"""The registry among threads, in forked processes, and what importing it costs."""

import json
import os
import textwrap
import threading
from pathlib import Path

import pytest

from accelerator_graph.errors import BackendUnavailableError
from processes import python
from registry import fakes as registry_fakes
from registry.fakes import LIMIT, built_in, fake, in_threads, no_environment_fixture, site_fixture  # noqa: F401

pytestmark = pytest.mark.usefixtures("no_environment")
ROOT = Path(__file__).resolve().parents[2]


# ---- threads ---------------------------------------------------------------------------------------


def test_threads_that_ask_at_once_get_one_instance_opened_once():
    both_inside = threading.Barrier(2)

    class Slow(fake()):
        def open(self):
            super().open()
            with pytest.raises(threading.BrokenBarrierError):
                both_inside.wait(0.3)

    backends = built_in(cpu=Slow)
    one, two = in_threads(lambda: backends.get("cpu"), lambda: backends.get("cpu"))
    assert isinstance(one, Slow)
    assert one is two
    assert Slow.log == ["probe", "open cpu"]


def test_who_waits_for_an_open_that_fails_tries_again():
    opening = threading.Event()

    class Once(fake()):
        def open(self):
            super().open()
            if not opening.is_set():
                opening.set()
                raise RuntimeError("the first time")

    backends = built_in(cpu=Once)

    def second():
        assert opening.wait(LIMIT)
        return backends.get("cpu")

    one, two = in_threads(lambda: backends.get("cpu"), second)
    assert isinstance(one, BackendUnavailableError)
    assert isinstance(two, Once)


def test_two_backends_that_ask_for_each_other_in_two_threads_are_an_error_and_no_deadlock():
    inside = {"cpu": threading.Event(), "cuda": threading.Event()}

    def asking_for(other):
        def open(self):
            inside[self.name].set()
            assert inside[other].wait(LIMIT)
            backends.get(other)

        return fake(open=open)

    backends = built_in(cpu=asking_for("cuda"), cuda=asking_for("cpu"))
    found = in_threads(lambda: backends.get("cpu"), lambda: backends.get("cuda"))
    assert [type(error) for error in found] == [BackendUnavailableError] * 2
    assert all("its open() asks for the backend that it opens" in str(error) for error in found)


def test_no_lock_is_held_across_import_probe_and_open(site, monkeypatch):
    def busy():
        """Use every table from another thread, in time."""
        backends.names()
        backends.register("during", fake(), replace=True)
        assert backends.get("during").name == "during"
        backends.unregister("during")
        backends.refresh()
        assert backends.usable("cpu")
        assert backends.resolve("cpu").name == "cpu"

    def check(*_):
        assert in_threads(busy) == [None]

    class Checking(fake()):
        @classmethod
        def probe(cls):
            check()
            return super().probe()

        def open(self):
            check()

    monkeypatch.setattr(registry_fakes, "check", check, raising=False)
    monkeypatch.setattr(registry_fakes, "Checking", Checking, raising=False)
    site.module("plug", "from registry import fakes\nfakes.check()\nPlugin = fakes.Checking\n")
    backends = built_in(cpu=fake())
    backends.register("slow", "plug:Plugin")
    assert type(backends.get("slow")) is Checking


# ---- processes -------------------------------------------------------------------------------------


PREAMBLE = """
import json, os, signal, sys, threading
before = set(sys.modules)
from accelerator_graph.backends import registry
from accelerator_graph.backends.base import BACKEND_API_VERSIONS, Availability, Backend
from accelerator_graph.errors import BackendUnavailableError

class Cpu(Backend):
    api_version = BACKEND_API_VERSIONS[-1]
    recording = "stream"
    for name in Backend.__abstractmethods__:
        locals()[name] = lambda self, *args, **how: None

    @classmethod
    def probe(cls):
        return Availability(True)

    def open(self):
        self.pid = os.getpid()

class Sturdy(Cpu):
    survives_fork = True

class Cuda(Cpu):
    pass

def attempt(function):
    try:
        return function().name
    except BackendUnavailableError as error:
        return str(error)

def in_child(function):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(100)  # a child that hangs is ended, and fails
        os.write(writer, json.dumps(function()).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    assert os.waitpid(child, 0)[1] == 0, "the child failed"
    return json.loads(text)

backends = registry.Registry({"cpu": "__main__:Sturdy", "cuda": "__main__:Cuda", "hip": "__main__:Cpu"})
"""


def run_python(source):
    """Run a script after the preamble in a fresh interpreter; return what it prints as JSON."""
    code = PREAMBLE + textwrap.dedent(source)
    return json.loads(python(code, "-W", "ignore::DeprecationWarning", timeout=LIMIT))


def test_cold_modules_are_loaded_only_when_they_are_needed():
    after_import, by_name = run_python(
        """
        COLD = {"importlib.metadata", "difflib", "dataclasses", "typing_extensions", "inspect"}

        def loaded():
            return sorted(COLD & (set(sys.modules) - before))

        after_import = loaded()
        assert backends.get("cpu") is backends.resolve("cpu")
        assert backends.resolve().name == "cuda"
        assert backends.usable("cpu") and backends.usable()
        with backends.use_backend("cpu"):
            backends.claim(5)
        print(json.dumps([after_import, loaded()]))
        """
    )
    assert after_import == []
    assert by_name == []


def test_the_package_loads_the_registry_when_it_is_asked():
    assert run_python(
        """
        for name in [name for name in sys.modules if name.startswith("accelerator_graph")]:
            del sys.modules[name]
        import accelerator_graph.backends as package
        late = [name for name in sys.modules if name.startswith("accelerator_graph.backends.")]
        assert set(package.__all__) <= set(dir(package))
        functions = [getattr(package, name) for name in package.__all__]
        from accelerator_graph.backends import registry
        same = functions == [getattr(registry, name) for name in package.__all__]
        print(json.dumps([late, same, hasattr(package, "nonsense")]))
        """
    ) == [[], True, False]


REFUSED = (
    "backend 'cuda' is not available: it was opened before this process was forked, and its driver "
    "does not survive a fork; start the process with the spawn or forkserver method."
)
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")


@needs_fork
def test_what_was_opened_before_a_fork_is_refused_in_the_child():
    child, parent = run_python(
        """
        assert backends.resolve().name == "cuda"
        child = in_child(lambda: [
            attempt(lambda: backends.get("cuda")),
            attempt(lambda: backends.resolve("cuda")),
            backends.usable("cuda"),
            attempt(lambda: backends.resolve()),
            in_child(lambda: attempt(lambda: backends.get("cuda"))),
        ])
        print(json.dumps([child, attempt(lambda: backends.get("cuda"))]))
        """
    )
    assert child == [REFUSED, REFUSED, False, REFUSED, REFUSED]
    assert parent == "cuda"


@needs_fork
def test_what_was_only_probed_or_survives_works_in_the_child():
    assert run_python(
        """
        assert backends.usable("cuda") and backends.usable()
        cpu = backends.get("cpu")
        print(json.dumps(in_child(lambda: [
            attempt(lambda: backends.get("cuda")),
            backends.get("cpu") is not cpu,
            backends.get("cpu").pid == os.getpid(),
        ])))
        """
    ) == ["cuda", True, True]


@needs_fork
def test_a_fork_during_an_open_leaves_no_lock_and_no_half_opened_backend():
    assert run_python(
        """
        inside, held, go_on = threading.Event(), threading.Event(), threading.Event()

        def open(self):
            inside.set()
            go_on.wait(120)

        def hold():
            with backends._choice()._lock, backends._instances._lock, backends._catalogue._lock:
                held.set()
                go_on.wait(120)

        Cuda.open = open
        threads = [threading.Thread(target=lambda: backends.get("cuda")), threading.Thread(target=hold)]
        threads[0].start()
        assert inside.wait(120)
        threads[1].start()
        assert held.wait(120)

        def child():
            backends.register("mine", Sturdy)
            return [attempt(lambda: backends.get(name)) for name in ("mine", "cuda")]

        answer = in_child(child)
        go_on.set()
        for thread in threads:
            thread.join(120)
        print(json.dumps(answer))
        """
    ) == ["mine", REFUSED]
