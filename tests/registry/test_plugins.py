"""Plug-ins as users meet them: distributions built and installed by pip, seen from a fresh interpreter."""

import json
import os
import shutil
import sysconfig
import textwrap
import venv
from importlib.metadata import distributions
from pathlib import Path

import pytest

import accelerator_graph
from processes import execute

LIMIT = 120  # seconds: what takes longer hangs
TESTS = Path(__file__).resolve().parents[1]


def run(*command, **how):
    done = execute(list(command), timeout=LIMIT, **how)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def environment(tmp_path_factory):
    """A virtual environment with every plug-in of `tests/plugins`, and a function that runs scripts in it.

    It sees this interpreter's packages, so that pip needs no network.
    """
    installed = {found.name: found.version for found in distributions()}
    needed = {"pip", "setuptools"}
    if "setuptools" in installed and int(installed["setuptools"].split(".")[0]) < 71:
        needed.add("wheel")
    if missing := sorted(needed - set(installed)):
        pytest.skip(f"building the plug-ins needs {' and '.join(missing)}")
    folder = tmp_path_factory.mktemp("plugins")
    venv.create(folder / "venv", symlinks=os.name != "nt", with_pip=False)
    python = folder / "venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    purelib = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    library = Path(accelerator_graph.__file__).resolve().parent.parent
    (purelib / "tests.pth").write_text(f"{sysconfig.get_path('purelib')}\n{library}\n")

    sources = folder / "sources"
    shutil.copytree(
        TESTS / "plugins", sources, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    )
    clean = {
        name: text
        for name, text in os.environ.items()
        if not name.startswith(("PIP_", "PYTHON", "ACCELERATOR_GRAPH"))
    }
    clean["PIP_CONFIG_FILE"] = os.devnull
    pip = [python, "-m", "pip", "install", "--no-build-isolation", "--no-deps", "--no-index", "--quiet"]
    pip += ["--disable-pip-version-check", "--no-compile", "--no-warn-script-location"]
    run(*pip, *(sources / name for name in ("good", "broken", "twin_a", "twin_b")), env=clean)
    run(
        *pip, "--prefix", folder / "editable", "--ignore-installed", "--editable", sources / "good", env=clean
    )
    [editable] = (folder / "editable").rglob("site-packages")

    def execute(script, **env):
        return json.loads(run(python, "-c", textwrap.dedent(script), env={**clean, **env}, cwd=folder))

    execute.editable = editable
    execute.sources = sources / "good"
    return execute


REPORT = """
import json
from accelerator_graph import backends
print(json.dumps([[*row[:6], dict(row.versions), row.devices] for row in backends.report()]))
"""


def test_an_installed_plug_in_is_found_opened_and_records(environment):
    assert environment("""
        import json, sys
        from accelerator_graph import backends
        assert "tape" in backends.names()
        assert "accelerator_graph_tape" not in sys.modules
        backend = backends.get("tape")
        assert backends.get("tape") is backend

        stream, seen, buffer = backend.create_stream(0), [], bytearray(4)
        backend.launch(stream, seen.append, "at once")
        token = backend.capture_begin(stream, backend.capture_modes[0])
        assert backend.capture_status(stream) == "active"
        backend.launch(stream, seen.append, "replayed")
        backend.fill(stream, buffer, 7, 2)
        backend.copy(stream, memoryview(buffer)[2:], buffer, 2)
        graph = backend.capture_end(token)
        assert backend.capture_status(stream) == "none"
        assert seen == ["at once"] and buffer == bytes(4)
        executable = backend.instantiate(graph)
        backend.replay(executable, stream), backend.replay(executable, stream)
        kinds = [node.kind for node in backend.nodes(graph)[0]]
        print(json.dumps([backend.name, seen, list(buffer), len(backend.nodes(graph)[0]), kinds]))
    """) == ["tape", ["at once", "replayed", "replayed"], [7, 7, 7, 7], 3, ["host", "memset", "memcpy"]]


def test_its_work_for_the_kit_is_found(environment):
    assert (
        environment("""
        import json
        from accelerator_graph.testing.works import work_of
        print(json.dumps(work_of("tape")().backend))
    """)
        == "tape"
    )


def test_installing_it_changes_nothing_for_programs_that_do_not_name_it(environment):
    script = """
        import json
        import accelerator_graph as ag
        print(json.dumps([ag.Stream().backend, ag.is_graph_available()]))
    """
    assert environment(script) == environment(script, ACCELERATOR_GRAPH_DISABLE_PLUGINS="1")


def test_its_own_streams_lead_to_it(environment):
    assert environment("""
        import json
        from accelerator_graph.backends import registry
        import accelerator_graph_tape
        stream = accelerator_graph_tape.TapeStream()
        backend, claimed = registry.claim(stream)
        print(json.dumps([backend.name, claimed is stream]))
    """) == ["tape", True]


def test_an_abandoned_token_does_not_end_the_next_capture(environment):
    assert (
        environment("""
        import json
        from accelerator_graph import backends
        backend = backends.get("tape")
        stream = backend.create_stream(0)
        first = backend.capture_begin(stream, "default")
        backend.capture_abandon(first)
        second = backend.capture_begin(stream, "default")
        backend.capture_abandon(first)
        print(json.dumps(backend.capture_status(stream)))
    """)
        == "active"
    )


@pytest.mark.promise("unserved-contract")
def test_broken_neighbours_are_reported_and_hurt_nobody(environment):
    rows = environment(REPORT)
    accelerators = {row[0]: row for row in rows if row[1] not in ("built-in",)}
    assert accelerators["tape"] == [
        "tape",
        "accelerator-graph-tape 1.2",
        True,
        False,
        True,
        "",
        {"tape": "1.2"},
        1,
    ]
    reasons = {(row[0], row[1]): row[5] for row in rows if not row[4] and row[1] != "built-in"}
    expected = {
        "import_error": "No module named 'a_runtime_not_installed'; repair or uninstall broken-graphs",
        "no_attribute": "AttributeError: module 'broken_graphs' has no attribute 'Nowhere'",
        "not_a_class": "is an object of type Stranger, not a class",
        "not_a_backend": "is not a subclass of accelerator_graph.backends.base.Backend",
        "incomplete": "lacks the methods capture_begin, capture_end, ",
        "old_version": "has api_version 0, but this accelerator_graph supports",
        "new_version": "supports api_version 1; upgrade accelerator_graph",
        "no_version": "has no valid api_version",
        "probe_raises": "its probe() must not raise, but raised OSError: the device is on fire",
        "cuda": "the name 'cuda' is reserved",
        "Bad-Name": "does not match",
    }
    for name, reason in expected.items():
        assert reason in reasons.pop((name, "broken-graphs 0.3"))
    twin = reasons.pop(("twin", "twin-a 1.0 and twin-b 1.0"))
    assert "ambiguous: twin-a 1.0 (twin_a:Twin) and twin-b 1.0 (twin_b:Twin)" in twin
    assert reasons == {}


def test_a_broken_plug_in_is_an_error_only_for_who_names_it(environment):
    assert environment("""
        import json
        from accelerator_graph import backends, errors
        answers = {}
        for name in ("import_error", "incomplete", "old_version", "probe_raises", "twin", "Bad-Name", "tap"):
            try:
                backends.get(name)
            except errors.BackendError as error:
                answers[name] = type(error).__name__
        answers["tape"] = backends.get("tape").name
        print(json.dumps(answers))
    """) == {
        "import_error": "BackendLoadError",
        "incomplete": "BackendContractError",
        "old_version": "BackendContractError",
        "probe_raises": "BackendUnavailableError",
        "twin": "BackendLoadError",
        "Bad-Name": "UnknownBackendError",
        "tap": "UnknownBackendError",
        "tape": "tape",
    }


@pytest.mark.parametrize("beside", ["editable", "sources"])
def test_an_editable_install_beside_a_normal_one_is_the_same_plug_in(environment, beside):
    """`sources` has the egg-info that a build leaves behind: a second set of metadata as well."""
    path = getattr(environment, beside)
    found = environment(
        """
        import json
        from importlib.metadata import distributions
        from accelerator_graph import backends
        count = sum(found.name == "accelerator-graph-tape" for found in distributions())
        rows = [row.origin for row in backends.report() if row.name == "tape"]
        print(json.dumps([count, backends.get("tape").name, rows]))
        """,
        PYTHONPATH=str(path),
    )
    assert found == [2, "tape", ["accelerator-graph-tape 1.2"]]


@pytest.mark.promise("no-plug-ins")
def test_plug_ins_can_be_switched_off(environment):
    rows = environment(REPORT, ACCELERATOR_GRAPH_DISABLE_PLUGINS="1")
    assert {row[1] for row in rows} == {"built-in"}
