"""Captures of the HIP backend that fail, and the streams that they leave: as good as new."""

import pytest

from accelerator_graph import errors
from accelerator_graph.backends.base import CaptureStatus
from backends.hip.bench import NO_TIMING, allocate, answer, bare_end, call, last_error, made, status_of
from backends.tools import MODES, child, linked, replayed
from threads import in_thread

pytest_plugins = ["backends.hip.fixtures"]
pytestmark = pytest.mark.usefixtures("no_error_left")


def as_good_as_new(backend, stream, other, block, mode="thread_local"):
    """Capture on both streams, forked to the other one: all nodes are there, and nothing is forbidden."""
    for value, (first, second) in enumerate(((stream, other), (other, stream)), start=11):
        assert status_of(first) == status_of(second) == "none"
        assert allocate() == 0
        assert in_thread(allocate) == 0
        token = backend.capture_begin(first, mode)
        backend.fill(first, block, 1, None)
        linked(backend, first, second)
        backend.fill(second, block, 2, None)
        backend.fill(second, block, value, None)
        linked(backend, second, first)
        backend.fill(first, block, 4, 8)
        graph = backend.capture_end(token)
        assert [node.kind for node in backend.nodes(graph)[0]] == ["memset"] * 4
        replayed(backend, graph, first)
        assert block.read() == b"\4" * 8 + bytes([value]) * (block.nbytes - 8)
    assert last_error() == 0


# What breaks a capture on the stream, with work on it; what the runtime answers to its end; not in the modes.
FAILURES = {
    "a wait": (901, ()),
    "an allocation": (901, ("relaxed",)),
    "an allocation elsewhere": (901, ("thread_local", "relaxed")),
    "the legacy stream": (901, ()),
    "a captured event": (901, ()),
    "a query of the fork": (904, ()),
    "unjoined work": (904, ()),
    "somebody's end": (401, ()),
}
CASES = [(how, mode) for how, (_, without) in FAILURES.items() for mode in MODES if mode not in without]


def spoil(backend, stream, other, block, how):
    match how:
        case "a wait":
            with pytest.raises(errors.DriverError) as raised:
                backend.synchronize(stream)
            assert raised.value.reason == "illegal_call"
            assert backend.capture_status(stream) is CaptureStatus.INVALIDATED
        case "an allocation":
            assert allocate() == 900
        case "an allocation elsewhere":
            assert in_thread(allocate) == 900
        case "the legacy stream":
            assert answer("hipMemset", block.pointer, 0, 8) == 906
        case "a captured event":
            event = made("hipEventCreateWithFlags", NO_TIMING)
            call("hipEventRecord", event, int(stream))
            assert answer("hipEventQuery", event) == 907
            call("hipEventDestroy", event)
        case "a query of the fork":
            linked(backend, stream, other)
            backend.fill(other, block, 2, None)
            with pytest.raises(errors.DriverError):
                backend.query(other)
        case "unjoined work":
            linked(backend, stream, other)
            backend.fill(other, block, 2, None)
        case "somebody's end":
            call("hipGraphDestroy", bare_end(int(stream))[1])
    answer("hipGetLastError")  # of the calls that were not the backend's


@pytest.mark.parametrize(("how", "mode"), CASES)
@pytest.mark.parametrize("finish", ["end", "abandon"])
def test_a_failed_capture_leaves_no_trace(backend, stream, other, block, how, mode, finish):
    token = backend.capture_begin(stream, mode)
    backend.fill(stream, block, 1, None)
    spoil(backend, stream, other, block, how)
    if finish == "abandon":
        backend.capture_abandon(token)
    else:
        with pytest.raises(errors.DriverError) as raised:
            backend.capture_end(token)
        assert raised.value.code == FAILURES[how][0]
        assert raised.value.call == "hipStreamEndCapture"
    assert last_error() == 0
    as_good_as_new(backend, stream, other, block, mode)
    backend.capture_abandon(token)
    as_good_as_new(backend, stream, other, block)


def failed(backend, stream, other, block, mode, how):
    token = backend.capture_begin(stream, mode)
    backend.fill(stream, block, 1, None)
    spoil(backend, stream, other, block, how)
    with pytest.raises(errors.DriverError):
        backend.capture_end(token)


@pytest.mark.parametrize("mode", MODES)
def test_failures_in_a_row(backend, stream, other, block, mode):
    for how in 3 * ("unjoined work", "a wait", "a query of the fork"):
        failed(backend, stream, other, block, mode, how)
    as_good_as_new(backend, stream, other, block, mode)


@pytest.mark.parametrize("mode", MODES)
def test_a_third_stream_comes_back_too(backend, stream, other, block, mode):
    third = backend.create_stream(0)
    token = backend.capture_begin(stream, mode)
    linked(backend, stream, other)
    backend.fill(other, block, 1, None)
    linked(backend, other, third)
    backend.fill(third, block, 1, None)
    assert status_of(third) == "active"
    with pytest.raises(errors.DriverError) as raised:
        backend.capture_end(token)
    assert raised.value.reason == "unjoined"
    assert status_of(third) == "none"
    as_good_as_new(backend, stream, third, block, mode)
    as_good_as_new(backend, other, third, block, mode)
    backend.destroy_stream(third)


@pytest.mark.parametrize("mode", MODES)
def test_the_per_thread_stream_comes_back(backend, other, block, mode):
    stream = backend.as_stream(2)
    for how in ("unjoined work", "a wait"):
        failed(backend, stream, other, block, mode, how)
        as_good_as_new(backend, stream, other, block, mode)


@pytest.mark.parametrize("mode", MODES)
def test_a_capture_is_abandoned(backend, stream, other, block, mode):
    def begin():
        token = backend.capture_begin(stream, mode)
        backend.fill(stream, block, 1, None)
        return token

    def dead():
        return in_thread(begin)  # a thread that has ended

    for started in (begin,) if mode == "global" else (begin, dead):  # for the other one see below
        token = started()
        assert backend.capture_status(stream) is CaptureStatus.ACTIVE
        backend.capture_abandon(token)
        assert backend.capture_status(stream) is CaptureStatus.NONE
        backend.capture_abandon(token)
        as_good_as_new(backend, stream, other, block, mode)


@pytest.mark.parametrize("finish", ["end", "abandon"])
@pytest.mark.parametrize("mode", ["global", "thread_local"])
def test_a_capture_that_another_thread_ends(backend, other, block, mode, finish):
    """The library allows that only once the first thread has ended. While it lives, the runtime goes on
    forbidding it what a capture forbids, until the stream is destroyed."""
    stream = backend.create_stream(0)
    token = backend.capture_begin(stream, mode)
    backend.fill(stream, block, 1, None)
    if finish == "abandon":
        in_thread(lambda: backend.capture_abandon(token))
    else:
        with pytest.raises(errors.DriverError) as raised:
            in_thread(lambda: backend.capture_end(token))
        assert raised.value.reason == "wrong_thread"
    assert status_of(stream) == "none"
    assert allocate() in (0, 900)
    backend.destroy_stream(stream)
    stream = backend.create_stream(0)
    as_good_as_new(backend, stream, other, block, mode)
    backend.destroy_stream(stream)


def test_another_thread_may_end_a_relaxed_capture(backend, stream, other, block):
    token = backend.capture_begin(stream, "relaxed")
    backend.fill(stream, block, 6, None)
    replayed(backend, in_thread(lambda: backend.capture_end(token)), stream)
    assert block.read() == bytes([6] * block.nbytes)
    as_good_as_new(backend, stream, other, block)


DEAD = (
    "from backends.hip.test_captures import *\n"
    "from backends.tools import *\n"
    "from backends.hip.bench import *\n"
    "backend, block = opened(), Block()\n"
    "stream, other = backend.create_stream(0), backend.create_stream(0)\n"
    "def begin():\n"
    "    global token\n"
    "    token = backend.capture_begin(stream, 'global')\n"
    "    backend.fill(stream, block, 1, None)\n"
    "in_thread(begin)\n"
    "backend.capture_abandon(token)\n"
    "before = status_of(stream), allocate(), in_thread(allocate)\n"
    "backend.destroy_stream(stream)\n"
    "answer('hipGetLastError')\n"
    "as_good_as_new(backend, other, backend.create_stream(0), block, 'global')\n"
    "print(*before)"
)


def test_a_global_capture_of_a_dead_thread_forbids_until_its_stream_is_destroyed(backend, runtime):
    """Upstream (rocm-systems#6097): if it prints ``none 0 0``, that case needs no exception any more."""
    status, printed, complaint = child(DEAD)
    assert (status, printed) == (0, "none 900 900"), complaint


def test_the_per_thread_stream_of_a_thread_with_the_ident_of_a_dead_one_is_left_alone(backend):
    """In a process of its own, since the dead thread's capture goes on in the runtime."""
    code = (
        "from backends.tools import *\n"
        "from backends.hip.bench import *\n"
        "backend, kernels, cells = opened(), loaded(), Cells(1)\n"
        "own = backend.as_stream(2)\n"
        "def begin():\n"
        "    token = backend.capture_begin(own, 'relaxed')\n"
        "    step(backend, kernels, own, cells.at(0), 10, 1)\n"
        "    return token\n"
        "def healthy(token):\n"
        "    mine = begin()\n"
        "    backend.capture_abandon(token)\n"
        "    step(backend, kernels, own, cells.at(0), 10, 2)\n"
        "    replayed(backend, backend.capture_end(mine), own)\n"
        "    print(cells[0])\n"
        "in_threads_of_one_ident(begin, healthy)"
    )
    status, printed, complaint = child(code)
    assert (status, printed) == (0, "1212"), complaint


# ---- what the runtime does by itself: these say when `_reset_stream` can go -----------------------

BARE = (
    "from backends.hip.test_captures import *\n"
    "from backends.tools import *\n"
    "from backends.hip.bench import *\n"
    "call('hipInit', 0)\n"
    "block = Block()\n"
    "def fill(on): return answer('hipMemsetAsync', block.pointer, 1, 64, on)\n"
    "stream, other = bare_stream(), bare_stream()\n"
    "bare_begin(stream, {mode!r}); fill(stream)\n"
    "{spoil}\n"
    "print(bare_end(stream)[0], status_of(stream), status_of(other), flush=True)\n"
    "codes = [bare_begin(stream, {mode!r}), fill(stream), fork(stream, other), fill(other)]\n"
    "codes.append(fork(other, stream))\n"
    "code, graph = bare_end(stream)\n"
    "try: print(*codes, code, graph and len(nodes_of(graph)))\n"
    "except AssertionError: print('no graph')"
)


def bare(mode, spoil):
    return child(BARE.format(mode=mode, spoil=spoil))


@pytest.mark.parametrize("mode", MODES)
def test_upstream_the_capture_after_an_invalidated_one_is_no_graph(runtime, mode):
    """TheRock#7869. The status stays; the next capture ends well, with the handle of no graph."""
    status, printed, complaint = bare(mode, "assert answer('hipStreamQuery', stream) == 900")
    assert (status, printed) == (0, "901 invalidated none\nno graph"), complaint


@pytest.mark.parametrize("mode", ["global", "thread_local"])
def test_upstream_a_stream_with_unjoined_work_goes_on_capturing(runtime, mode):
    status, printed, complaint = bare(mode, "fork(stream, other); fill(other)")
    assert status == 0, complaint
    first, second = printed.splitlines()
    assert first == "904 active active"
    assert second.startswith("401 ")
    assert second.endswith(" 908 None")


def test_upstream_ending_a_relaxed_capture_twice_crashes(runtime):
    status, printed, _ = bare("relaxed", "fork(stream, other); fill(other)")
    assert printed == "904 active active"
    assert status not in (0, 1)
