"""How graphs run: as command buffers of either version, or as commands that are enqueued again."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from accelerator_graph_opencl import _driver as driver
from accelerator_graph_opencl._command_buffer import CommandBuffer
from accelerator_graph_opencl._commands import Command
from accelerator_graph_opencl._devices import Devices
from accelerator_graph_opencl._extension import WITHOUT_PENDING_STATE

import accelerator_graph as ag
from conftest import TURNS, Place


class Counts:
    """How often command buffers, and single commands, were enqueued."""

    buffers = 0
    commands = 0


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counts:
    counts = Counts()

    def count(kind: type, name: str, attribute: str) -> None:
        original = getattr(kind, name)

        def counted(*args: Any) -> Any:
            setattr(counts, attribute, getattr(counts, attribute) + 1)
            return original(*args)

        monkeypatch.setattr(kind, name, counted)

    count(CommandBuffer, "calls", "buffers")
    count(Command, "on", "commands")
    return counts


def change_extension(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    original = Devices.extension

    def extension(self: Devices, ordinal: int) -> Any:
        found = original(self, ordinal)
        return None if found is None else found._replace(**changes)

    monkeypatch.setattr(Devices, "extension", extension)


def test_replays_are_command_buffers_where_there_are_any(
    place: Place, counts: Counts, version: tuple[int, int, int] | None
) -> None:
    cell, other = place.buffer(), place.another_stream()
    with ag.Graph(stream=place.stream) as graph:
        for number in range(1, 4):
            place.launch("scale", cell, number)
    for replay in (graph.replay, graph.bind(), lambda: graph.replay(other), graph.bind(other)):
        replay()
    other.synchronize()
    assert place.read(cell) == [_scaled(4)]
    assert (counts.buffers, counts.commands) == ((4, 0) if version else (0, 12))


def _scaled(times: int) -> int:
    value = 0
    for number in (1, 2, 3) * times:
        value = value * number + 1
    return value


def test_a_queue_that_does_not_fit_gets_the_commands(
    place: Place, counts: Counts, monkeypatch: pytest.MonkeyPatch, needs_command_buffers: None
) -> None:
    change_extension(monkeypatch, required=2)  # the queue would have to measure time
    cell = place.buffer()
    with ag.Graph(stream=place.stream) as graph:
        place.launch("add", cell, 2)
    graph.replay()
    assert place.read(cell) == [2]
    assert (counts.buffers, counts.commands) == (0, 1)


def test_a_pending_command_buffer_is_refused_by_the_runtime(
    place: Place, monkeypatch: pytest.MonkeyPatch, version: tuple[int, int, int] | None
) -> None:
    """This is what the flag for simultaneous use is for: without it, OpenCL answers with an error."""
    if version is None or version >= WITHOUT_PENDING_STATE:
        pytest.skip("this version of command buffers has no pending state")
    change_extension(monkeypatch, flags=0)
    cell = place.buffer()
    with ag.Graph(stream=place.stream) as graph:
        for _ in range(10):
            place.launch("slow", cell, TURNS)

    def replay_often() -> None:  # on a busy machine, one run may be done before the next
        for _ in range(20):
            graph.replay()

    with pytest.raises(ag.DriverError, match="CL_INVALID_OPERATION"):
        replay_often()


def test_the_points_decide_the_order_of_a_forked_graph(
    place: Place, monkeypatch: pytest.MonkeyPatch, needs_command_buffers: None
) -> None:
    """Commands of a forked graph run out of order: without the dependencies, the result is another one."""

    def result() -> list[int]:
        cells, side = [place.buffer() for _ in range(2)], place.another_stream()
        with ag.Graph(stream=place.stream) as graph:
            for _ in range(5):
                side.wait(place.stream)
                place.launch("slow", cells[0], 300_000, stream=side)
                place.launch("slow", cells[1], 300_000)
                place.stream.wait(side)
                place.launch("slow", cells[0], 300_000)
        graph.replay()
        made[-1]._queue.finish()  # on Intel's runtime the thread that waits for a queue helps it
        return [*place.read(cells[0]), *place.read(cells[1])]

    made: list[CommandBuffer] = []
    make = CommandBuffer.__init__
    monkeypatch.setattr(
        CommandBuffer, "__init__", lambda self, *a, **how: (made.append(self), make(self, *a, **how))[1]
    )
    right = [2**10 - 1, 2**5 - 1]
    assert result() == right
    original = CommandBuffer.record
    monkeypatch.setattr(CommandBuffer, "record", lambda self, kind, after, a: original(self, kind, (), a))
    assert any(result() != right for _ in range(50))


def test_a_kernel_that_can_not_be_recorded_is_enqueued(
    place: Place, counts: Counts, monkeypatch: pytest.MonkeyPatch, needs_command_buffers: None
) -> None:
    """A command buffer answers CL_INVALID_OPERATION for a kernel that prints, if it can't print."""
    refused = driver.failure("clCommandNDRangeKernelKHR", -59)

    def refuse(self: CommandBuffer, *arguments: Any) -> int:
        raise refused

    monkeypatch.setattr(CommandBuffer, "record", refuse)
    cell = place.buffer()
    with ag.Graph(stream=place.stream) as graph:
        place.launch("add", cell, 2)
        place.stream.fill(place.buffer(), 1)
    graph.replay()
    assert place.read(cell) == [2]
    assert (counts.buffers, counts.commands) == (0, 2)


def test_commands_of_one_run_stay_together(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without command buffers, threads that replay on one stream do not mix their commands."""
    monkeypatch.setattr(Devices, "extension", lambda self, ordinal: None)
    cell, graphs = place.buffer(), []
    for number in (2, 3):
        with ag.Graph(stream=place.stream) as graph:
            for _ in range(4):
                place.launch("scale", cell, number)
        graphs.append(graph)
    barrier = threading.Barrier(2)
    log: list[tuple[int, int]] = []
    command = Command.on

    def logged(self: Command, queue: int) -> Any:
        enqueue = command(self, queue)

        def call() -> int:
            log.append((threading.get_ident(), id(self)))
            threading.Event().wait(1e-4)  # let the other thread come between
            return enqueue()

        return call

    monkeypatch.setattr(Command, "on", logged)

    def replay(graph: ag.Graph) -> None:
        barrier.wait()
        for _ in range(20):
            graph.replay()

    threads = [threading.Thread(target=replay, args=(graph,)) for graph in graphs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(log) == 160
    for first in range(0, 160, 4):
        assert len({thread for thread, _ in log[first : first + 4]}) == 1
    place.stream.synchronize()


def test_a_nested_graph_has_the_nodes_of_the_inner_one(place: Place) -> None:
    cells, side = [place.buffer() for _ in range(2)], place.another_stream()
    with ag.Graph(stream=place.stream) as inner:
        side.wait(place.stream)
        place.launch("add", cells[0], 1)
        place.launch("add", cells[1], 1, stream=side)
        place.stream.wait(side)
    with ag.Graph(stream=place.stream, keep_graph=True) as outer:
        place.launch("add", cells[0], 1)
        inner.replay(place.stream)
        place.launch("add", cells[0], 1)
    assert outer.num_nodes == 4
    inner.reset()
    outer.replay()
    outer.replay()
    assert [place.read(cell) for cell in cells] == [[6], [2]]
