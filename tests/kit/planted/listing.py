"""Nodes, dependencies and drawings that are not those of the graph."""

from __future__ import annotations

import ctypes
from typing import Any

import accelerator_graph as ag
from accelerator_graph.backends.base import (
    CaptureInfo,
    CaptureStatus,
    DeviceMemory,
    GraphContents,
    GraphEdge,
    word,
)
from accelerator_graph.backends.cpu import CpuBackend, CpuCalls
from accelerator_graph.inspection.drawing import to_dot
from kit.explicit_runtime import Explicit
from kit.planted.collection import caught_by


@caught_by(
    "test_num_nodes_counts_what_was_captured",
    "test_empty_capture_warns",
    "test_empty_capture_with_markers_warns",
    "test_nodes_of_a_line",
    "test_recorded_counts_the_nodes_so_far",
    "test_labels_name_the_nodes_recorded_inside",
)
class CountsWrongly(CpuBackend):
    def capture_info(self, stream: Any) -> CaptureInfo | None:
        info = super().capture_info(stream)
        return info and CaptureInfo(info.id, (info.nodes or 0) + 1)


@caught_by("test_nodes_of_a_line", "test_nodes_of_a_fork_and_join")
class HasNoEdges(CpuBackend):
    def nodes(self, graph: Any, executable: Any = None) -> Any:
        return super().nodes(graph)[0], []


@caught_by("test_debug_dump_writes_a_dot_file")
class DumpsNothing(CpuBackend):
    def dump(self, graph: Any, path: str, verbose: bool) -> bool:
        return True


@caught_by("test_nodes_of_a_fork_and_join")
class CountsStreams(Explicit):
    def capture_info(self, stream: Any) -> CaptureInfo | None:
        info, recording = super().capture_info(stream), stream.recording
        return info and CaptureInfo(info.id, (info.nodes or 0) + len(recording.ends) - 1)


@caught_by("test_debug_dump_draws_every_dependency")
class DumpsNoEdges(Explicit):
    def dump(self, graph: Any, path: str, verbose: bool) -> bool:
        with open(path, "w", encoding="utf-8") as file:
            file.write("digraph {}")
        return True


@caught_by("test_num_nodes_counts_what_was_captured")
class CountsNoNodes(CpuBackend):
    """Has the capability to list them."""

    def capture_info(self, stream: Any) -> CaptureInfo | None:
        info = super().capture_info(stream)
        return info and CaptureInfo(info.id)


@caught_by("test_nodes_of_a_line")
class NodesCountFromOne(CpuBackend):
    def nodes(self, graph: Any, executable: Any = None) -> Any:
        nodes, edges = super().nodes(graph)
        return [node._replace(id=node.id + 1) for node in nodes], edges


@caught_by("test_dependencies_point_to_later_work", "test_nodes_after_an_event")
class EdgesPointBackwards(Explicit):
    def nodes(self, graph: Any, executable: Any = None) -> Any:
        nodes, edges = super().nodes(graph)
        return nodes, [GraphEdge(edge.target, edge.source) for edge in edges]


@caught_by("test_nodes_of_a_line")
class EdgesAreListedTwice(Explicit):
    def nodes(self, graph: Any, executable: Any = None) -> Any:
        nodes, edges = super().nodes(graph)
        return nodes, edges * 2


@caught_by("test_nodes_of_a_line")
class KindsInCapitals(CpuBackend):
    def nodes(self, graph: Any, executable: Any = None) -> Any:
        nodes, edges = super().nodes(graph)
        return [node._replace(kind=node.kind.upper()) for node in nodes], edges


@caught_by("test_debug_dump_draws_every_dependency")
class DumpsTheLatestGraph(Explicit):
    def instantiate(self, graph: Any) -> Any:
        self.latest = list(graph)
        return super().instantiate(graph)

    def capture_end(self, token: Any) -> Any:
        self.latest = super().capture_end(token)
        return list(self.latest)

    def dump(self, graph: Any, path: str, verbose: bool) -> bool:
        self.first = getattr(self, "first", graph)
        with open(path, "w", encoding="utf-8") as file:
            file.write(to_dot(ag.GraphDescription.of("planted", 0, self.nodes(self.first))))
        return True


@caught_by("test_parameters_of_fills_and_copies")
class TellsWrongSizes(CpuBackend):
    def nodes(self, graph: Any, executable: Any = None) -> Any:
        nodes, edges = super().nodes(graph)
        return [node._replace(nbytes=node.nbytes and 2 * node.nbytes) for node in nodes], edges


@caught_by("test_parameters_of_fills_and_copies")
class MixesUpSourceAndTarget(CpuBackend):
    def nodes(self, graph: Any, executable: Any = None) -> Any:
        nodes, edges = super().nodes(graph)
        return [node._replace(source=node.target, target=node.source) for node in nodes], edges


@caught_by("test_recorded_counts_the_work_of_forks", "test_a_label_has_the_forks_and_not_what_is_joined")
class CountsOneStream(Explicit):
    def capture_info(self, stream: Any) -> CaptureInfo | None:
        info, recording = super().capture_info(stream), stream.recording
        return info and CaptureInfo(
            info.id, sum(each.stream is recording.first for each in recording.entries)
        )


@caught_by("test_recorded_counts_the_nodes_so_far", "test_labels_name_the_nodes_recorded_inside")
class CountingAddsANode(Explicit):
    def capture_info(self, stream: Any) -> CaptureInfo | None:
        info = super().capture_info(stream)
        if info is not None:
            self.enqueue(stream.recording.first, "empty", int)
        return info


@caught_by("test_labels_name_the_nodes_recorded_inside")
class NeverCountsMeanwhile(CpuBackend):
    def capture_info(self, stream: Any) -> CaptureInfo | None:
        info = super().capture_info(stream)
        return info and CaptureInfo(info.id, 0)


@caught_by("test_nodes_are_in_the_order_of_recording")
class SortsByDepth(CpuBackend):
    """As AMD's runtime does."""

    def nodes(self, graph: Any, executable: Any = None) -> Any:
        nodes, edges = super().nodes(graph)
        depths = [0] * len(nodes)
        for edge in sorted(edges, key=lambda edge: edge.target):
            depths[edge.target] = max(depths[edge.target], depths[edge.source] + 1)
        order = sorted(range(len(nodes)), key=depths.__getitem__)
        new = {old: index for index, old in enumerate(order)}
        turned = [nodes[old]._replace(id=index) for index, old in enumerate(order)]
        return turned, [GraphEdge(new[edge.source], new[edge.target]) for edge in edges]


@caught_by("test_nodes_come_after_those_they_depend_on", "test_labels_name_the_nodes_recorded_inside")
class ListsTheLatestFirst(CpuBackend):
    def nodes(self, graph: Any, executable: Any = None) -> Any:
        nodes, edges = super().nodes(graph)
        last = len(nodes) - 1
        turned = [node._replace(id=last - node.id) for node in reversed(nodes)]
        return turned, [GraphEdge(last - edge.source, last - edge.target) for edge in edges]


@caught_by("test_parameters_are_those_of_the_nodes")
class TellsOtherAddresses(CpuBackend):
    def parameters(self, graph: Any) -> Any:
        return [each._replace(blocks=(word(1), word(2))) for each in super().parameters(graph)]


@caught_by("test_parameters_are_those_of_the_nodes")
class TellsTheParametersInAnotherOrder(CpuBackend):
    def parameters(self, graph: Any) -> Any:
        return [*super().parameters(graph)][::-1]


@caught_by("test_memory_in_use_is_not_said_to_be_gone")
class SaysThatThereIsNoMemory(CpuBackend):
    def memory_at(self, graph: Any, addresses: Any) -> Any:
        return ["gone"] * len(addresses)


@caught_by("test_memory_in_use_is_not_said_to_be_gone")
class AnswersForFewerAddresses(CpuBackend):
    def memory_at(self, graph: Any, addresses: Any) -> Any:
        return super().memory_at(graph, addresses)[1:]


@caught_by("test_memory_is_reported_and_disturbs_no_capture")
class TellingMemoryBreaksCaptures(CpuBackend):
    def capture_begin(self, stream: Any, mode: Any) -> Any:
        self.latest = super().capture_begin(stream, mode)
        return self.latest

    def device_memory(self, obj: Any) -> Any:
        self.capture_abandon(self.latest)
        return DeviceMemory(1, 2)


@caught_by("test_memory_is_reported_and_disturbs_no_capture")
class HasMoreThanAllMemory(CpuBackend):
    def device_memory(self, obj: Any) -> Any:
        return DeviceMemory(2, 1)


@caught_by("test_memory_of_a_graph_is_reported")
class IsSmallerThanNothing(CpuBackend):
    def host_bytes(self, obj: Any) -> int:
        return -1


@caught_by("test_memory_of_a_graph_is_reported")
class TellsMemoryInWords(CpuBackend):
    def device_memory(self, obj: Any) -> Any:
        return DeviceMemory("a gigabyte", "two gigabytes")  # type: ignore[arg-type]


@caught_by("test_host_memory_shows_how_far_a_replay_is")
class HandsOutMemoryThatWasUsed(CpuBackend):
    def host_memory(self, stream: Any, nbytes: int) -> int:
        address = super().host_memory(stream, nbytes)
        ctypes.memset(address, 1, nbytes)
        return address


@caught_by("test_host_memory_shows_how_far_a_replay_is")
class FillsHostMemoryOnce(CpuBackend):
    """As AMD's runtime 6.4 does: when the graph is instantiated."""

    def fill(self, stream: Any, dst: Any, value: int, nbytes: int | None) -> None:
        if stream.capture is None or not isinstance(dst, int):
            super().fill(stream, dst, value, nbytes)
        else:
            assert nbytes is not None
            ctypes.memset(dst, value, nbytes)
            self.launch(stream, str)


@caught_by("test_host_memory_shows_how_far_a_replay_is")
class FillsHostMemoryAtTheEnd(CpuBackend):
    """As a cache would that is written back when a replay has ended."""

    def open(self) -> None:
        super().open()
        self.later: list[Any] = []

    def fill(self, stream: Any, dst: Any, value: int, nbytes: int | None) -> None:
        if stream.capture is None or not isinstance(dst, int):
            super().fill(stream, dst, value, nbytes)
        else:
            self.launch(stream, self.later.append, (dst, value, nbytes))

    def query(self, stream: Any) -> bool:
        done = super().query(stream)
        while done and self.later:
            ctypes.memset(*self.later.pop(0))
        return done


@caught_by("test_host_memory_shows_how_far_a_replay_is")
class AllocatesHostMemoryInCaptures(CpuBackend):
    """As a vendor's allocation does that is not relaxed."""

    def host_memory(self, stream: Any, nbytes: int) -> int:
        for capture in [*self.captures._open]:
            capture.status = CaptureStatus.INVALIDATED
        return super().host_memory(stream, nbytes)


class _Inside(CpuBackend):
    def nodes(self, graph: Any, executable: Any = None) -> Any:
        nodes, edges = super().nodes(graph)
        return [node._replace(bodies=tuple(map(self.spoiled, node.bodies))) for node in nodes], edges

    def spoiled(self, body: GraphContents) -> GraphContents:
        raise NotImplementedError


@caught_by("test_what_can_be_changed_is_reported")
class NodesInsideCanBeDisabled(_Inside):
    def spoiled(self, body: GraphContents) -> GraphContents:
        return [node._replace(settable=("enabled",)) for node in body[0]], body[1]


@caught_by("test_nodes_inside_a_recorded_replay")
class NothingInsideDepends(_Inside):
    def spoiled(self, body: GraphContents) -> GraphContents:
        return body[0], []


@caught_by("test_parameters_inside_a_recorded_replay")
class TellsNoParametersInside(CpuBackend):
    def parameters(self, graph: Any) -> Any:
        return [each._replace(inside=()) for each in super().parameters(graph)]


@caught_by("test_parameters_are_those_of_the_nodes")
class TellsNoSizesAmongParameters(CpuBackend):
    def parameters(self, graph: Any) -> Any:
        return [each._replace(rest=None) for each in super().parameters(graph)]


@caught_by("test_calls_about_other_objects_disturb_no_capture")
class ListingBreaksCaptures(CpuBackend):
    def nodes(self, graph: Any, executable: Any = None) -> Any:
        for capture in self.captures._open:
            capture.status = CaptureStatus.INVALIDATED
        return super().nodes(graph)


@caught_by("test_front_moves_with_each_node")
class FrontStandsStill(CpuBackend):
    def native_calls(self, stream: Any) -> Any:
        return StandsStill(self, stream)


class StandsStill(CpuCalls):
    __slots__ = ()

    def front(self) -> int:
        return 1


@caught_by("test_profilers_ids_are_as_many_as_the_nodes")
class OneIdForAllNodes(CpuBackend):
    def nodes(self, graph: Any, executable: Any = None) -> Any:
        nodes, edges = super().nodes(graph)
        return [node._replace(profiler_id=1) for node in nodes], edges
