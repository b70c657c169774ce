"""The comparison of several processes' graphs, on the cpu backend."""

import re
import threading
import time
from collections import defaultdict
from itertools import count
from pathlib import Path

import pytest

import accelerator_graph as ag
from accelerator_graph.diagnosis import ranks, ranks_groups
from processes import results_of_ranks

from . import rank_program
from .rank_program import SCENARIOS

SIZE = 3
RIGHT = ("equal", "pipeline", "uneven", "nothing_at_all", "all_failed", "side_by_side", "not_kept")
WORLD = "the group of ranks 0 to 2: "
WRONG = {
    "swapped": (
        f"{WORLD}collective 1 is all_reduce of 4 float32 (AT) on ranks 0 and 1 and all_gather of 8 float32 "
        "(AT) on rank 2; they are in another order"
    ),
    "another_count": (
        f"{WORLD}collective 2 is all_gather of 8 float32 (AT) on ranks 0 and 2 and all_gather of 9 float32 "
        "(AT) on rank 1"
    ),
    "another_type": (
        f"{WORLD}collective 1 is all_reduce of 4 float32 (AT) on ranks 1 and 2 and all_reduce of 4 float16 "
        "(AT) on rank 0"
    ),
    "another_root": (
        f"{WORLD}collective 1 is broadcast of 4 float32 with root 0 (AT) on ranks 0 and 2 and broadcast of 4 "
        "float32 with root 1 (AT) on rank 1"
    ),
    "missing": (
        f"{WORLD}ranks 0 and 2 ask for 2 collectives and rank 1 for 1; number 2 is all_gather of 8 float32 "
        "(AT)"
    ),
    "none_at_all": (
        f"{WORLD}ranks 0 and 2 ask for 1 collective and rank 1 for none; number 1 is all_reduce of 4 float32 "
        "(AT)"
    ),
    "unmatched_send": (
        f"{WORLD}rank 0 sends 2 times to rank 1, which receives 1 time; the first without a partner is send "
        "of 16 float32 to rank 1 (AT)"
    ),
    "mismatched_send": (
        f"{WORLD}transfer 1 from rank 0 to rank 1 is send of 16 float32 to rank 1 (AT) and recv of 17 "
        "float32 from rank 0 (AT)"
    ),
    "crossed_groups": (
        "the collectives of group 'b' of ranks 0 to 2 and of group 'a' of ranks 0 to 2 are in one order on "
        "ranks 1 and 2 and in another on rank 0, which hangs"
    ),
    "no_graph": "rank 1 has no graph: its capture failed",
    "empty": "rank 1 has no graph: nothing was captured",
    "strict": (
        "the graph of rank 1 is not that of rank 0: 1 host node 'other_work' more, 1 host node 'work' more"
    ),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What each rank has found, by scenario."""
    return results_of_ranks("diagnosis.rank_program", SIZE, tmp_path_factory.mktemp("ranks"), "-W", "error")


def without_places(text):
    """Put AT for the lines of the program."""
    return re.sub(r"rank_program\.py:\d+", "AT", text)


@pytest.mark.parametrize("name", RIGHT)
def test_right_programs_are_not_accused(results, name):
    for rank, found in enumerate(results):
        assert found[name]["error"] == ""
        assert found[name]["report"]["agree"] is True
        assert found[name]["report"]["rank"] == rank


@pytest.mark.promise("all-ranks-get-the-error")
@pytest.mark.parametrize("name", WRONG)
def test_every_rank_is_told_the_difference(results, name):
    for found in results:
        assert without_places(found[name]["report"]["differences"][0]) == WRONG[name]
        assert found[name]["report"]["agree"] is False
        assert without_places(found[name]["error"]).startswith(f"the ranks disagree: {WRONG[name]}")
        assert found[name]["error"].endswith("; replay on none of them.")
    assert len({found[name]["text"] for found in results}) == 1


def test_every_scenario_is_looked_at():
    assert {*SCENARIOS} <= {*RIGHT, *WRONG, "failed"}


def test_the_line_is_the_users(results):
    [place] = {found["another_type"]["report"]["records"][0]["collectives"][0]["line"] for found in results}
    lines = Path(rank_program.__file__).read_text(encoding="utf-8").splitlines()
    assert "note_collective" in lines[place - 1]


def test_a_capture_that_failed_is_told_with_its_reason(results):
    for found in results:
        [said] = found["failed"]["report"]["differences"]
        assert said.startswith(
            "rank 2 has no graph: its capture failed with CaptureError: the capture of the "
        )
        assert "synchronize" in said


def test_a_rank_that_does_not_call(results):
    for found in results[:2]:
        assert "not returned within 1 s" in found["late"]["error"]


def test_what_differs_rightly_is_a_note(results):
    assert results[0]["equal"]["report"]["notes"] == []
    assert results[0]["uneven"]["report"]["notes"] == []
    notes = results[0]["pipeline"]["report"]["notes"]
    assert [note.partition(":")[0] for note in notes] == [
        "the graph of rank 1 is not that of rank 0",
        "the graph of rank 2 is not that of rank 0",
    ]


def test_what_is_not_known_is_a_note(results):
    assert results[0]["nothing_at_all"]["report"]["notes"] == ["no collective was seen in any graph"]
    assert results[0]["not_kept"]["report"]["notes"] == [
        "the nodes of ranks 0 to 2 are not known: its graph was made without keep_graph=True"
    ]
    [note] = results[0]["side_by_side"]["report"]["notes"]
    assert "in one order on ranks 1 and 2 and in another on rank 0" in note
    assert note.endswith("which hangs unless the graph runs them side by side")
    assert results[0]["all_failed"]["report"]["notes"][0] == "no rank has a graph"


def test_text_of_a_report(results):
    assert results[0]["equal"]["text"] == "3 ranks agree: 2 collectives in each graph"
    head, *lines = results[0]["missing"]["text"].splitlines()
    assert head == "3 ranks disagree: 1 to 2 collectives in each graph"
    assert [line.startswith("  note: ") for line in lines] == [False, True]


# ---- one process -----------------------------------------------------------------------------------


def alone(text):
    return [text]


@pytest.fixture
def graph():
    with ag.Stream(backend="cpu") as stream, ag.Graph(keep_graph=True) as graph:
        stream.launch(print)
        ag.note_collective("all_reduce", "float32", 4)
    return graph


def test_one_rank_alone_agrees(graph):
    report = ag.check_ranks(graph, alone)
    assert (report.rank, report.size, report.differences, report.notes) == (0, 1, (), ())
    assert report.records[0].collectives == graph.collectives
    assert report.records[0].fingerprint == graph.fingerprint()


def test_it_is_refused_in_a_capture(graph):
    with ag.Stream(backend="cpu") as stream, ag.Graph():
        stream.launch(print)
        with pytest.raises(ag.GraphStateError, match="this thread is capturing"):
            ag.check_ranks(graph, alone)


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        (lambda graph: ag.check_ranks("graph", alone), TypeError),
        (lambda graph: ag.check_ranks(graph, 3), TypeError),
        (lambda graph: ag.check_ranks(graph), ValueError),
        (lambda graph: ag.check_ranks(graph, alone, timeout=0), ValueError),
        (lambda graph: ag.check_ranks(graph, alone, timeout="60"), TypeError),
        (lambda graph: ag.check_ranks(graph, alone, timeout=True), TypeError),
        (lambda graph: ag.check_ranks(graph, (Store(), 2, 2)), ValueError),
        (lambda graph: ag.check_ranks(graph, (Store(), -1, 2)), ValueError),
        (lambda graph: ag.check_ranks(graph, (Store(), "0", 1)), TypeError),
        (lambda graph: ag.check_ranks(graph, lambda text: None), TypeError),
        (lambda graph: ag.check_ranks(graph, lambda text: [1]), TypeError),
        (lambda graph: ag.check_ranks(graph, lambda text: []), TypeError),
        (lambda graph: ag.note_collective(1, "float32", 1), TypeError),
        (lambda graph: ag.note_collective("all_reduce", "float32", 1.5), TypeError),
        (lambda graph: ag.note_collective("send", "float32", 1), ValueError),
        (lambda graph: ag.note_collective("all_reduce", "float32", -1), ValueError),
        (lambda graph: ag.note_collective("broadcast", "float32", 1, peer=-1), ValueError),
        (lambda graph: ag.note_collective("all_reduce", "float32", 1, ranks=3), TypeError),
        (lambda graph: ag.check_ranks(graph, alone, strict="no"), TypeError),
    ],
)
def test_wrong_arguments(graph, what, kind):
    with pytest.raises(kind, match=r"check_ranks|note_collective"):
        what(graph)


@pytest.mark.parametrize(
    "text", ["", "x", "x []", 'x {"schema": 1}', 'x {"schema": 1, "rank": 1, "collectives": 3}']
)
def test_a_text_of_something_else_is_told(graph, text):
    with pytest.raises(ag.RanksDisagreeError, match="rank 1 has no graph: it has sent a text that is not of"):
        ag.check_ranks(graph, lambda own: [own, text])


def test_what_the_function_raises_passes(graph):
    def gather(text):
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError, match="gone"):
        ag.check_ranks(graph, gather)


def test_a_collective_outside_a_capture_is_not_noted(graph):
    ag.note_collective("all_reduce", "float32", 4)
    assert len(graph.collectives) == 1
    graph.reset()
    assert graph.collectives == ()


def test_collectives_of_a_capture_that_failed_are_gone():
    graph = ag.Graph()

    def capture():
        with ag.Stream(backend="cpu"), graph:
            ag.note_collective("all_reduce", "float32", 4)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        capture()
    assert graph.collectives == ()


class Store:
    """A store of torch.distributed, in one process."""

    def __init__(self):
        self._values = {}

    def set(self, key, value):
        self._values[key] = value.encode()

    def get(self, key):
        return self._values[key]

    def check(self, keys):
        return all(key in self._values for key in keys)


def test_a_store_names_the_rank_that_does_not_call(graph):
    with pytest.raises(ag.RanksDisagreeError, match=r"rank 1 has not called check_ranks within 0\.2 s"):
        ag.check_ranks(graph, (Store(), 0, 2), timeout=0.2)


def test_a_rank_that_comes_too_late_does_not_agree(graph, monkeypatch):
    """The other one has said its part and given up, and will never say that it has heard from all."""
    monkeypatch.setattr(ranks_groups, "_CONFIRMATION", 0.2)
    monkeypatch.setattr(ranks_groups, "_rounds", defaultdict(count))
    store = Store()
    with pytest.raises(ag.RanksDisagreeError, match="rank 1 has not called"):
        ag.check_ranks(graph, (store, 0, 2), timeout=0.1)
    monkeypatch.setattr(ranks_groups, "_rounds", defaultdict(count))  # as in another process
    with pytest.raises(ag.RanksDisagreeError, match="one has called too late, or given up"):
        ag.check_ranks(graph, (store, 1, 2), timeout=5)


def test_a_late_rank_waits_for_word_of_the_others_no_longer_than_for_them(graph, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(ranks_groups.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(ranks_groups.time, "sleep", lambda seconds: clock.append(clock.pop() + seconds))
    monkeypatch.setattr(ranks_groups, "_rounds", defaultdict(count))
    store = Store()
    store.set("accelerator_graph/check_ranks/0/said/0", ranks.to_text(ranks.RankRecord.of(0, graph)))
    with pytest.raises(ag.RanksDisagreeError, match="one has called too late, or given up"):
        ag.check_ranks(graph, (store, 1, 2), timeout=1)
    assert clock == [1.0]


@pytest.mark.parametrize("error", [RuntimeError("Broken pipe\nframe #0"), ConnectionResetError("reset")])
def test_a_store_whose_host_has_ended(graph, error):
    class Gone(Store):
        def check(self, keys):
            raise error

    with pytest.raises(ag.RanksDisagreeError) as raised:
        ag.check_ranks(graph, (Gone(), 1, 2))
    fact = str(error).partition("\n")[0]
    assert str(raised.value) == (
        f"the ranks disagree: the group does not answer, since a rank may have ended ({fact}); replay on "
        "none of them."
    )
    assert raised.value.report.rank == 1


def test_the_few_of_many_ranks_are_named(graph):
    records = [ranks.RankRecord.of(rank, graph) for rank in range(16)]
    other = records[11].collectives[0]._replace(elements=5)
    records[11] = records[11]._replace(collectives=(other,))
    with pytest.raises(ag.RanksDisagreeError) as raised:
        ag.check_ranks(graph, lambda own: [own, *(f"x {ranks.to_text(each)}" for each in records[1:])])
    [said] = raised.value.report.differences
    assert " on all ranks but 11 and all_reduce of 5 float32 " in said
    assert said.endswith(" on rank 11")


def test_the_same_of_a_function(graph, monkeypatch):
    monkeypatch.setattr(ranks_groups, "_CONFIRMATION", 0.2)
    other = ranks.to_text(ranks.RankRecord.of(1, graph))
    calls = []

    def gather(text):
        calls.append(text)
        if len(calls) == 2:
            time.sleep(5)
        return [text, f"other {other}"]

    with pytest.raises(ag.RanksDisagreeError, match="one has called too late, or given up"):
        ag.check_ranks(graph, gather)


def test_two_ranks_over_a_store(graph, monkeypatch):
    """Two threads stand for two processes, each of which counts its own exchanges."""
    rounds = [defaultdict(count), defaultdict(count)]

    class OwnRounds:
        def __getitem__(self, name):
            return rounds[int(threading.current_thread().name)][name]

    monkeypatch.setattr(ranks_groups, "_rounds", OwnRounds())
    store, found = Store(), {}

    def rank(number):
        for _ in range(3):
            found[number] = ag.check_ranks(graph, (store, number, 2), timeout=120)

    threads = [threading.Thread(target=rank, args=(number,), name=str(number)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert [found[number].rank for number in range(2)] == [0, 1]
    assert all(each.agree and each.size == 2 for each in found.values())
