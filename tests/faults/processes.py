"""Forks, and the interpreter's exit, with the driver open and in the middle of captures."""

import pytest

from core.test_processes import FORK, needs_fork, run

from . import figures
from .vendor import BACKEND, vendor

WORK = (
    f"{vendor.MEMORY_IN_A_SCRIPT}\nBACKEND = {BACKEND!r}"
    + """
def captured(value, **options):
    stream = ag.Stream(backend=BACKEND)
    with stream, ag.Graph(**options) as graph:
        stream.fill(memory, value)
    return graph
def replayed(graph, value):
    memory[:] = bytes(4)
    graph.replay(); graph.stream.synchronize()
    assert bytes(memory) == bytes([value] * 4)
"""
)


@pytest.fixture(autouse=True)
def counted():
    yield
    figures.states_checked += 1


@needs_fork
@pytest.mark.parametrize("look", [f"ag.is_graph_available({BACKEND!r})", "ag.backends.report()"])
def test_a_fork_after_the_probe_works_on_both_sides(look):
    run(FORK + WORK + f"{look}\nin_child(lambda: replayed(captured(3), 3))\nreplayed(captured(4), 4)")


@needs_fork
def test_a_fork_after_the_driver_was_opened():
    run(
        FORK
        + WORK
        + """
g = captured(3, keep_graph=True); s = g.stream; event = s.record()
launch = g.bind(); replay = g.replay
def check():
    for call in (launch, s.synchronize, s.query, s.record, lambda: s.wait(event), lambda: s.fill(memory, 1)):
        refused(call)
    assert g.state == "empty"
    g.reset()
    refused(lambda: ag.Stream(backend=BACKEND), ag.BackendUnavailableError)
    refused(lambda: ag.Graph(backend=BACKEND), ag.BackendUnavailableError)
    assert not ag.is_graph_available(BACKEND)
    with ag.Stream(backend="cpu") as mine, ag.Graph() as fresh:
        mine.launch(print)
in_child(check)
launch(); replay(); replayed(g, 3); replayed(captured(5), 5)
"""
    )


@needs_fork
@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_a_fork_in_the_middle_of_a_capture(mode):
    run(
        FORK
        + WORK
        + f"""
from accelerator_graph._core import capture_table
def check():
    assert not capture_table.live and not capture_table.thread.graphs
    assert g.state == "empty"
    refused(lambda: s.fill(memory, 2))
    g.reset()
with ag.Stream(backend=BACKEND) as s, ag.Graph(capture_error_mode={mode!r}) as g:
    s.fill(memory, 1)
    in_child(check)
    s.fill(memory, 2)
assert g.num_nodes == 2
replayed(g, 2)
"""
    )


@needs_fork
def test_a_child_that_dies_in_the_middle_of_the_block_prints_nothing():
    run(
        FORK
        + WORK
        + """
with ag.Stream(backend=BACKEND) as s, ag.Graph() as g:
    pid = os.fork()
    if pid == 0:
        del g, s
        import gc; gc.collect()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    s.fill(memory, 7)
replayed(g, 7)
"""
    )


LIVE = """
kept = captured(3, keep_graph=True); kept.instantiate()
ready = captured(4)
launch, event = ready.bind(), ready.stream.record()
cycle = [kept, ready, launch, event]; cycle.append(cycle)
"""


@pytest.mark.parametrize(
    "end",
    [
        "",
        "launch()",
        "ready.reset()",
        "other = ag.Graph(stream=ag.Stream(backend=BACKEND)); other.capture_begin()",
        "with ag.Stream(backend=BACKEND) as s, ag.Graph() as g: s.fill(memory, 1); sys.exit(0)",
        "import threading; stop = threading.Event(); threading.Thread(target=stop.wait, daemon=True).start()",
        "threading.Thread(target=forever, daemon=True).start()",
    ],
    ids=["live", "running", "reset", "capturing", "in the block", "daemon", "launching daemon"],
)
def test_the_interpreter_ends_quietly(end):
    start = "import sys, threading\nimport accelerator_graph as ag\n"
    forever = "def forever():\n    while True: launch()\n"
    run(start + WORK + LIVE + forever + end)
