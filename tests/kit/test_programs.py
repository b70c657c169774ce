"""Random programs: they find bugs, shrink to something that can be read, and are never wrong themselves."""

from __future__ import annotations

import math
import random
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, errors, find, settings

import accelerator_graph as ag
from accelerator_graph.backends.base import Backend
from accelerator_graph.testing import programs
from accelerator_graph.testing._programs.model import Order
from accelerator_graph.testing._programs.program import Program
from accelerator_graph.testing.programs import RandomPrograms, check_programs
from accelerator_graph.testing.works.host import HostWork
from kit import races
from kit.planted import destroying, ending, in_programs, ordering, recording, replaying, without_a_fault
from kit.planted.collection import NAME
from kit.planted.works import WorkOfADevice
from processes import execute

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def as_many_as_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(programs.EXAMPLES, raising=False)
    monkeypatch.delenv(programs.SEED, raising=False)


def failure() -> str:
    """Return the program that fails."""
    with pytest.raises(AssertionError) as caught:
        check_programs(HostWork(NAME))
    lines = str(caught.value).splitlines()
    return "\n".join(line[4:] for line in lines if line.startswith(("    ", "->  ")) and "# work" not in line)


# ---- bugs ------------------------------------------------------------------------------------------


FOUND = [  # with a part of the shortest program that shows it, and its number of lines
    (in_programs.IgnoresDependencies, r"s1.wait\(", 26),
    (in_programs.ReplaysStaleParameters, r"with s0, g0:(.|\n)*with s0, g0:", 18),
    (in_programs.LosesAFill, r"s.fill\(b0, \d.*\n.*s.fill\(b0, ", 14),
    (in_programs.LosesTheLastOfThreeReplays, r"g0.replay|range\(3\)", 15),
    (recording.FillIgnoresCaptures, r"fill\(b0, ", 12),
]
ALSO_FOUND = [
    (replaying.ReplaysTwice, r"g0.replay\(", 13),
    (ending.NeverAbandons, "raise Abandoned", 13),
    (replaying.RunsOverlap, r"replay\(s\d\)|bind\(s\d\)", 26),
    (replaying.BindsToAStreamOfItsOwn, r"g0.replay\(|g0.bind\(", 13),
    # only replays into captures go there
    (in_programs.ReplaysLateOnAStreamOfItsOwn, r"g\d.(replay|bind)\(s", 26),
    (destroying.DestroysRunsUnderWay, r"g0.reset\(\)|g0 = ag.Graph", 18),
    (replaying.ChildGraphsRunAtOnce, r"g\d.(replay|bind)\(s", 26),
    (destroying.DestroyBreaksCaptures, r"def f1\(s\):\n    g0.reset\(\)", 15),
    (replaying.SwapsNodes, r"enqueue|fill", 16),
    (ordering.LinksAStreamOnce, r"s\d.wait\(", 21),
    (recording.CapturesEveryStream, "aside", 15),
    (replaying.LatestRunWins, r"range\(\d\)|g0.replay", 15),
    (ordering.LastWaitWins, r"s1.wait\(", 21),
]


@pytest.mark.parametrize(
    ("backend", "shows", "lines"),
    [*FOUND, *(pytest.param(*each, marks=pytest.mark.needs("rest")) for each in ALSO_FOUND)],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_bug_is_found_and_shrunk(
    backend: type[Backend], shows: str, lines: int, register: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "SHRINK_SECONDS", math.inf)  # on a busy machine, shrinking takes long
    register(backend)
    code = failure()
    assert re.search(shows, code), code
    assert len(code.splitlines()) <= lines, code


def test_failure_is_a_program_with_the_line_that_failed(register: Any) -> None:
    register(recording.RunsWhileCapturing)
    with pytest.raises(AssertionError) as caught:
        check_programs(HostWork(NAME))
    assert str(caught.value) == (
        """a program on backend 'planted' fails with AssertionError: c0 holds 1

    # work is a accelerator_graph.testing.works.host.HostWork
    # work.enqueue(stream, cell, a, b) does: cell = cell * a + b
    import accelerator_graph as ag
    s0 = ag.Stream(0, backend="planted")
    c0 = work.new()
    g0 = ag.Graph()
    def f0(s):
        work.enqueue(s, c0, 1, 1)
    with s0, g0:
        f0(s0)
->  assert work.read(c0) == 0, f"c0 holds {work.read(c0)}"
(seed 0)"""
    )


def test_hanging_call_is_a_failure_that_says_where(register: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs._Case, "time_limit", 2.0)
    monkeypatch.setattr(programs, "SHRINK_SECONDS", 1.0)
    register(without_a_fault.Hangs)
    with pytest.raises(AssertionError, match=r"hangs in(.|\n)*in Hangs.synchronize(.|\n)*\n->  "):
        check_programs(HostWork(NAME))


def test_after_the_time_for_shrinking_no_program_is_tried(
    register: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[bool] = []
    has = programs._Failures.has

    def noted(failures: Any, program: Program) -> bool:
        tried.append(False)
        tried[-1] = has(failures, program)
        return tried[-1]

    monkeypatch.setattr(programs._Failures, "has", noted)
    monkeypatch.setattr(programs, "SHRINK_SECONDS", -1.0)
    register(recording.RunsWhileCapturing)
    with pytest.raises(AssertionError, match="fails with AssertionError"):
        check_programs(HostWork(NAME))
    assert len(tried) - tried.index(True) <= 4, "some programs that have failed, and one more"


def test_no_bug_is_found_where_there_is_none(register: Any) -> None:
    register(without_a_fault.NothingButTheCore)
    check_programs(HostWork(NAME))


# ---- the programs themselves -----------------------------------------------------------------------


def drawn(backend: str, count: int, seed: int, devices: int = 1, crosses: bool = True) -> list[str]:
    """Return the code of some programs."""
    found: list[str] = []

    def note(program: Program) -> bool:
        found.append(program.code)
        return False

    how = settings(max_examples=count, database=None, deadline=None, phases=(Phase.generate,))
    strategy = programs.programs(ag.backends.get(backend), devices, crosses)
    with pytest.raises(errors.NoSuchExample), programs._nothing_written():
        find(strategy, note, settings=how, random=random.Random(seed))
    return found


@pytest.fixture(name="hundred", scope="module")
def hundred_fixture() -> list[str]:
    """Programs for the cpu backend."""
    return drawn("cpu", 100, 0)


def test_programs_are_the_same_in_each_run_unless_the_seed_changes() -> None:
    first = drawn("cpu", 20, 0)
    assert drawn("cpu", 20, 0) == first
    assert drawn("cpu", 20, 1) != first


def test_programs_use_everything(hundred: list[str]) -> None:
    code = "\n".join(hundred)
    for each in (
        *("enqueue(", "enqueue_slow(", ".fill(", ".copy(", ".wait(e", ".record())", "(aside, ", ".close()"),
        *("with suppress(Abandoned)", "capture_begin()", "capture_end()", "ag.graph(g", "current_stream()"),
        *("keep_graph=True", 'capture_error_mode="relaxed"', "ag.Graph(stream=s", ".instantiate()"),
        *(".replay()", ".replay(s)", ".replay(s1)", ".bind()", ".bind(s)()", "in_threads([", ".reset()"),
        *("is not None", "() is None", "for _ in range(", ".synchronize()"),
    ):
        assert each in code, each


def test_programs_leave_no_order_open(hundred: list[str]) -> None:
    for code in hundred:
        races.check(code)


def test_open_order_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Order, "missing", lambda *args: [])
    seen = 0
    for code in drawn("cpu", 30, 0):
        try:
            races.check(code)
        except AssertionError as error:
            seen += "is not ordered after" in str(error)
    assert seen > 5


def test_programs_use_only_what_the_backend_can_do(register: Any) -> None:
    register(without_a_fault.NothingButTheCore)
    code = "\n".join(drawn(NAME, 60, 0))
    for each in (".wait(", ".record(", ".fill(", ".copy(", ".replay(s)", ".bind(s)()"):
        assert each not in code, each
    assert ".synchronize()\ng" in code  # how it orders replays on two streams
    assert ".replay(s1)" in code


# ---- two devices -----------------------------------------------------------------------------------


@pytest.mark.parametrize("crosses", [True, False])
def test_programs_for_two_devices_use_both(crosses: bool) -> None:
    found = drawn("cpu", 100, 0, 2, crosses)
    both = [code for code in found if 'ag.Stream(1, backend="cpu")' in code]
    assert 20 < len(both) < 80
    assert "there" not in "\n".join(code for code in found if code not in both)
    code = "\n".join(both)
    for each in ("there = work.on(1)", "there.enqueue(", "there.new()", "there.buffer(", "there.read(c4)"):
        assert each in code, each
    for each in both:
        races.check(each)


@pytest.mark.parametrize("backend", [without_a_fault.TwoDevices, without_a_fault.RefusesTwoDevices])
def test_no_bug_is_found_where_there_are_two_devices(backend: type[Backend], register: Any) -> None:
    register(backend)
    check_programs(WorkOfADevice(NAME))


def test_work_on_the_wrong_device_is_found(register: Any) -> None:
    register(without_a_fault.EveryStreamOnDeviceZero)
    with pytest.raises(AssertionError, match=r"there.enqueue\(s1?, c4, (.|\n)*\n->  "):
        check_programs(WorkOfADevice(NAME))


def test_lost_order_of_two_devices_is_found(register: Any) -> None:
    register(in_programs.IgnoresWaitsForAnotherDevice)
    with pytest.raises(AssertionError, match=r"there = work.on\(1\)(.|\n)*.wait\((.|\n)*\n->  "):
        check_programs(WorkOfADevice(NAME))


# ---- how they are run ------------------------------------------------------------------------------


@pytest.fixture(name="ran")
def ran_fixture(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs that are asked for; they are not run."""
    ran: list[str] = []

    def note(failures: object, program: Program) -> bool:
        ran.append(program.code)
        return False

    monkeypatch.setattr(programs._Failures, "has", note)
    return ran


def test_number_and_seed_of_the_class_and_of_the_environment(
    ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Programs(RandomPrograms):
        examples = 7
        seed = 4

        def work(self) -> HostWork:
            return HostWork("cpu")

    Programs().test_random_programs()
    first = ran[:]
    assert len(first) == 7
    monkeypatch.setenv(programs.EXAMPLES, "20")
    ran.clear()
    Programs().test_random_programs()
    assert len(ran) == 20
    for seed in ("5", "random"):
        monkeypatch.setenv(programs.SEED, seed)
        before = ran[:]
        ran.clear()
        Programs().test_random_programs()
        assert ran != before


@pytest.mark.parametrize("variable", [programs.EXAMPLES, programs.SEED])
def test_environment_variable_that_is_no_number(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "many")
    with pytest.raises(ValueError, match=f"{variable} must be a number from .*, not 'many'"):
        check_programs(HostWork("cpu"))


IN_A_PROCESS = f"""
import sys
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "tests")!r}]
class Without:
    def find_spec(name, path, target=None):
        if name.partition(".")[0] in sys.argv[1:]:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Without)
from accelerator_graph.testing import BackendConformance
from accelerator_graph.testing.works.host import HostWork
class Conformance(BackendConformance):
    def work(self):
        return HostWork("cpu")
Conformance().test_random_forks_and_joins_keep_their_order()
from accelerator_graph.testing.programs import check_programs
check_programs(HostWork("cpu"), 20)
"""


def test_nothing_is_written_and_pytest_is_not_needed(tmp_path: Path) -> None:
    done = execute([sys.executable, "-W", "error", "-c", IN_A_PROCESS, "pytest"], cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr
    assert [*tmp_path.iterdir()] == []


def test_without_hypothesis_there_is_the_kit_and_a_way_out(tmp_path: Path) -> None:
    done = execute([sys.executable, "-c", IN_A_PROCESS, "hypothesis"], cwd=tmp_path, timeout=300)
    assert done.stderr.splitlines()[-1] == (
        "ImportError: accelerator_graph.testing.programs needs Hypothesis; install it with: "
        'pip install "hypothesis>=6.100"'
    )
