"""What AMD's runtime answers during captures, and the rest that the HIP backend relies on, call by call.

Runs on AMD's own runtime only. Every answer is that of the versions 7.2 and 6.4, which differ where a row
says so.
"""

import ctypes
import threading
import time
from ctypes import byref, c_size_t, c_uint64, c_void_p

import pytest

from accelerator_graph.backends.driver import PER_THREAD_STREAM
from backends.hip.bench import (
    TIMEOUT,
    Block,
    Gate,
    answer,
    bare_begin,
    bare_end,
    bare_stream,
    call,
    edges_of,
    fork,
    last_error,
    loaded,
    nodes_of,
    status_of,
)
from backends.tools import MODES
from driver_rules.hip_scene import Scene
from threads import in_thread

pytest_plugins = ["backends.hip.fixtures"]
pytestmark = [pytest.mark.needs("amd"), pytest.mark.usefixtures("runtime")]

# One step while stream s captures, and holds one fill and the record of event `inside`. What it answers, in
# each mode: `ok`: the capture is still active and ends well; `ok+1`: the same with one node more; a code: it
# is invalidated, ending it answers 901, and it stays invalidated; a code with `=`: the step is refused, and
# the capture is as it was. What is `ok` on the stream s and adds no node ran at once.
RULES = """
step                    thread  stream s      runtime  global  thread_local  relaxed

device_sync             any     any           any      900     900           900
sync s                  any     any           any      900     900           900
query s                 any     any           any      900     900           900
device s                any     any           any      ok      ok            ok
flags s                 any     any           any      ok      ok            ok
priority s              any     any           any      ok      ok            ok
status s                any     any           any      ok      ok            ok
info s                  any     any           any      ok      ok            ok
range                   any     any           any      ok      ok            ok
set_device              any     any           any      ok      ok            ok
mem_info                any     any           any      ok      ok            ok
sync a                  here    any           any      900     900           ok
sync a                  other   any           any      900     ok            ok
query a                 here    any           any      900     900           ok
query a                 other   any           any      900     ok            ok
sync null               any     any           any      ok      ok            ok
query null              any     any           any      ok      ok            ok
sync own                here    any           any      900     900           ok
sync own                other   any           any      900     ok            ok
query own               here    any           any      900     900           ok
query own               other   any           any      900     ok            ok
device a                any     any           any      ok      ok            ok
info null               any     non-blocking  any      ok      ok            ok
info null               any     blocking      any      906=    906=          906=
fill s                  any     any           any      ok+1    ok+1          ok+1
copy s                  any     any           any      ok+1    ok+1          ok+1
copy_pageable s         any     any           any      ok+1    ok+1          ok+1
kernel s                any     any           any      ok+1    ok+1          ok+1
host_function s         any     any           any      ok+1    ok+1          ok+1
callback s              any     any           7.2      900     900           900
callback s              any     any           6.4      ok      ok            ok
fill a                  any     any           any      ok      ok            ok
kernel a                any     any           any      ok      ok            ok
fill null               any     any           any      ok      ok            ok
copy null               any     any           any      ok      ok            ok
kernel null             any     any           any      ok      ok            ok
fill own                any     any           any      ok      ok            ok
fill_now                any     any           any      906     906           906
write_now               any     any           any      906     906           906
alloc                   here    any           any      900     900           ok
alloc                   other   any           any      900     ok            ok
alloc_host              here    any           any      900     900           ok
alloc_host              other   any           any      900     ok            ok
free                    here    any           any      900     900           ok
free                    other   any           any      900     ok            ok
alloc_on s              any     any           any      ok+1    ok+1          ok+1
alloc_on a              any     non-blocking  any      ok      ok            ok
alloc_on a              any     blocking      any      900=    900=          900=
trim                    any     any           any      ok      ok            ok
graph_memory            any     any           any      ok      ok            ok
create                  any     any           any      ok      ok            ok
destroy b               any     any           any      ok      ok            ok
event_create            any     any           any      ok      ok            ok
event_destroy inside    any     any           any      ok      ok            ok
event_destroy outside   any     any           any      ok      ok            ok
event_query inside      any     any           any      907     907           907
event_query outside     here    any           7.2      900     900           ok
event_query outside     other   any           7.2      900     ok            ok
event_query outside     any     any           6.4      ok      ok            ok
event_query fresh       here    any           7.2      900     900           ok
event_query fresh       other   any           7.2      900     ok            ok
event_query fresh       any     any           6.4      ok      ok            ok
event_sync inside       any     any           any      907     907           907
event_sync outside      here    any           any      900     900           ok
event_sync outside      other   any           any      900     ok            ok
record fresh a          any     any           any      ok      ok            ok
record fresh null       any     any           any      ok      ok            ok
wait s outside          any     any           any      ok      ok            ok
wait s before           any     any           any      905=    905=          905=
wait s fresh            any     any           any      ok      ok            ok
wait s inside           any     any           any      ok      ok            ok
wait a inside           any     any           any      ok      ok            ok
wait a outside          any     any           any      ok      ok            ok
begin s                 any     any           any      401=    401=          401=
begin a                 any     any           any      ok      ok            ok
instantiate             any     any           any      ok      ok            ok
update                  any     any           any      ok      ok            ok
upload a                any     any           any      ok      ok            ok
upload s                any     any           any      ok      ok            ok
launch a                any     any           any      ok      ok            ok
launch s                any     any           any      ok      ok            ok
launch null             any     any           any      ok      ok            ok
nodes                   any     any           any      ok      ok            ok
edit                    any     any           any      ok      ok            ok
add_child s             any     any           any      ok+1    ok+1          ok+1
add_record s fresh      any     any           any      ok+1    ok+1          ok+1
add_wait s outside      any     any           any      ok+1    ok+1          ok+1
add_wait s before       any     any           any      ok+1    ok+1          ok+1
add_wait s fresh        any     any           any      ok+1    ok+1          ok+1
exec_destroy            any     any           any      ok      ok            ok
graph_destroy           any     any           any      ok      ok            ok
"""


def rules():
    for line in RULES.strip().splitlines()[2:]:
        *step, threads, blocking, runtime, here, there, relaxed = line.split()
        for thread in ("here", "other") if threads == "any" else (threads,):
            for kind in ("blocking", "non-blocking") if blocking == "any" else (blocking,):
                for mode, cell in zip(MODES, (here, there, relaxed), strict=True):
                    which = f"{'_'.join(step)}-{thread}-{kind}-{mode}-{runtime}"
                    yield pytest.param(" ".join(step), thread, kind, runtime, mode, cell, id=which)


def expected(cell):
    """The step's code, the status after it, the end's code, the nodes and the status after the end."""
    code, _, more = cell.partition("+")
    if code == "ok":
        return 0, "active", 0, 1 + int(more or 0), "none"
    if code.endswith("="):
        return int(code[:-1]), "active", 0, 1, "none"
    return int(code), "invalidated", 901, None, "invalidated"


@pytest.fixture
def scene(request):
    scene = Scene(getattr(request, "param", "non-blocking") == "blocking")
    yield scene
    scene.close()


@pytest.mark.parametrize(
    ("step", "thread", "scene", "version", "mode", "cell"), [*rules()], indirect=["scene"]
)
def test_a_step_during_a_capture(runtime, scene, step, thread, version, mode, cell):
    if version not in ("any", ".".join(map(str, runtime))):
        pytest.skip(f"that is how HIP {version} answers")
    stream = scene.streams["s"]
    assert bare_begin(stream, mode) == scene("fill s") == scene("record inside s") == 0
    code = scene.in_thread(step) if thread == "other" else scene(step)
    status = status_of(stream)
    assert (code, status, *scene.end(), status_of(stream)) == expected(cell)


# ---- the ends of captures ------------------------------------------------------------------------

RUBBISH = 0x77


def end_with_rubbish(stream):
    """End a capture: the code, and whether the handle of the graph was written to."""
    graph = c_void_p(RUBBISH)
    code = answer("hipStreamEndCapture", stream, byref(graph))
    return code, graph.value != RUBBISH


def test_an_end_without_a_capture_leaves_rubbish(scene):
    assert end_with_rubbish(scene.streams["s"]) == (401, True)
    assert last_error() == 401


@pytest.mark.parametrize("mode", MODES)
def test_unjoined_work(scene, mode):
    first, second = scene.streams["s"], scene.streams["a"]
    bare_begin(first, mode)
    assert fork(first, second) == scene("fill a") == 0
    scene.unended = mode
    assert end_with_rubbish(first)[0] == 904
    assert status_of(first) == status_of(second) == "active"


@pytest.mark.parametrize(("mode", "code"), [("global", 908), ("thread_local", 908), ("relaxed", 0)])
def test_an_end_on_another_thread(scene, mode, code):
    stream = scene.streams["s"]
    bare_begin(stream, mode)
    assert scene("fill s") == 0
    found, graph = in_thread(lambda: bare_end(stream))
    assert (found, status_of(stream)) == (code, "active" if code else "none")
    if code:
        found, graph = bare_end(stream)
        assert (found, status_of(stream)) == (0, "none")
    assert len(nodes_of(graph)) == 1
    call("hipGraphDestroy", graph)


def test_begins(scene):
    assert [bare_begin(handle, "thread_local") for handle in (0, 1)] == [900, 900]
    assert answer("hipStreamBeginCapture", scene.streams["s"], 7) == 1
    assert bare_begin(2, "thread_local") == 0
    code, graph = bare_end(2)
    assert (code, nodes_of(graph)) == (0, [])
    call("hipGraphDestroy", graph)


def test_a_join_may_leave_an_edge_that_says_nothing_new(scene):
    """The last fill follows the fill on the same stream, and that on the other one, which follows it too."""
    first, second = scene.streams["s"], scene.streams["a"]
    bare_begin(first, "thread_local")
    assert scene("fill s") == 0
    fork(first, second)
    assert scene("fill a") == 0
    fork(second, first)
    assert scene("fill s") == 0
    code, graph = bare_end(first)
    assert (code, len(nodes_of(graph)), len(edges_of(graph))) == (0, 3, 3)
    call("hipGraphDestroy", graph)


def test_a_destroyed_stream_is_no_longer_known(scene, runtime):
    gone = bare_stream()
    call("hipStreamDestroy", gone)
    assert answer("hipStreamGetDevice", gone, byref(ctypes.c_int())) in (400, 709)


# ---- graphs --------------------------------------------------------------------------------------

FLAGS = {0: 0, 1: 0, 8: 0}  # none, free at launch, priorities of nodes; all others and both at once: 1


@pytest.mark.parametrize("flags", range(33))
def test_the_flags_of_instantiate(scene, flags):
    executable = c_void_p(RUBBISH)
    code = answer("hipGraphInstantiateWithFlags", byref(executable), scene.graph, c_uint64(flags))
    assert code == FLAGS.get(flags, 1)
    assert (executable.value != RUBBISH) == (code == 0)
    if code == 0:
        call("hipGraphExecDestroy", executable)


@pytest.mark.parametrize(
    ("flags", "more"), [(0, False), (1, True), (4, False), (0x400, False), (0x8000, False)]
)
def test_dumps(scene, tmp_path, flags, more):
    path = tmp_path / "graph.dot"
    call("hipGraphDebugDotPrint", scene.graph, str(path).encode(), flags)
    text = path.read_text()
    assert text.startswith("digraph dot {")
    assert "MEMSET" in text
    assert ("elementSize" in text) == more
    assert answer("hipGraphDebugDotPrint", scene.graph, b"/nowhere/graph.dot", flags) == 304


def test_the_names_in_a_dump_come_from_counters(scene, tmp_path):
    names = []
    for _ in range(2):
        graph = c_void_p()
        call("hipGraphClone", byref(graph), scene.graph)
        call("hipGraphDebugDotPrint", graph, str(tmp_path / "x.dot").encode(), 0)
        names.append((tmp_path / "x.dot").read_text())
        call("hipGraphDestroy", graph)
    assert names[0] != names[1]


@pytest.mark.parametrize(
    ("name", "args", "code"),
    [
        ("hipGraphGetNodes", (None, None, byref(c_size_t())), 1),
        ("hipGraphLaunch", (None, 0), 1),
        ("hipSetDevice", (77,), 101),
        ("hipGraphInstantiateWithFlags", (byref(c_void_p()), None, c_uint64(0)), 1),
    ],
)
def test_a_failure_is_the_last_error_until_it_is_asked_for(runtime, scene, name, args, code):
    """Up to 6.4, or until a call succeeds: so `Driver.failed` has to clear it."""
    assert answer(name, *args) == code
    assert last_error() == code
    assert scene("query a") == 0
    assert last_error() == (code if runtime > (6, 4) else 0)
    assert answer("hipGetLastError") == (code if runtime > (6, 4) else 0)
    assert last_error() == 0


@pytest.mark.parametrize("handle", [0, 2])
def test_the_device_of_a_default_stream_is_not_asked_for(handle):
    """It would do for 0; `hipStreamGetDevice` crashes for 1."""
    assert answer("hipStreamGetDevice", handle, byref(ctypes.c_int())) == 0


def test_nobody_waits_for_the_own_stream_of_a_thread_that_ends():
    """The end of the thread does; `hipDeviceSynchronize` and `hipFree` come back before."""

    def is_waited_for():
        gate, memory = Gate(loaded().meet), Block()
        in_thread(lambda: gate.close(PER_THREAD_STREAM))
        time.sleep(0.1)  # the thread may not have got to its end
        waiting = threading.Thread(target=lambda: (call("hipDeviceSynchronize"), memory.free()), daemon=True)
        waiting.start()
        waiting.join(5)
        waits = waiting.is_alive()
        gate.open()
        waiting.join(TIMEOUT)
        return waits

    assert not all(is_waited_for() for _ in range(5))
