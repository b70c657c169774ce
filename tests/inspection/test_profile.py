"""Profiles as plain data: nested labels, what is said of them, the trace."""

import json

import pytest

import accelerator_graph as ag
from accelerator_graph.backends.base import GraphEdge, GraphNode
from accelerator_graph.inspection import text
from accelerator_graph.inspection.timings import LabelTime, parents

STEP = ag.Label("step", 0, 10, "/somewhere/model.py", 3)
ATTENTION = ag.Label("attention", 0, 4, "/somewhere/model.py", 12)
SCORES = ag.Label("scores", 1, 2, "/somewhere/model.py", 15)
NORM = ag.Label("norm", 4, 6, "/somewhere/model.py", 20)
LOSS = ag.Label("loss", 10, 12, "/somewhere/loss.py", 1)
LABELS = [STEP, ATTENTION, SCORES, NORM, LOSS]
SPANS = [(2.0, 402.0), (2.0, 302.0), (2.0, 202.0), (102.0, 152.0), (202.0, 212.0), (322.0, 402.0)]


def profile(spans=(SPANS,), labels=LABELS, times=(400.0, 390.0, 410.0), **how):
    return ag.GraphProfile.of("cuda", 0, 12, times, labels, spans, **how)


def test_times_of_nested_labels():
    found = profile()
    assert [each.label for each in found.labels] == LABELS
    assert [each.begin for each in found.labels] == [0, 0, 100, 200, 320]
    assert [each.time for each in found.labels] == [300, 200, 50, 10, 80]
    assert [each.own for each in found.labels] == [90, 150, 50, 10, 80]
    assert [each.uncertain for each in found.labels] == [False, False, False, True, False]
    assert (found.with_events, found.unlabelled, found.median) == (400, 20, 400)
    assert sum(each.own for each in found.labels) + found.unlabelled == found.with_events


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([], []),
        ([(0, 4), (4, 6)], [None, None]),
        ([(0, 4), (0, 4)], [None, 0]),
        ([(0, 4), (2, 4), (2, 3), (3, 4)], [None, 0, 1, 1]),
        ([(0, 4), (0, 2), (2, 4), (4, 5)], [None, 0, 0, None]),
        ([(0, 4), (2, 5)], [None, None]),
    ],
)
def test_the_labels_around(ranges, expected):
    labels = [ag.Label("", start, stop, "", 0) for start, stop in ranges]
    assert list(parents(labels)) == expected


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([("a", 0, 10), ("b", 5, 10)], ["a", "b"]),
        ([("a", 0, 10), ("b", 10, 10)], []),
        ([("a", 0, 10), ("b", 5, 0)], []),
        ([("a", 0, 30), ("b", 5, 10), ("c", 20, 5)], ["a", "b", "c"]),
        ([("a", 0, 10), ("b", 20, 5), ("c", 22, 1)], ["b", "c"]),
    ],
)
def test_labels_whose_times_overlap(spans, expected):
    times = [
        LabelTime(ag.Label(name, number, number + 1, "", 0), float(begin), float(time), float(time))
        for number, (name, begin, time) in enumerate(spans)
    ]
    assert text._overlapping(times) == expected


@pytest.mark.parametrize(
    ("microseconds", "expected"),
    [
        (0.04, "0 us"),
        (0.05, "0.05 us"),
        (999.4, "999 us"),
        (999.6, "1 ms"),
        (1500.0, "1.5 ms"),
        (999_400.0, "999 ms"),
        (999_600.0, "1 s"),
        (2.5e6, "2.5 s"),
    ],
)
def test_a_time_in_a_unit_that_fits(microseconds, expected):
    assert text.duration(microseconds) == expected


def test_the_medians_of_several_replays():
    later = [(begin + 7, end + 7) for begin, end in SPANS]
    slow = [(begin, 3 * end) for begin, end in SPANS]
    assert profile([SPANS, slow, later]).labels == profile().labels


def test_the_table():
    assert str(profile()) == (
        "graph of cuda, device 0, 12 nodes: 400 us a replay (median of 3; 390 us to 410 us)\n"
        "  time     own  share  label\n"
        "300 us   90 us    75%  step  model.py:3\n"
        "200 us  150 us    50%    attention  model.py:12\n"
        " 50 us            12%      scores  model.py:15\n"
        "10 us?             2%    norm  model.py:20\n"
        " 80 us            20%  loss  loss.py:1\n"
        " 20 us             5%  [no label]\n"
        "400 us                 with events at the borders of the labels\n"
        "?: below 20 us the time is uncertain, since the events at the borders are in it."
    )


def test_what_no_clock_tells_is_nothing():
    spans = [(0.0, 300.0), (0.0, 299.996)]
    assert "  0 us          0%  [no label]" in str(profile([spans], [STEP], [300.0])).splitlines()


def test_a_long_table_is_cut():
    many = [ag.Label(str(index), index, index + 1, "a.py", 1) for index in range(50)]
    spans = [(0.0, 5000.0), *((100.0 * index, 100.0 * index + 90) for index in range(50))]
    lines = str(profile([spans], many, [5000.0])).splitlines()
    assert len([line for line in lines if "a.py:1" in line]) == 40
    assert lines[-1] == "... and 10 more labels"


def test_what_has_to_be_known_is_said():
    assert profile(times=(380.0,)).notes[-1] == (
        "The events make a replay 5% slower, so the times of short labels are too long."
    )
    (note,) = profile(labels=[STEP], spans=[[(0, 99), (0, 90)]], cut=[GraphEdge(3, 4, "programmatic")]).notes
    assert note.startswith("An event made node 4 wait for the end of node 3;")
    assert profile(spans=(), why_not="nobody asked").notes == ("No times by label: nobody asked.",)


def test_labels_side_by_side():
    beside = [ag.Label(name, index, index + 1, "a.py", 1) for index, name in enumerate("abc")]
    spans = [(0.0, 300.0), (0.0, 200.0), (100.0, 250.0), (260.0, 300.0)]
    found = profile([spans], beside, [300.0])
    assert found.unlabelled == 10
    assert found.notes == ("Labels on parallel branches, whose times overlap: a, b.",)


def read(profile):
    data = json.loads(profile.to_trace())
    assert set(data) == {"displayTimeUnit", "traceEvents"}
    return data["traceEvents"]


def test_the_trace_has_every_label():
    events = read(profile())
    slices = {each["name"]: each for each in events if each["ph"] == "X"}
    assert list(slices) == ["replay", *(label.name for label in LABELS)]
    assert (slices["scores"]["ts"], slices["scores"]["dur"]) == (100, 50)
    assert slices["scores"]["args"]["source"] == "/somewhere/model.py:15"
    assert {each["ph"] for each in events} == {"X", "M"}
    assert all(isinstance(each[key], int) for each in events for key in ("pid", "tid"))


def test_slices_at_one_place_are_nested_or_apart():
    beside = [ag.Label(name, index, index + 1, "a.py", 1) for index, name in enumerate("abcd")]
    spans = [(0.0, 300.0), (0.0, 200.0), (100.0, 250.0), (150.0, 160.0), (260.0, 300.0)]
    events = read(profile([spans], beside, [300.0]))
    places = {}
    for each in events:
        if each["ph"] == "X":
            places.setdefault(each["tid"], []).append((each["ts"], each["ts"] + each["dur"]))
    assert len(places) == 3
    for slices in places.values():
        for a in slices:
            for b in slices:
                assert (
                    a[1] <= b[0]
                    or b[1] <= a[0]
                    or a[0] <= b[0] <= b[1] <= a[1]
                    or b[0] <= a[0] <= a[1] <= b[1]
                )
    names = [each["args"]["name"] for each in events if each["ph"] == "M"]
    assert names == ["graph of cuda, device 0: labels", "branch", "branch", "branch"]


def test_single_kernels():
    nodes = [
        GraphNode(0, "kernel", "_Z4workPf", demangled="work(float*)"),
        GraphNode(1, "host"),
        GraphNode(2, "memset", nbytes=4),
    ]
    nodes.append(nodes[0]._replace(id=3))
    runs = [{0: (0.0, 50.0), 2: (50.0, 52.0), 3: (60.0 + late, 90.0 + late)} for late in (0, 1, 50)]
    found = profile(spans=(), why_not="x").with_kernels(nodes, runs)
    assert [(each.node.id, each.begin, each.time) for each in found.kernels] == [
        (0, 0, 50),
        (2, 50, 2),
        (3, 61, 30),
    ]
    assert str(found).splitlines()[1:4] == [
        " time  share  runs  kernel",
        "80 us    98%     2  work",
        " 2 us     2%     1  memset",
    ]
    slices = {each["args"].get("node"): each for each in read(found) if each["ph"] == "X"}
    assert (slices[3]["name"], slices[3]["ts"], slices[3]["dur"], slices[3]["pid"]) == ("work", 61, 30, 2)
    assert slices[3]["args"]["function"] == "_Z4workPf"


def test_a_trace_without_labels_has_the_replay():
    events = read(profile(spans=(), why_not="x"))
    (only,) = [each for each in events if each["ph"] == "X"]
    assert (only["name"], only["ts"], only["dur"]) == ("replay", 0, 400)
