"""torch as a peer, and this library's captures and replays on torch's current stream. See `_peers`."""

from __future__ import annotations

from _lives import OURS, life

import accelerator_graph as ag

MODE = "thread_local"
TORCH_CURRENT = f"{OURS}: replay() on torch's current stream"


class Torch:
    """torch, and this library's captures and replays on torch's current stream."""

    name = "torch"
    module = "torch"
    is_framework = True

    def __init__(self, scene):
        import torch

        if not torch.cuda.is_available():
            raise RuntimeError("torch sees no GPU")
        torch.zeros(1, device="cuda")
        self.torch, self.scene = torch, scene
        self.stream = torch.cuda.Stream()

    def current(self):
        return self.torch.cuda.stream(self.stream)

    def one(self):
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph, stream=self.stream, capture_error_mode=MODE):
            self.scene.enqueue(self.stream.cuda_stream, 1)
        graph.replay()
        return graph

    def _captured(self, nodes):
        graph = self.torch.cuda.CUDAGraph(keep_graph=True)
        with self.torch.cuda.graph(graph, stream=self.stream, capture_error_mode=MODE):
            self.scene.enqueue(self.stream.cuda_stream, nodes)
        graph.instantiate()
        return graph

    def replays(self, nodes):
        theirs, ours = self._captured(nodes), ag.Graph()
        with self.current(), ours:
            self.scene.enqueue(self.stream.cuda_stream, nodes)
        return {
            "torch.cuda.CUDAGraph": ((theirs.replay,), self.stream.synchronize),
            TORCH_CURRENT: ((ours.replay,), self.stream.synchronize),
        }

    def lives(self, nodes):
        cuda, stream = self.torch.cuda, self.stream
        ours = ag.Graph(keep_graph=True)

        def in_with(work):
            graph = cuda.CUDAGraph(keep_graph=True)
            with cuda.graph(graph, stream=stream, capture_error_mode=MODE):
                work()
            return graph

        def by_hand(work):
            graph = cuda.CUDAGraph(keep_graph=True)
            with cuda.stream(stream):
                graph.capture_begin(capture_error_mode=MODE)
                work()
                graph.capture_end()
            return graph

        def ours_in_with(work):
            with ag.graph(ours, stream=stream):
                work()
            return ours

        def ours_by_hand(work):
            with cuda.stream(stream):
                ours.capture_begin()
                work()
                ours.capture_end()
            return ours

        def instantiate(graph):
            graph.instantiate()
            return graph

        ways = {
            "torch: with torch.cuda.graph(g)": in_with,
            "torch: capture_begin(), capture_end()": by_hand,
            f"{OURS} with torch: with graph(g)": ours_in_with,
            f"{OURS} with torch: capture_begin(), capture_end()": ours_by_hand,
        }
        return {
            name: life(
                lambda: self.scene.enqueue(stream.cuda_stream, nodes),
                capture,
                instantiate,
                lambda graph: graph.reset(),
            )
            for name, capture in ways.items()
        }

    def dumps(self, nodes, path):
        graph = self._captured(nodes)
        graph.enable_debug_mode()
        return {"torch": lambda: graph.debug_dump(path)}
