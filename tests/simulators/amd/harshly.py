"""What queues and fences promise, and in harsh mode no more than that.

tests/simulators/test_amd.py runs this in both modes, on both versions of AMD's runtime.
"""

import ctypes
import os
import sys
from ctypes import c_size_t, c_uint32, c_uint64, c_void_p
from itertools import repeat

import pytest

from backends.hip import bench
from processes import execute
from simulators.amd import packets
from simulators.amd.packets import AGENT, COARSE, FINE, NONE, SYSTEM

HARSH = bool(os.environ.get("SOFTWARE_HSA_HARSH"))
SCOPES = NONE, AGENT, SYSTEM


class Step(ctypes.Structure):
    _fields_ = [("cell", c_void_p), ("a", c_uint32), ("b", c_uint32), ("pause", c_uint64)]


class Meet(ctypes.Structure):
    _fields_ = [("mine", c_void_p), ("other", c_void_p)]


@pytest.fixture(scope="module")
def kernels():
    bench.call("hipInit", 0)
    return packets.kernels(bench.SOURCE, "step", "meet")


@pytest.fixture
def queue():
    queue = packets.Queue()
    yield queue
    queue.close()


@pytest.fixture
def put(queue, kernels):
    def put(cell, a, b, **how):
        return queue.put(kernels[0], Step(cell, a, b, 0), **how)

    return put


def word(address):
    """The number in memory, as the host sees it."""
    return c_uint32.from_address(address).value


def written_back(queue):
    packets.wait(queue.put(barrier=True, release=SYSTEM))


class Gate:
    """A kernel that waits, in fine-grained memory, until it is opened."""

    def __init__(self, put):
        self.closed = packets.memory(8, FINE)
        self.opened = self.closed + 4
        self.signal = put(Meet(self.closed, self.opened))
        assert bench.until(lambda: word(self.closed))

    def open(self):
        c_uint32.from_address(self.opened).value = 1


@pytest.fixture
def gate(queue, kernels):
    gate = Gate(lambda arguments: queue.put(kernels[1], arguments))
    yield gate
    gate.open()


@pytest.mark.parametrize("barrier", [False, True])
def test_a_packet_starts_before_others_are_done_unless_it_has_a_barrier_bit(put, gate, barrier):
    cell = packets.memory(4, FINE)
    last = put(cell, 1, 7, barrier=barrier)
    if not HARSH or barrier:
        assert (packets.value_of(last), word(cell)) == (1, 0)
        gate.open()
    packets.wait(last)
    assert packets.value_of(gate.signal) == (0 if not HARSH or barrier else 1)


def test_a_barrier_packet_holds_the_queue_and_waits_if_it_has_a_barrier_bit(queue, put, gate):
    cell = packets.memory(4, FINE)
    free, held = queue.put(), queue.put(barrier=True)
    last = put(cell, 1, 7)
    if HARSH:
        packets.wait(free)
    assert [packets.value_of(each) for each in (free, held, last)] == [0 if HARSH else 1, 1, 1]
    assert word(cell) == 0
    gate.open()
    packets.wait(gate.signal, free, held, last)
    assert word(cell) == 7


@pytest.mark.parametrize("acquire", SCOPES)
@pytest.mark.parametrize("release", SCOPES)
def test_a_kernel_sees_what_was_released_before_an_acquire(queue, put, release, acquire):
    cell = packets.memory(4)
    put(cell, 1, 7, release=release)
    put(cell, 10, 1, barrier=True, acquire=acquire)
    written_back(queue)
    assert word(cell) == (1 if HARSH and NONE in (release, acquire) else 71)


@pytest.mark.parametrize("packet", ["kernel", "barrier"])
def test_a_fence_is_for_all_queues_of_the_agent(queue, kernels, put, packet):
    cells, other = packets.memory(8), packets.Queue()
    kernel = (kernels[0], Step(cells + 4, 1, 1, 0)) if packet == "kernel" else ()
    packets.wait(put(cells, 1, 7))
    packets.wait(other.put(*kernel, release=AGENT))
    packets.wait(other.put(*kernel, acquire=AGENT))
    put(cells, 10, 1)
    written_back(queue)
    other.close()
    assert word(cells) == 71


@pytest.mark.parametrize("release", SCOPES)
def test_the_host_sees_what_was_released_to_the_system(queue, put, release):
    cell = packets.memory(4)
    packets.wait(put(cell, 1, 7, release=release))
    assert word(cell) == (0 if HARSH and release != SYSTEM else 7)
    written_back(queue)
    assert word(cell) == 7


@pytest.mark.parametrize("acquire", SCOPES)
def test_a_kernel_sees_what_the_host_has_copied_after_an_acquire_from_the_system(queue, put, acquire):
    cell, number = packets.memory(4), c_uint32(5)
    packets.call("hsa_memory_copy", c_void_p(cell), ctypes.byref(number), c_size_t(4))
    put(cell, 10, 1, acquire=acquire)
    written_back(queue)
    assert word(cell) == (1 if HARSH and acquire != SYSTEM else 51)


def test_fine_grained_memory_needs_no_fence(put):
    cell = packets.memory(4, FINE)
    packets.wait(put(cell, 1, 7))
    assert word(cell) == 7
    packets.wait(put(cell, 10, 1))
    assert word(cell) == 71


def test_memory_that_is_freed_has_nothing_to_write_back(queue, put):
    cell = packets.memory(4, COARSE)
    packets.wait(put(cell, 1, 7))
    packets.call("hsa_amd_memory_pool_free", c_void_p(cell))
    written_back(queue)


def test_kernels_overtake_each_other(put):
    cells = packets.memory(4 * 32, FINE)
    signals = [put(cells + 4 * i, 1, 1) for i in range(32)]
    packets.wait(*signals)
    ends = [packets.times_of(signal)[1] for signal in signals]
    assert (ends != sorted(ends)) == HARSH


def test_kernels_are_late_as_the_seed_says(queue, put):
    cell = packets.memory(4, FINE)
    signals = [put(cell, 1, 1, barrier=True) for _ in range(32)]
    packets.wait(*signals)
    expected = packets.delays(int(os.environ["SOFTWARE_HSA_HARSH"]), queue) if HARSH else repeat(0)
    before = 0
    late = []
    for signal in signals:
        start, end = packets.times_of(signal)
        late.append(next(expected))
        assert start - before >= late[-1]
        before = end
    assert (max(late) > 100_000) == HARSH


@pytest.mark.parametrize("seed", ["", "7"])
def test_the_seed_is_printed(seed):
    code = "from simulators.amd import packets; packets.call('hsa_init'); packets.Queue().close()"
    done = execute([sys.executable, "-c", code], env={**os.environ, "SOFTWARE_HSA_HARSH": seed})
    assert done.returncode == 0
    assert done.stderr == (f"software HSA: harsh, SOFTWARE_HSA_HARSH={seed}\n" if seed else "")
