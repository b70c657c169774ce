"""Several nodes that are changed as one: all of them, or none."""

import ctypes

import pytest

from accelerator_graph.backends.base import Change, NodeSetter, word


class Node:
    """A node with two words, of which the executable has what was applied last."""

    def __init__(self, *words):
        self.memory = (ctypes.c_uint64 * len(words))(*words)
        self.refused = None
        self.error = ValueError("refused")
        self.applied = [list(words)]
        start = ctypes.addressof(self.memory)
        self.setter = NodeSetter("kernel", [(start + 8 * i, 8) for i in range(len(words))], self.apply)

    def apply(self):
        if self.memory[0] == self.refused:
            raise self.error
        self.applied.append(list(self.memory))


def test_blocks_follow_one_another_and_only_nodes_that_differ_are_changed():
    nodes = Node(1, 2), Node(3), Node(4, 5)
    whole = NodeSetter.together("graph", [each.setter for each in nodes])
    assert whole.blocks == tuple(map(word, (1, 2, 3, 4, 5)))
    assert whole.settable == ()
    whole([Change(2, 0, word(30)), Change(4, 0, word(50))])
    assert [each.applied[-1] for each in nodes] == [[1, 2], [30], [4, 50]]
    assert [len(each.applied) for each in nodes] == [1, 2, 2]
    whole.words([(0, 0)])(10)
    assert [each.applied[-1] for each in nodes] == [[10, 2], [30], [4, 50]]
    assert [len(each.applied) for each in nodes] == [2, 2, 2]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("refusing", range(3))
def test_if_one_node_is_refused_no_node_is_changed(refusing, error):
    nodes = Node(1), Node(2), Node(3)
    whole = NodeSetter.together("graph", [each.setter for each in nodes])
    set_words = whole.words([(0, 0), (1, 0), (2, 0)])
    nodes[refusing].refused, nodes[refusing].error = 99, error()
    wanted = [10, 20, 30]
    wanted[refusing] = 99
    for _ in range(2):
        with pytest.raises(error):
            set_words(*wanted)
        assert [each.applied[-1] for each in nodes] == [[1], [2], [3]]
        assert whole.blocks == tuple(map(word, (1, 2, 3)))
    set_words(10, 20, 30)
    assert [each.applied[-1] for each in nodes] == [[10], [20], [30]]


def test_after_an_interrupt_behind_a_change_everything_is_set_again():
    node = Node(1)
    whole = NodeSetter.together("graph", [node.setter])
    set_word, apply = whole.words([(0, 0)]), node.apply

    def interrupted():
        apply()
        node.setter._apply = apply
        raise KeyboardInterrupt

    node.setter._apply = interrupted
    with pytest.raises(KeyboardInterrupt):
        set_word(2)
    assert node.applied[-1] == [1]
    set_word(2)
    assert node.applied[-1] == [2]
