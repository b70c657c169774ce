"""Which words are arguments: the rules, on parameters that are written down here."""

import struct

import pytest

from accelerator_graph._graphed.binding.argument_words import (
    ArgumentWord,
    Captures,
    Doubt,
    NotFollowing,
    Search,
    argument_words,
    check_known,
)
from accelerator_graph.backends.base import NodeParameters, word

LOW = 0xFFFF_FFFF
X, Y, SIZE = 0x7F10_0000_0000, 0x7F10_0000_1000, 0x400
THERE_X, THERE_Y = 0x7F20_0000_9200, 0x7F20_0000_0000
"""In the opposite order."""
POOLS = 0x7F30_0000_0000, 0x7F30_0100_0000, 0x7F31_0200_0000
"""Each capture has memory of its own."""
HERE, THERE = [(X, X + SIZE), (Y, Y + SIZE)], [(THERE_X, THERE_X + SIZE), (THERE_Y, THERE_Y + SIZE)]


def kernel(*blocks, rest=("add", 1), **more):
    return NodeParameters("kernel", blocks, rest, **more)


def found(*nodes, here=HERE, there=THERE):
    """Find the words of three captures, each node given as three."""
    first, second, third = zip(*nodes, strict=True) if nodes else ((), (), ())
    return argument_words(Captures([first, second], [third], here, there))


ONE = kernel(word(1))


def alike(node):
    return node, node, node


def block(*thirds, pack="<Q"):
    """Return three kernels, each with one parameter."""
    return tuple(kernel(struct.pack(pack, *each) if isinstance(each, tuple) else each) for each in thirds)


def test_arguments_follow_their_inputs():
    node = (
        kernel(word(POOLS[0]), word(X), word(Y + 8)),
        kernel(word(POOLS[1]), word(X), word(Y + 8)),
        kernel(word(POOLS[2]), word(THERE_X), word(THERE_Y + 8)),
    )
    assert found(alike(kernel(word(5))), node) == [
        ArgumentWord(1, 1, 0, 0, 0),
        ArgumentWord(1, 2, 0, 1, 8),
    ]


def test_words_inside_a_structure_and_copies_and_fills():
    inside = [struct.pack("<IIQQI", 1, 2, x, y, 3) for x, y in ((X, Y), (X, Y), (THERE_X, THERE_Y))]
    copies = [NodeParameters("memcpy", (word(x), word(POOLS[0])), 64) for x in (X, X, THERE_X)]
    fills = [NodeParameters("memset", (word(y + 16), b"\0\0\0\0"), 64) for y in (Y, Y, THERE_Y)]
    assert found([kernel(each) for each in inside], copies, fills) == [
        ArgumentWord(0, 0, 8, 0, 0),
        ArgumentWord(0, 0, 16, 1, 0),
        ArgumentWord(1, 0, 0, 0, 0),
        ArgumentWord(2, 0, 0, 1, 16),
    ]


def test_noise_is_of_no_account():
    noise = [struct.pack("<IIQ", 4, padding, x) for padding, x in ((1, X), (0x7FBF, X), (99, THERE_X))]
    heap = [struct.pack("<Q", each) for each in (4, 0x7FBF_0000_0004, 0x7FC0_0000_0004)]
    pool = [word(each) for each in POOLS]
    assert found([kernel(*each) for each in zip(noise, heap, pool, strict=True)]) == [
        ArgumentWord(0, 0, 8, 0, 0)
    ]


def test_memory_of_the_captures_own_may_cross_four_gibibytes():
    assert found(block((0x7F30_0000_0000,), (0x7F30_1000_0000,), (0x7F31_0000_0000,))) == []
    with pytest.raises(NotFollowing, match="derived"):  # the upper half does not belong to an address
        found(block((4, 7), (5, 7), (6, 8), pack="<II"))
    for here, there in ((0xFF, 0x7F30), (0x7F30, 0xFF)):  # or to one in some captures only
        with pytest.raises(NotFollowing, match="derived"):
            found(block((4, here), (5, here), (6, there), pack="<II"))


def found_in(here, there):
    """Find the words of captures of one kernel with one parameter."""
    nodes = [[[kernel(word(each))] for each in captures] for captures in (here, there)]
    return argument_words(Captures(*nodes, HERE, THERE))


def test_captures_with_the_same_inputs_clear_a_doubt():
    for more in ([], [6], [6, 6, 6]):
        with pytest.raises(Doubt, match="derived"):
            found_in([5, 5, 5], [6, *more])
    assert found_in([5, 5], [6, 7]) == []
    assert found_in([5, 5, 6], [6]) == []
    assert found_in([X, X, X], [THERE_X, THERE_X]) == [ArgumentWord(0, 0, 0, 0, 0)]


def test_a_few_captures_may_have_addresses_in_bytes_that_nobody_has_set():
    for here, there in (([X, 1], [2]), ([1, 1], [X]), ([1, X, 1], [2, 2]), ([X, Y, X, 1], [2, 2])):
        with pytest.raises(Doubt, match="does not follow"):
            found_in(here, there)
    assert found_in([X, 1, 1], [2, 2, 2]) == []
    assert found_in([1, 1, 1], [2, 2, X]) == []
    assert found_in([X, 1, 1, Y], [2, 2, 2]) == []
    for here, there in (([X, Y, X, Y], [THERE_Y, THERE_X]), ([X] * 4, [X] * 4)):
        with pytest.raises(NotFollowing, match="does not follow") as info:
            found_in(here, there)
        assert not isinstance(info.value, Doubt)


@pytest.mark.parametrize(
    ("node", "why"),
    [
        pytest.param(alike(kernel(word(X))), "does not follow", id="cached"),
        pytest.param(alike(kernel(word(THERE_X))), "does not follow", id="freed memory"),
        pytest.param(block((X,), (X,), (THERE_Y,)), "does not follow", id="another input"),
        pytest.param(block((X,), (X,), (THERE_X + 8,)), "does not follow", id="another offset"),
        pytest.param(block((X,), (Y,), (THERE_X,)), "does not follow", id="swapped by turns"),
        pytest.param(block((X,), (POOLS[0],), (THERE_X,)), "does not follow", id="once"),
        pytest.param(block((POOLS[0],), (POOLS[1],), (X,)), "does not follow", id="only in the third"),
        pytest.param(block((X + SIZE,), (X + SIZE,), (THERE_X + SIZE,)), "derived", id="the end"),
        pytest.param(block((X >> 4,), (X >> 4,), (THERE_X >> 4,)), "derived", id="shifted"),
        pytest.param(block((Y - X,), (Y - X,), (THERE_Y - THERE_X,), pack="<q"), "derived", id="a distance"),
        pytest.param(block((X & LOW,), (X & LOW,), (THERE_X & LOW,), pack="<I"), "derived", id="half"),
        pytest.param(block((5, X), (5, X), (5, THERE_X), pack="<IQ"), "packed", id="packed"),
        pytest.param(block((5, X), (6, X), (7, THERE_X), pack="<IQ"), "packed", id="packed beside noise"),
        pytest.param(block((5, 2), (6, 2), (7, 3), pack="<II"), "derived", id="derived beside noise"),
        pytest.param((ONE, ONE, kernel(word(1), rest=2)), "is a different one", id="function"),
        pytest.param((ONE, ONE, kernel(b"")), "a different size", id="size"),
        pytest.param((ONE, kernel(word(1), word(1)), ONE), "a different size", id="count"),
        pytest.param(alike(NodeParameters("conditional", None)), "parameters of", id="conditional"),
        pytest.param(alike(NodeParameters("host")), "function of the host", id="host"),
    ],
)  # fmt: skip
def test_a_doubt_about_any_word_is_a_doubt_about_the_graph(node, why):
    good = block((X,), (X,), (THERE_X,))
    assert len(found(good)) == 1
    with pytest.raises(NotFollowing, match=rf"node 1, .*{why}|{why}.*node 1, "):
        found(good, node)


def test_the_blocks_of_a_child_are_those_of_its_nodes():
    def child(*words):
        nodes = [
            (kernel(word(7), word(3)), NodeParameters("graph", inside=(kernel(word(each)),)))
            for each in words
        ]
        return [NodeParameters("graph", inside=each) for each in nodes]

    assert found(child(5, 5, 5), child(*POOLS)) == []
    assert found(child(5, 5, 5), child(X + 8, X + 8, THERE_X + 8)) == [ArgumentWord(1, 2, 0, 0, 8)]
    for words in ((X, X, X), (5, 5, 6)):
        with pytest.raises(NotFollowing, match="a kernel inside a graph inside node 0, a graph"):
            found(child(*words))
    with pytest.raises(NotFollowing, match="a different number"):
        found((NodeParameters("graph"), *child(5, 5)))
    with pytest.raises(NotFollowing, match="inside node 0"):
        check_known([NodeParameters("graph", inside=(NodeParameters("host"),))], ["g"])


def test_the_blocks_of_a_child_inside_a_child_count_as_well():
    inner = NodeParameters("graph", inside=(kernel(word(7)), kernel(word(3), word(4))))
    nodes = [NodeParameters("graph", inside=(inner, kernel(word(each)))) for each in (X, X, THERE_X)]
    assert found(nodes) == [ArgumentWord(0, 3, 0, 0, 0)]


def test_captures_with_different_nodes():
    one = kernel(word(1))
    with pytest.raises(NotFollowing, match="its captures have 1, 2, 1 nodes"):
        argument_words(Captures([[one], [one, one]], [[one]], HERE, THERE))


@pytest.mark.parametrize(
    ("here", "there", "why"),
    [
        ([(X, X + SIZE), (X + 8, X + SIZE)], THERE, "share memory"),
        (HERE, [(X + 8, X + 16), (THERE_Y, THERE_Y + 8)], "share memory"),
        (HERE, [(THERE_Y, THERE_Y + SIZE), (THERE_X, THERE_X + SIZE)], "another order"),
    ],
)
def test_inputs_that_do_not_lie_as_they_have_to(here, there, why):
    with pytest.raises(NotFollowing, match=why):
        found(here=here, there=there)


def test_ranges_that_cross_every_border():
    start = 0x7FFF_FFFF_FF00
    here, there = [(start, start + 0x2_0000_0000)], [(0x100, 0x1_0000_0000)]
    node = block((start + 0x1_0000_0000,), (start + 0x1_0000_0000,), (0x100 + 0xFFFF_FE00,))
    with pytest.raises(NotFollowing, match="does not follow"):
        found(node, here=here, there=there)
    node = block((start + 0xFFFF_0000,), (start + 0xFFFF_0000,), (0x100 + 0xFFFF_0000,))
    assert found(node, here=here, there=there) == [ArgumentWord(0, 0, 0, 0, 0xFFFF_0000)]


def test_the_node_with_a_doubt_is_called_by_its_own_name():
    good, host = kernel(word(1)), NodeParameters("host")
    names = ["first", "second", "third"]
    with pytest.raises(NotFollowing, match=r"node 1, a host \(second\) is a function"):
        check_known([good, host, good], names)
    bad = good, kernel(word(2)), good
    graphs = [[good, each, good] for each in bad]
    with pytest.raises(NotFollowing, match=r"node 1, a kernel \(second\) has a parameter"):
        argument_words(Captures([graphs[0], graphs[2]], [graphs[1]], HERE, THERE, names))
    inside = NodeParameters("graph", inside=(good, host))
    with pytest.raises(NotFollowing, match=r"a host inside node 2, a graph \(third\) is a function"):
        check_known([good, good, inside], names)


@pytest.mark.parametrize(
    "other", [NodeParameters("memset", (word(1),), 4), NodeParameters("memcpy", (word(1),), 5)]
)
def test_a_node_of_another_kind_is_another_one(other):
    node = NodeParameters("memcpy", (word(1),), 4)
    for nodes in ((node, node, other), (node, other, node), (other, node, node)):
        with pytest.raises(NotFollowing, match=r"node 0, a mem\w+ is a different one"):
            found(nodes)


def test_a_node_with_blocks_of_its_own_and_others_inside():
    """As a conditional node has: the blocks inside come behind its own."""
    nodes = [
        NodeParameters(
            "conditional",
            (word(y), word(5)),
            inside=(kernel(word(7), word(x)), kernel(word(8)), kernel(word(9), word(9), word(y + 8))),
        )
        for x, y in ((X, Y), (X, Y), (THERE_X, THERE_Y))
    ]
    assert found(alike(ONE), nodes) == [
        ArgumentWord(1, 0, 0, 1, 0),
        ArgumentWord(1, 3, 0, 0, 0),
        ArgumentWord(1, 7, 0, 1, 8),
    ]


def test_several_addresses_of_one_input_in_one_block():
    """Those that begin where the one before ends, and those with the same upper bytes."""
    blocks = [struct.pack("<QQQQ", x + 8, x, 6, x + SIZE - 1) for x in (X, X, THERE_X)]
    assert found([kernel(each) for each in blocks]) == [
        ArgumentWord(0, 0, 0, 0, 8),
        ArgumentWord(0, 0, 8, 0, 0),
        ArgumentWord(0, 0, 24, 0, SIZE - 1),
    ]


def test_noise_in_the_captures_elsewhere_alone_is_noise():
    """Bytes that differ between captures with the same inputs are of no account, here or there."""
    assert found_in([5, 5, 5], [5, 6]) == []
    assert found_in([5, 6, 5], [5, 5]) == []
    assert found_in([5, 5, 5], [5, 5]) == []


def test_inputs_that_lie_directly_behind_each_other():
    here, there = [(X, X + 8), (X + 8, X + 16)], [(X + 24, X + 32), (X + 16, X + 24)]
    node = block((X, X + 8), (X, X + 8), (X + 24, X + 16), pack="<QQ")
    assert found(node, here=here, there=there) == [ArgumentWord(0, 0, 0, 0, 0), ArgumentWord(0, 0, 8, 1, 0)]


@pytest.mark.parametrize("place", range(3))
def test_every_capture_is_looked_at(place):
    """Whichever of them has other nodes, blocks, sizes or children."""

    def with_one(other):
        nodes = [ONE] * 3
        nodes[place] = other
        return nodes

    for other, why in (
        (kernel(word(1), word(2)), "a different size"),
        (kernel(word(1) + word(2)), "a different size"),
        (kernel(word(1), inside=(ONE,)), "a different number of nodes"),
        (kernel(word(1), rest=("sub", 1)), "is a different one"),
        (kernel(word(X)), "does not follow"),
    ):
        with pytest.raises(NotFollowing, match=why):
            found(with_one(other))
    graphs = [[ONE]] * 3
    graphs[place] = [ONE, ONE]
    counts = ", ".join(str(len(each)) for each in graphs)
    with pytest.raises(NotFollowing, match=f"its captures have {counts} nodes"):
        argument_words(Captures(graphs[:2], graphs[2:], HERE, THERE))


def test_an_address_that_begins_in_what_looks_like_another_one():
    """Its upper bytes are alike, and it is not in the input."""
    search = Search([(X, X + SIZE), (X + 2 * SIZE, X + 3 * SIZE)])
    other = word(X + 0xFFFF)
    assert search.hits(other) == set()
    for distance in (0, 0x100):
        assert search.hits(other[:6] + word(X + distance)) == {(6, 0, distance)}
    assert search.hits(word(X + 2 * SIZE + 1) + word(X)) == {(0, 1, 1), (8, 0, 0)}
