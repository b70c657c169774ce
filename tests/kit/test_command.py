"""`python -m accelerator_graph conformance`, as a vendor uses it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from accelerator_graph import Stream
from accelerator_graph.__main__ import main
from accelerator_graph.backends.base import Backend, Capability
from accelerator_graph.testing import BackendConformance, _conformance
from accelerator_graph.testing._conformance import test_names as names_of
from accelerator_graph.testing._report import PROMISES, Row, fenced, look_first
from accelerator_graph.testing.works.host import HostWork
from kit.planted import listing, recording
from kit.planted.collection import NAME
from processes import execute

ROOT = Path(__file__).resolve().parents[2]
EDGES = "test_nodes_of_a_line"
KNOWN = {
    "test_debug_dump_draws_every_dependency": "no edges yet",
    "test_nodes_after_an_event": "no edges yet",
    "test_nodes_of_a_fork_and_join": "no edges yet",
    "test_nodes_of_streams_that_take_turns": "no edges yet",
    "test_fill_sets_bytes": "it was broken once",
}
OTHERS = "test_each_replay_runs_the_work_once", "test_handle_stands_for_the_stream"


class PlantedWork(HostWork):
    def __init__(self) -> None:
        super().__init__(NAME)


class OtherWork(HostWork):
    """Of the cpu backend."""


class WrongWork(PlantedWork):
    def enqueue(self, stream: Stream, cell: Any, a: int, b: int) -> None:
        super().enqueue(stream, cell, a, b + 1)


class OddlyNamedWork(PlantedWork):
    def device_name(self) -> str:
        return "one\ntwo | three \udcff"


WITHOUT_PYTEST = f"""
import sys
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "tests")!r}]
class NoPytest:
    def find_spec(name, path, target=None):
        assert "pytest" not in name, name
sys.meta_path.insert(0, NoPytest)
from accelerator_graph.__main__ import main
sys.exit(main(["conformance", "cpu", "-o", sys.argv[1]]))
"""


def test_reports_every_rule_and_needs_no_pytest(tmp_path: Path) -> None:
    path = tmp_path / "a report.md"
    done = execute([sys.executable, "-I", "-W", "error", "-c", WITHOUT_PYTEST, str(path)], timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    text, printed = path.read_text(encoding="utf-8"), done.stdout.splitlines()
    names = names_of(BackendConformance)
    assert len(names) > 200
    assert [line.rpartition("  ")[2].partition(" ")[0] for line in printed[: len(names)]] == names
    rules = [line for line in text.splitlines() if line.endswith(("| passed |", "| does not apply |"))]
    assert len(rules) == len(names)
    for name in names:
        assert " ".join(str(getattr(BackendConformance, name).__doc__).split()) in text
    passed = sum(line.endswith("| passed |") for line in rules)
    assert passed > 200
    assert f"keeps all {passed} rules" in text
    assert f"keeps all {passed} rules" in printed[-2]
    assert "backend 'cpu' does not have the capability 'handles'" in text
    assert "nothing happens for 120 seconds" in text


KEEPS_THE_GIL = f"""
import sys
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "tests")!r}]
from ctypes import PyDLL
import accelerator_graph as ag
from accelerator_graph.backends.cpu import CpuBackend
from accelerator_graph.testing import _command
from accelerator_graph.testing.works.host import HostWork
class KeepsTheGil(CpuBackend):
    def device_of(self, stream):
        return PyDLL(None).pause()
class ItsWork(HostWork):
    def __init__(self):
        super().__init__("keeps")
ag.backends.register("keeps", KeepsTheGil)
sys.modules["the_work"] = sys.modules["__main__"]
_command.GIL_SECONDS = 1.0
_command.run("keeps", work="the_work:ItsWork", time_limit=1.0)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="it has no function that waits for ever")
def test_a_hang_that_keeps_the_gil_ends_the_process_and_says_where() -> None:
    done = execute([sys.executable, "-I", "-c", KEEPS_THE_GIL], timeout=60)
    assert done.returncode == 1
    assert 'File "<string>"' in done.stderr
    assert "in device_of" in done.stderr


def test_reports_broken_rules_and_expected_failures(
    register: Callable[[type[Backend]], None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    register(listing.HasNoEdges)
    monkeypatch.setattr(_conformance, "test_names", lambda case: [*KNOWN, EDGES, *OTHERS])
    path, expected = tmp_path / "report.md", tmp_path / "expected.toml"
    expected.write_text("".join(f'{name} = "{reason}"\n' for name, reason in KNOWN.items()))
    command = ["conformance", NAME, "--work", f"{__name__}:PlantedWork", "--expected", str(expected)]
    assert main([*command, "-o", str(path)]) == 1
    text, printed = path.read_text(encoding="utf-8"), capsys.readouterr().out
    assert "breaks 2 of the 7 rules" in text
    sentence = str(getattr(BackendConformance, EDGES).__doc__)
    assert f"**{sentence}** (`{EDGES}`)\n\n```text\nAssertionError" in text
    assert f"FAILED          {EDGES}: {sentence}\n    AssertionError" in printed
    assert "accelerator_graph.testing.rules.inspection, line" in text
    assert text.count("| no edges yet |") == 4
    assert "known failure   test_nodes_after_an_event (no edges yet)" in printed
    assert "expected to fail (it was broken once), but it passes" in text
    assert "`kit.planted.listing:HasNoEdges`" in text
    assert "| From | registered |" in text
    assert ", device 0 of 1 |" in text


RECORDING = "test_capture_abandon_ends_the_capture", "test_each_replay_runs_the_work_once"


def test_one_fault_that_breaks_several_rules_is_named_first(
    register: Callable[[type[Backend]], None],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    register(recording.RunsWhileCapturing)
    monkeypatch.setattr(_conformance, "test_names", lambda case: RECORDING)
    assert main(["conformance", NAME, "--work", f"{__name__}:PlantedWork"]) == 1
    printed = capfd.readouterr()
    assert (
        f"apply to it. 0 other rules do not apply.\nLook at {RECORDING[0]} first: "
        "one fault breaks many rules, and those of one method come first.\n"
    ) in printed.out
    assert "EmptyGraphWarning" not in printed.err


def test_rules_that_were_not_run_are_not_said_to_be_of_no_concern(
    register: Callable[[type[Backend]], None],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    register(listing.HasNoEdges)
    monkeypatch.setattr(_conformance, "test_names", lambda case: ["test_work_computes_what_it_says", EDGES])
    assert main(["conformance", NAME, "--work", f"{__name__}:WrongWork"]) == 1
    assert "breaks 1 of the 1 rules that apply to it. 1 other rules were not run.\n" in capfd.readouterr().out


def test_texts_of_a_backend_stay_in_their_place(
    register: Callable[[type[Backend]], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(listing.HasNoEdges)
    monkeypatch.setattr(_conformance, "test_names", lambda case: [EDGES])
    path, expected = tmp_path / "report.md", tmp_path / "expected.toml"
    expected.write_text(f'{EDGES} = """no\nedges"""\n')
    command = ["conformance", NAME, "--work", f"{__name__}:OddlyNamedWork", "--expected", str(expected)]
    assert main([*command, "-o", str(path)]) == 0
    text = path.read_text(encoding="utf-8")
    assert r"| Device | one two \| three \udcff, device 0 of 1 |" in text
    assert "| no edges |" in text


@pytest.mark.parametrize(("text", "fence"), [("a", "```"), ("``", "```"), ("a\n```\nb", "````")])
def test_a_text_does_not_end_its_own_fence(text: str, fence: str) -> None:
    assert fenced(text) == f"{fence}text\n{text}\n{fence}"


def test_errors_that_rules_share_are_counted() -> None:
    rows = [Row(name, "failed", f"DriverError: the stream at {at} is lost.\n  more") for name, at in SHARED]
    assert list(look_first(rows[:1])) == []
    assert list(look_first(rows))[1:] == [
        "2 of them fail with the same error: DriverError: the stream at 0x... is lost."
    ]


SHARED = (RECORDING[0], "0x7f00"), (RECORDING[1], "0x7f10")


def test_every_capability_is_explained() -> None:
    assert list(PROMISES) == list(Capability)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cpuu"], "did you mean 'cpu'?"),
        (
            ["elsewhere", "--work", f"{__name__}:PlantedWork"],
            f"If it is not installed, let {__name__!r} register it: "
            "accelerator_graph.backends.register('elsewhere', \"module:Backend\").",
        ),
        (["cpu", "--work", "nonsense"], "a work must be named as 'module:Class', not 'nonsense'."),
        (["cpu", "--work", "no_such_module:Work"], "No module named 'no_such_module'"),
        (["cpu", "--work", f"{__name__}:NAME"], "is not a subclass of accelerator_graph.testing.Work."),
        (
            ["cpu", "--work", f"{__name__}:PlantedWork"],
            "PlantedWork must have the attribute backend = 'cpu'.",
        ),
        (
            ["cpu", "-o", "no/such/folder/report.md"],
            "no/such/folder/report.md can't be written",
        ),
        (["cpu", "-o", "."], "is a folder"),
        (["cpu", "--expected", "no_such_file"], "no_such_file: No such file or directory"),
    ],
)
def test_bad_input_is_refused_at_once(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["conformance", *arguments]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("test_of_nothing = 'x'", "there is no test_of_nothing."),
        ("test_fill_sets_bytes = 3", "the reason for test_fill_sets_bytes must be a text, not 3."),
        ("nonsense", "is not valid TOML"),
        ("# caf\N{LATIN SMALL LETTER E WITH ACUTE}", "is not valid TOML"),
    ],
)
def test_wrong_expectations_are_refused_at_once(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "expected.toml").write_text(text, encoding="latin-1")
    assert main(["conformance", "cpu", "--expected", str(tmp_path / "expected.toml")]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""
