"""The stream that `accelerator_graph.graph` captures on: one for each thread and device."""

import pytest

import accelerator_graph as ag
from accelerator_graph._core import current_stream
from threads import in_thread


@pytest.fixture
def main():
    with ag.Stream(backend="cpu") as stream:
        yield stream


def captured_on(graph=None):
    with ag.graph(graph or ag.Graph()):
        stream = ag.current_stream()
        stream.launch(int)
    return stream


@pytest.mark.promise("one-side-stream-a-thread")
def test_a_thread_keeps_it(main):
    one, two = captured_on(), captured_on()
    assert one.native is two.native is not main.native
    assert in_thread(in_another_thread) is not one.native


def in_another_thread():
    with ag.Stream(backend="cpu"):
        return captured_on().native


def test_a_capture_inside_a_capture_gets_another(main):
    outer, inner = ag.Graph(), ag.Graph()
    with ag.graph(outer):
        stream = ag.current_stream()
        stream.launch(int)
        with ag.graph(inner):
            other = ag.current_stream()
            other.launch(int)
    assert other.native is not stream.native


def test_closing_it_does_no_harm(main):
    first = captured_on()
    first.close()
    second = captured_on()
    assert second.native is first._native


def test_another_context_gets_another(main, monkeypatch):
    backend = main._backend
    first = captured_on()
    monkeypatch.setattr(type(backend), "context_id", lambda self, stream: 7)
    second = captured_on()
    assert second.native is not first.native
    assert captured_on().native is second.native


def test_a_graph_without_a_current_stream_has_one_of_its_own():
    with ag.use_backend("cpu"):
        one, two = ag.Graph(), ag.Graph()
        first, second = captured_on(one), captured_on(two)
    assert first.native is not second.native
    assert not any(side._native is first.native for _, side in current_stream._thread.streams.values())
