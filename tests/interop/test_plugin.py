"""A third party's framework, found by its entry point: `tests/plugins/framework`."""

import os
import shutil
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

from processes import execute

TESTS = Path(__file__).resolve().parents[1]
FRAMEWORK = TESTS / "plugins" / "framework"


@pytest.fixture
def installed(tmp_path):
    """A folder that looks as if pip had installed the example there."""
    project = tomllib.loads((FRAMEWORK / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    shutil.copy(FRAMEWORK / "accelerator_graph_lanes.py", tmp_path)
    info = tmp_path / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    [(group, entries)] = project["entry-points"].items()
    lines = [f"[{group}]", *(f"{name} = {target}" for name, target in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return tmp_path


def run(installed, code, **variables):
    paths = os.pathsep.join((str(installed), str(TESTS.parent), str(TESTS)))
    done = execute(
        [sys.executable, "-c", textwrap.dedent(code)], env={**os.environ, "PYTHONPATH": paths, **variables}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


BODY = """
    import sys
    from types import ModuleType
    import accelerator_graph as ag
    from accelerator_graph import interop
    from accelerator_graph.backends import registry
    from accelerator_graph.backends.base import Capability
    from accelerator_graph.backends.cpu import CpuBackend

    assert interop.loaded() == []
    lanes = sys.modules["lanes"] = ModuleType("lanes")
    class Lane:
        def __init__(self, handle):
            self.handle = handle
    lanes.Lane, lanes.started, lanes.arena, lanes.arenas = Lane, False, None, {}
    lanes.lane = Lane(0)
    lanes.current = lambda: lanes.lane
    lanes.choose = lambda lane: setattr(lanes, "lane", lane)

    streams = {}
    backend = registry.get("cpu")
    real = CpuBackend.capabilities
    CpuBackend.capabilities = lambda self, device: {*real(self, device), "handles"}
    CpuBackend.handle_int = lambda self, stream: streams.setdefault(id(stream), stream) and id(stream)
    CpuBackend.as_stream = lambda self, obj: streams.get(obj)
    assert ag.current_stream(required=False) is None
    lanes.started = True
"""


def test_it_takes_part(installed):
    code = (
        BODY
        + """
    s = ag.Stream(backend="cpu")
    g, log = ag.Graph(stream=s), []
    with g:
        assert lanes.current().handle == s.handle != 0
        lanes.arena.append(1)
        s.launch(log.append, 1)
    assert lanes.current().handle == 0 and lanes.arena is None
    assert list(lanes.arenas) == [g.pool()]
    g.replay(); s.synchronize()
    assert log == [1]
    assert ag.Graph(stream=Lane(s.handle)).stream.backend == "cpu"
    lanes.choose(Lane(s.handle))
    assert ag.current_stream().handle == s.handle
    g.reset()
    assert lanes.arenas == {}
    print(*interop.names())
    """
    )
    assert "lanes" in run(installed, code)


def test_without_plugins_it_takes_none(installed):
    code = (
        BODY
        + """
    assert interop.loaded() == []
    """
    )
    run(installed, code, ACCELERATOR_GRAPH_DISABLE_PLUGINS="1")


def test_captures_that_do_not_end_in_order_allocate_from_the_later_one_until_both_have_ended(installed):
    code = (
        BODY
        + """
    first, second = (ag.Graph(stream=ag.Stream(backend="cpu")) for _ in range(2))
    first.capture_begin()
    ag.current_stream().launch(print)
    second.capture_begin()
    ag.current_stream().launch(print)
    own = lanes.arenas[second._capture.lease.id]
    first.capture_end()
    assert lanes.arena is own
    second.capture_end()
    assert lanes.arena is None
    """
    )
    run(installed, code)
