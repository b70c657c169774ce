"""The fast path by itself: repeated calls whose arrays have moved, for which nodes are changed."""

from __future__ import annotations

import ctypes
import gc
import sys
import weakref
from array import array

import pytest

from core.fast_arrays import Array
from core.fast_bench import Answered, Background, Owner, compiled, launcher_of, never
from core.test_fast_guard import ARRAY, RESULT, WHERE

pytest_plugins = ["core.fast_fixtures"]

NODES = r"""
#include <stdint.h>
#include <string.h>

typedef struct {
    uint64_t words[4];
    long sets, refused; /* the number of calls that set it, and the first that is refused; 0: none */
    void *executable, *context;
} Node;

int set_node(void *executable, void *node, void *parameters)
{
    Node *self = node;
    if (++self->sets == self->refused)
        return 1;
    self->executable = executable;
    memcpy(self->words, parameters, sizeof self->words);
    return 0;
}

int set_node_in(void *executable, void *node, void *parameters, void *context)
{
    ((Node *)node)->context = context;
    return set_node(executable, node, parameters);
}
"""


class Node(ctypes.Structure):
    _fields_ = (
        ("words", ctypes.c_uint64 * 4),
        ("sets", ctypes.c_long),
        ("refused", ctypes.c_long),
        ("executable", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    )


@pytest.fixture(scope="module")
def nodes_in_c():
    return ctypes.CDLL(str(compiled("nodes", NODES, ".so")))


class Moving(Array):
    """It notes on which streams it was told to be used."""

    def __init__(self, address=0):
        super().__init__(address)
        self.used_on = []

    def record_stream(self, stream):
        self.used_on.append(stream)


SIZE = 32


def address_of(function):
    return ctypes.cast(function, ctypes.c_void_p).value


class Bench:
    """A guard of three arrays, whose addresses stand in two nodes: two in each, one of them in both."""

    WORDS = (((0, 0, 0), (1, 1, 8)), ((2, 2, 0), (3, 1, 0)))
    """Of each node: the number of the word, that of the array, and the distance."""

    def __init__(
        self, fast, vendor, library, *, keep=False, finish=None, in_context=0, code=0, blocks=0, **how
    ):
        self.owner = Owner(vendor, code, blocks)
        self.lock = fast.Lock()
        self.arrays = [Moving(4096 * (i + 1)) for i in range(3)]
        parameters = tuple((i, ARRAY, x, lambda x: x.altered) for i, x in enumerate(self.arrays))
        self.guard = fast.Guard({}, self.lock, 3, 0, parameters, ())
        self.now = array("Q", [x.told[0] for x in self.arrays])
        self.nodes, self.parameters = (Node(), Node()), [(ctypes.c_uint64 * 4)() for _ in range(2)]
        function = address_of(library.set_node_in if in_context else library.set_node)
        self.described = tuple(
            (
                function,
                ctypes.addressof(node),
                ctypes.addressof(cells),
                in_context,
                tuple((ctypes.addressof(cells) + 8 * at, *which) for at, *which in words),
            )
            for node, cells, words in zip(self.nodes, self.parameters, self.WORDS, strict=True)
        )
        given = {
            "owner": self.parameters,
            "executable": self.owner.executable,
            "now": self.now,
            "sizes": array("Q", [SIZE] * 3),
            "captured": array("Q", self.now),
            "alignment": 16,
            "own": array("Q", [1 << 20, (1 << 20) + 4096]),
            "nodes": self.described,
        }
        self.patches = fast.Patches(**given | how)
        self.launcher = launcher_of(fast, self.owner, never)
        self.place = WHERE, (), 77, 0, 0
        result = (RESULT,) if finish is None else None
        self.how = self.launcher, result, finish, self.patches, "stream" if keep else None
        self.keep = keep
        self.follow()

    def follow(self):
        self.guard.follow(self.place, self.how, self.now, self.arrays if self.keep else None)

    def __call__(self, *addresses):
        return self.guard(tuple(map(Moving, addresses)), {})

    @property
    def calls(self):
        return self.owner.vendor.calls(self.owner.executable)

    @property
    def set_to(self):
        return [list(node.words) for node in self.nodes]

    @property
    def sets(self):
        return [node.sets for node in self.nodes]


@pytest.fixture
def bench(fast, vendor, nodes_in_c):
    return Bench(fast, vendor, nodes_in_c)


def test_changes_the_nodes_that_have_addresses_of_arrays_that_moved(bench):
    assert bench(4096, 8192, 16384) == (RESULT,)
    assert bench.set_to == [[0, 0, 0, 0], [0, 0, 16384, 8192]]
    assert bench(4096, 32768, 16384) == (RESULT,)
    assert bench.set_to == [[4096, 32776, 0, 0], [0, 0, 16384, 32768]]
    assert bench(8192, 32768, 16384) == (RESULT,)
    assert bench.set_to == [[8192, 32776, 0, 0], [0, 0, 16384, 32768]]
    assert bench(8192, 32768, 16384) == (RESULT,)
    assert bench.sets == [2, 2]
    assert list(bench.now) == [8192, 32768, 16384]
    assert bench.calls == 4
    assert bench.guard.stop() == 4
    assert bench.nodes[0].executable == bench.owner.executable


@pytest.mark.parametrize(
    "addresses",
    [
        (4096, 8192, 16384 + 8),
        (4096, 8192, 0),
        (4096, 8192, 1 << 20),
        (4096, 8192, (1 << 20) - 16),
        (4096, 8192, (1 << 20) + 4080),
        (4096, 8192, 8192),
        (4096, 8192, 8192 + 16),
        (8192 - 16, 8192, 12288),
        (8192, 8192, 12288),
    ],
)
def test_leaves_arrays_that_may_not_be_there_to_python(bench, addresses):
    answer = bench(*addresses)
    assert [x.told[0] for x in answer[:3]] == list(addresses)
    assert answer[3] is WHERE
    assert bench.sets == [0, 0]
    assert bench.calls == 0
    assert bench(4096, 8192, 12288) == (RESULT,)


def test_takes_arrays_beside_the_memory_of_the_graph_and_beside_each_other(bench):
    assert bench(4096, 8192, (1 << 20) - 32) == (RESULT,)
    assert bench(4096, 8192, (1 << 20) + 4096) == (RESULT,)
    assert bench(4096, 4096 + 32, 4096 + 64) == (RESULT,)


def test_arrays_that_change_places_are_taken(bench):
    assert bench(8192, 4096, 12288) == (RESULT,)
    assert bench.set_to == [[8192, 4104, 0, 0], [0, 0, 12288, 4096]]


def test_changes_nothing_if_an_address_is_not_known(bench):
    bench.now[1] = 0
    assert isinstance(bench(4096, 8192, 16384), list)
    assert bench.sets == [0, 0]


@pytest.mark.promise("undone-nodes")
def test_undoes_the_first_node_if_the_second_is_refused(bench):
    bench.nodes[1].refused = 1
    assert isinstance(bench(4096, 32768, 12288), list)
    assert bench.sets == [2, 1]
    assert bench.set_to[0] == [4096, 8200, 0, 0]
    assert [list(each) for each in bench.parameters] == [[4096, 8200, 0, 0], [0, 0, 12288, 8192]]
    assert list(bench.now) == [4096, 8192, 12288]
    assert bench.calls == 0
    assert bench.guard.stop() == 0


@pytest.mark.promise("undone-nodes")
def test_does_not_know_what_a_node_has_that_can_not_be_undone(bench):
    bench.nodes[0].refused, bench.nodes[1].refused = 2, 1
    assert isinstance(bench(4096, 32768, 12288), list)
    assert list(bench.now) == [0, 0, 12288]
    assert isinstance(bench(4096, 8192, 12288), list)  # as before, which is not what the node has
    assert isinstance(bench(4096, 32768, 12288), list)
    assert bench.calls == 0


def test_moves_from_python(bench):
    assert bench.patches.move(array("Q", [4096, 8, 1 << 20])) is True  # wherever that is
    assert bench.set_to == [[4096, 16, 0, 0], [0, 0, 1 << 20, 8]]
    bench.nodes[1].refused = 2
    assert bench.patches.move(array("Q", [4096, 16, 1 << 20])) is False
    assert bench.set_to[0] == [4096, 16, 0, 0]
    bench.now[0] = 0
    assert bench.patches.move(array("Q", [4096, 16, 1 << 20])) is False
    assert bench.sets == [3, 2]
    for wrong in (array("Q", [1]), array("I", [1, 2, 3])):
        with pytest.raises(ValueError, match="an address"):
            bench.patches.move(wrong)


@pytest.mark.parametrize("third", [4096, 8192 + SIZE - 16, 1 << 20, (1 << 20) - SIZE + 16, 16392, 0])
def test_moves_from_python_what_shares_no_memory(bench, third):
    assert bench.patches.move_apart(array("Q", [4096, 8192, third])) is False
    assert bench.sets == [0, 0]
    assert bench.patches.move_apart(array("Q", [4096, 8192, 16384])) is True
    assert bench.set_to[1][2] == 16384


def test_passes_a_context(fast, vendor, nodes_in_c):
    bench = Bench(fast, vendor, nodes_in_c, in_context=99)
    assert bench(4096, 8192, 16384) == (RESULT,)
    assert bench.nodes[1].context == 99


@pytest.mark.parametrize(("code", "context", "changes"), [(0, 55, True), (0, 56, False), (201, 55, False)])
def test_changes_nodes_in_one_context_only(fast, vendor, nodes_in_c, code, context, changes):
    bench = Bench(fast, vendor, nodes_in_c, current=address_of(vendor.current), context=55)
    vendor.go_to(code, ctypes.c_void_p(context))
    try:
        assert (bench(4096, 8192, 16384) == (RESULT,)) is changes
        assert bench.sets == [0, int(changes)]
        assert bench.patches.move(array("Q", [4096, 8192, 4096])) is changes
    finally:
        vendor.go_to(0, None)


def test_changes_no_node_of_another_executable(fast, vendor, nodes_in_c):
    bench = Bench(fast, vendor, nodes_in_c, executable=5)
    assert isinstance(bench(4096, 8192, 16384), list)
    assert isinstance(bench(4096, 8192, 12288), list)
    assert bench.sets == [0, 0]


def test_changes_nothing_without_the_lock(bench):
    with bench.lock:
        assert isinstance(bench(4096, 8192, 16384), list)
    assert bench.sets == [0, 0]


def test_raises_what_the_launch_answers_and_keeps_the_changes(fast, vendor, nodes_in_c):
    bench = Bench(fast, vendor, nodes_in_c, code=719)
    with pytest.raises(Answered, match="719"):
        bench(4096, 8192, 16384)
    assert list(bench.now) == [4096, 8192, 16384]
    with pytest.raises(Answered, match="719"):
        bench(4096, 8192, 16384)
    assert bench.sets == [0, 1]


# ---- arrays that are kept ------------------------------------------------------------------------


def test_tells_arrays_that_are_new_that_they_are_used(fast, vendor, nodes_in_c):
    bench = Bench(fast, vendor, nodes_in_c, keep=True)
    x, y, z = bench.arrays
    other, again = Moving(16384), Moving(8192)
    for arrays in [(x, y, z), (x, y, other), (x, y, other), (x, again, other), (x, y, z)]:
        assert bench.guard(arrays, {}) == (RESULT,)
    assert [each.used_on for each in (x, y, z, other, again)] == [[], *[["stream"]] * 4]
    assert bench.guard((x, y, other), {}) == (RESULT,)
    other.told = (20480, *other.told[1:])  # the same object with other memory
    assert bench.guard((x, y, other), {}) == (RESULT,)
    assert other.used_on == ["stream"] * 3
    assert bench.calls == 7


def test_holds_no_array(fast, vendor, nodes_in_c):
    bench = Bench(fast, vendor, nodes_in_c, keep=True)
    x, y, z = Moving(4096), Moving(8192), Moving(16384)
    assert bench.guard((x, y, z), {}) == (RESULT,)
    gone = [weakref.ref(each) for each in (x, y, z)]
    del x, y, z
    gc.collect()
    assert [each() for each in gone] == [None] * 3
    assert bench(4096, 8192, 16384) == (RESULT,)
    references = [weakref.ref(each) for each in bench.arrays]
    before = [sys.getrefcount(each) for each in references]
    for last in (12288, 16384) * 50:
        assert bench.guard((*bench.arrays[:2], Moving(last)), {}) == (RESULT,)
    assert max(sys.getrefcount(each) for each in references) < max(before) + 10


def test_changes_nothing_if_an_array_can_not_be_told(fast, vendor, nodes_in_c):
    class Untold(Moving):
        def record_stream(self, stream):
            raise MemoryError

    bench = Bench(fast, vendor, nodes_in_c, keep=True)
    bench.guard = fast.Guard({}, bench.lock, 3, 0, tuple((i, ARRAY, Untold()) for i in range(3)), ())
    bench.arrays = [Untold(4096 * (i + 1)) for i in range(3)]
    bench.follow()
    with pytest.raises(MemoryError):
        bench.guard((*bench.arrays[:2], Untold(16384)), {})
    assert bench.sets == [0, 0]
    assert bench.calls == 0
    assert bench.guard(tuple(bench.arrays), {}) == (RESULT,)


def test_repeats_nothing_if_another_call_comes_while_arrays_are_told(fast, vendor, nodes_in_c):
    bench = Bench(fast, vendor, nodes_in_c, keep=True)

    class Meanwhile(Moving):
        def record_stream(self, stream):
            bench.guard.stop()
            bench.follow()

    bench.guard = fast.Guard({}, bench.lock, 3, 0, tuple((i, ARRAY, Meanwhile()) for i in range(3)), ())
    bench.arrays = [Meanwhile(4096 * (i + 1)) for i in range(3)]
    bench.follow()
    assert isinstance(bench.guard((*bench.arrays[:2], Meanwhile(16384)), {}), list)
    assert bench.sets == [0, 0]


# ---- results that are made -----------------------------------------------------------------------


def test_has_the_result_made_with_the_lock_held(fast, vendor, nodes_in_c):
    seen = []

    def finish(arrays):
        seen.append((arrays, bench.lock._is_owned()))
        with bench.lock:
            pass
        return bench.calls

    bench = Bench(fast, vendor, nodes_in_c, finish=finish)
    assert bench(4096, 8192, 12288) == (1,)
    assert bench(4096, 8192, 16384) == (2,)
    assert [[x.told[0] for x in arrays] for arrays, _ in seen] == [[4096, 8192, 12288], [4096, 8192, 16384]]
    assert [owned for _, owned in seen] == [True, True]
    assert not bench.lock._is_owned()
    Background(lambda: bench.lock.__enter__() or bench.lock.__exit__()).over()


def test_gives_the_lock_back_if_the_result_can_not_be_made(fast, vendor, nodes_in_c):
    def finish(arrays):
        raise MemoryError

    bench = Bench(fast, vendor, nodes_in_c, finish=finish)
    with pytest.raises(MemoryError):
        bench(4096, 8192, 16384)
    Background(lambda: bench.lock.__enter__() or bench.lock.__exit__()).over()
    assert list(bench.now) == [4096, 8192, 16384]
    assert bench.calls == bench.guard.stop() == 1


# ---- threads, and what is refused ----------------------------------------------------------------


def test_threads_that_move_arrays_and_follow(fast, vendor, nodes_in_c):
    bench = Bench(fast, vendor, nodes_in_c, keep=True)
    answers, repeated = [], 0

    def call(first):
        for i in range(2000):
            answers.append(bench(first + 32 * (i % 50), 8192, 12288) == (RESULT,))

    threads = [Background(lambda first=first: call(first)) for first in (1 << 14, 1 << 15, 1 << 16)]
    for _ in range(300):
        with bench.lock:
            repeated += bench.guard.stop()
            assert bench.now[0] in (0, 4096) or bench.nodes[0].words[0] == bench.now[0]
            bench.follow()
    for each in threads:
        each.over()
    repeated += bench.guard.stop()
    assert repeated == sum(answers) == bench.calls > 0
    assert bench.nodes[0].words[0] == bench.now[0]


def test_refuses_what_it_can_not_change(fast, vendor, nodes_in_c, bench):
    node = bench.described[0]
    for wrong, error, message in [
        ({"sizes": array("Q", [1])}, ValueError, "a size for each array"),
        ({"captured": array("Q", [1, 2, 3, 4])}, ValueError, "a size for each array"),
        ({"own": array("Q", [1])}, ValueError, "pairs for ranges"),
        ({"now": bytes(24)}, BufferError, "not writable|read-only"),
        ({"now": array("Q", range(129))}, ValueError, "at most 128 arrays"),
        ({"alignment": 0}, ValueError, "an alignment of at least 1"),
        ({"nodes": ((0, *node[1:]),)}, ValueError, "function must be the address"),
        ({"nodes": ((*node[:4], ((8, 3, 0),)),)}, ValueError, "there is no array 3"),
        ({"nodes": ((*node[:4], ((8, -1, 0),)),)}, ValueError, "there is no array -1"),
        ({"nodes": (node[:4],)}, TypeError, "takes exactly 5 arguments"),
    ]:
        with pytest.raises(error, match=message):
            Bench(fast, vendor, nodes_in_c, **wrong)
    short = Bench(fast, vendor, nodes_in_c)
    short.guard = fast.Guard({}, short.lock, 1, 0, ((0, ARRAY, Moving()),), ())
    short.now = array("Q", [1])
    with pytest.raises(ValueError, match="as many arrays as the guard has"):
        short.follow()


def test_keeps_the_parameters_and_no_more(fast, vendor, nodes_in_c):
    bench = Bench(fast, vendor, nodes_in_c)

    class Kept(list):
        pass

    kept = Kept(bench.parameters)
    patches = Bench(fast, vendor, nodes_in_c, owner=kept).patches
    gone = weakref.ref(kept)
    del kept
    gc.collect()
    assert gone() is not None
    del patches
    gc.collect()
    assert gone() is None
    with pytest.raises(BufferError):
        bench.now.append(1)
