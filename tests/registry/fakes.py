"""Made-up backends, registries and distributions for the tests of the registry."""

import sys
import textwrap
import threading

import pytest

from accelerator_graph.backends import registry
from accelerator_graph.backends.base import BACKEND_API_VERSIONS, Availability, Backend

LIMIT = 120  # seconds: what takes longer hangs


def _nothing(self, *args, **how):
    return None


class Fake(Backend):
    """A complete backend that notes what is asked of it."""

    api_version = BACKEND_API_VERSIONS[-1]
    recording = "stream"
    device_count = 2
    usable = True
    reason = ""
    open_error = None

    for _name in Backend.__abstractmethods__:
        locals()[_name] = _nothing

    @classmethod
    def probe(cls):
        cls.log.append("probe")
        return Availability(cls.usable, cls.reason, {"fake": "1"}, 2)

    def open(self):
        self.log.append(f"open {self.name}")
        if self.open_error is not None:
            raise self.open_error

    def as_stream(self, obj):
        self.log.append("as_stream")
        return obj if getattr(obj, "mine", True) else None


def fake(**attributes):
    return type("Fake", (Fake,), {"__module__": __name__, "log": [], **attributes})


def built_in(**backends):
    """Make a registry with these built-in classes, reachable as attributes of this module."""
    for name, backend in backends.items():
        setattr(sys.modules[__name__], f"built_in_{name}", backend)
    return registry.Registry({name: f"{__name__}:built_in_{name}" for name in backends})


@pytest.fixture(name="no_environment")
def no_environment_fixture(monkeypatch):
    monkeypatch.delenv("ACCELERATOR_GRAPH_BACKEND", raising=False)
    monkeypatch.delenv("ACCELERATOR_GRAPH_DISABLE_PLUGINS", raising=False)


@pytest.fixture(name="site")
def site_fixture(tmp_path, monkeypatch):
    """A folder on sys.path in which distributions and modules can be written down."""

    class Site:
        def module(self, name, source):
            (tmp_path / f"{name}.py").write_text(textwrap.dedent(source))

        def backend(self, name):
            source = f"from registry import fakes\nPlugin = fakes.fake(usable={name != 'unusable'})\n"
            self.module(name, source)

        def distribution(self, name, version, group="accelerator_graph.backends", **entry_points):
            info = tmp_path / f"{name}-{version}.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            lines = [f"{key} = {value}" for key, value in entry_points.items()]
            (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines, ""]))

    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield Site()
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


def in_threads(*functions):
    """Run the functions at the same time and return what they return or raise."""
    results = [None] * len(functions)

    def run(index):
        try:
            results[index] = functions[index]()
        except Exception as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    return results
