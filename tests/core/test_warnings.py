"""Warnings point at the line of the user's own."""

import inspect
import warnings

import pytest

import accelerator_graph as ag


def entered():
    with ag.Graph():
        pass


def beside():
    with ag.graph(ag.Graph()):
        pass


def by_hand():
    g = ag.Graph()
    g.capture_begin()
    g.capture_end()


def kept_with_nodes_of_its_own():
    with ag.Graph(keep_graph=True, observe=ag.progress()):
        pass


@pytest.mark.parametrize("how", [entered, beside, by_hand, kept_with_nodes_of_its_own])
def test_an_empty_graph(how):
    with warnings.catch_warnings(record=True) as found, ag.Stream(backend="cpu"):
        warnings.simplefilter("always")
        how()
    [warning] = found
    lines, first = inspect.getsourcelines(how)
    assert warning.category is ag.EmptyGraphWarning
    assert warning.filename == __file__
    assert first < warning.lineno < first + len(lines)
