"""What can be given as a pool, and how long it lives."""

import sys
import threading
import weakref
from types import SimpleNamespace

import pytest

import accelerator_graph as ag
from accelerator_graph._core import ownership, pools
from core.test_interrupts import Interrupter
from threads import in_thread


class MemPool:
    """Like ``torch.cuda.MemPool``."""

    def __init__(self, number=7):
        self.id = (0, number)


@pytest.fixture(name="stream")
def stream_fixture():
    ownership.drain()
    before = set(pools._pools)
    with ag.Stream(backend="cpu") as stream:
        yield stream
    ownership.drain()
    assert set(pools._pools) <= before


def work():
    ag.current_stream().launch(int)


def captured(g, **how):
    with ag.graph(g, **how):
        work()
    return g


def test_ids():
    assert pools.check_pool(None) is pools.check_pool((0, 0)) is None
    assert pools.check_pool((0, 3)) == (0, 3)
    assert pools.check_pool(MemPool()) == (0, 7)
    for number in ((1, 1), (-1, 0)):
        with pytest.raises(ValueError, match="one of its numbers must be 0"):
            ag.Graph(pool=number)
        with pytest.raises(ValueError, match="one of its numbers must be 0"):
            ag.Graph(pool=SimpleNamespace(id=number))


class MemoryPool:
    """Like ``cupy.cuda.MemoryPool``."""


@pytest.mark.promise("memory-pool-is-no-pool")
@pytest.mark.parametrize("what", [MemoryPool(), [0, 1], (0, 1, 2), (0, True), SimpleNamespace(id=7), 7])
def test_what_is_no_pool(what):
    for give in (
        lambda: ag.Graph(pool=what),
        lambda: ag.graph(ag.Graph(), pool=what),
        lambda: ag.Graph().capture_begin(what),
        lambda: ag.graphed(int, pool=what),
    ):
        with pytest.raises(TypeError, match=r"such as a torch\.cuda\.MemPool, not"):
            give()


@pytest.mark.promise("pool-object-is-kept")
def test_a_pool_object_lives_as_long_as_a_graph_has_its_id(stream):
    mine = MemPool()
    there = weakref.ref(mine)
    g = captured(ag.Graph(), pool=mine)
    del mine
    h = captured(ag.Graph(), pool=g.pool())
    g.reset()
    assert there() is not None
    h.reset()
    assert there() is None


class Framework:
    """One that uses pools."""

    def __init__(self, release):
        self.release = release


def begun(pool, release=None):
    """Return the lease of a capture that has begun, in which a framework takes part."""
    lease = pools.Lease(pool, ag.backends.get("cpu"), 0)
    if release is not None:
        lease.used_by([Framework(release)])
    return lease


def test_a_pool_object_is_kept_by_the_graph_that_it_was_given_to(stream):
    mine = MemPool()
    there, g = weakref.ref(mine), captured(ag.Graph(), pool=mine.id)
    h = captured(ag.Graph(), pool=mine)
    del mine
    assert there() is not None
    assert g.pool() == h.pool()
    h.reset()
    assert there() is None


def test_a_pool_that_is_used_anew_before_its_end_was_seen_to_has_not_ended():
    ended, pool = [], ag.graph_pool_handle()
    framework = Framework(ended.append)
    first = begun(pool)
    first.used_by([framework])
    del first
    second, third = begun(pool), None
    second.capturing = False
    third = begun(pool)
    for each in (second, third):
        each.used_by([framework])
    del each
    ownership.drain()
    assert ended == []
    del second
    ownership.drain()
    assert ended == []
    del third
    ownership.drain()
    assert ended == [pool]


def test_every_framework_releases_a_pool_even_if_another_one_raises(monkeypatch):
    shown, released = [], []
    monkeypatch.setattr(sys, "excepthook", lambda *what: shown.append(what[1]))

    def release(pool):
        released.append(pool)
        raise LookupError(str(len(released)))

    lease = begun(pool := ag.graph_pool_handle(), release)
    lease.used_by([Framework(release) for _ in range(2)])
    del lease
    ownership.drain()
    assert released == [pool] * 3
    assert [str(each) for each in shown] == ["3"]


def test_a_clean_up_runs_while_other_threads_capture():
    """Of these, only a capture into the pool that ends has to wait."""
    pool, started, go, order = ag.graph_pool_handle(), threading.Event(), threading.Event(), []

    def release(pool):
        started.set()
        assert go.wait(120), "the other thread waits for this clean-up"
        order.append("ended")

    def capture_into_the_same():
        begun(pool).release()
        order.append("begun")

    lease = begun(pool, release)
    lease.release()
    del lease
    ending = threading.Thread(target=ownership.drain)
    ending.start()
    assert started.wait(120)
    same = threading.Thread(target=capture_into_the_same)
    same.start()
    begun(ag.graph_pool_handle()).release()
    assert order == []
    go.set()
    for thread in (ending, same):
        thread.join(120)
    assert order == ["ended", "begun"]


def ended_at(at):
    """End a pool with an interrupt at the given moment of its clean-up, and then without one."""
    pool, cleaned = ag.graph_pool_handle(), []
    lease = begun(pool, cleaned.append)
    lease.release()
    del lease
    interrupter = Interrupter(at, KeyboardInterrupt, inside=(threading,))
    interrupter.strike(ownership.drain)
    ownership.drain()
    return pool, cleaned, interrupter


def test_an_interrupted_clean_up_keeps_no_capture_waiting():
    lines = ended_at(0)[2].lines
    assert lines > 10
    for at in range(1, lines + 1):
        pool, cleaned, interrupter = ended_at(at)
        where = f"interrupted at {interrupter.where}"
        assert set(cleaned) == {pool}, where
        in_thread(lambda pool: begun(pool).release(), pool)


def test_a_clean_up_can_capture_into_its_pool(stream):
    pool, found = ag.graph_pool_handle(), []
    lease = begun(pool, lambda pool: found.append(begun(pool)))
    lease.release()
    del lease
    ownership.drain()
    assert len(found) == 1


def test_an_id_of_a_graphs_own_ends_with_its_last_graph(stream):
    before, g = set(pools._pools), captured(ag.Graph())
    assert g.pool() not in before
    assert g.pool() == g.pool()
    captured(h := ag.Graph(), pool=g.pool())
    g.reset()
    captured(g, pool=h.pool())
    assert g.pool() == h.pool()
    for each in (g, h):
        pool = each.pool()
        each.reset()
    with pytest.raises(ValueError, match="ended with the last graph"):
        captured(g, pool=pool)


def test_everything_takes_a_pool_object(stream):
    mine = MemPool()
    g = captured(ag.Graph(pool=mine))
    h = ag.Graph()
    h.graph_pool = mine
    assert h.graph_pool is mine
    h.capture_begin()
    work()
    h.capture_end()
    k = ag.Graph()
    k.capture_begin(mine)
    work()
    k.capture_end()
    assert g.pool() == h.pool() == k.pool() == mine.id
    for each in (g, h, k):
        each.reset()
    function = ag.graphed(work, warmup=0, pool=mine)
    function()
    assert mine.id in pools._pools
    function.cache_clear()


@pytest.mark.promise("pool-of-one-device")
def test_a_pool_belongs_to_one_device_and_has_one_capture_at_a_time():
    backend, pool = ag.backends.get("cpu"), ag.graph_pool_handle()
    lease = begun(pool)
    for device, error, words in (
        (0, ag.GraphStateError, "another capture into it is under way; end that capture first"),
        (1, ValueError, "belongs to device 0 of backend 'cpu', not to device 1 of backend 'cpu'"),
    ):
        with pytest.raises(error, match=words):
            pools.Lease(pool, backend, device)
    with pytest.raises(ValueError, match="was never given out"):
        begun((0, pool[1] + 1))
    lease.capturing = False
    assert begun(pool).id == lease.id == pool
