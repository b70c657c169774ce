"""Other libraries that replay CUDA graphs, on graphs of the same empty kernels.

Each peer has `replays(nodes)`, which returns a call, its arguments and a wait function by name, and
`lives(nodes)`, which returns functions for `Plan.compare_lives` by name. Its replays run inside `current()`.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from contextlib import nullcontext

from _lives import life
from _peer_torch import MODE, Torch


class CudaCore:
    """cuda.core, which does not accept other libraries' streams."""

    name = "cuda.core"
    module = "cuda.core"
    is_framework = False

    def __init__(self, scene):
        from cuda.core import Device

        self.scene = scene
        self.device = Device(0)
        self.device.set_current()
        self.stream = self.device.create_stream()
        self.current = nullcontext

    def _captured(self, nodes):
        builder = self.stream.create_graph_builder()
        builder.begin_building(mode=MODE)
        self.scene.enqueue(int(builder.stream.handle), nodes)
        builder.end_building()
        return builder

    def replays(self, nodes):
        graph = self._captured(nodes).complete()
        return {"cuda.core": ((graph.launch, self.stream), self.stream.sync)}

    def one(self):
        graph = self._captured(1).complete()
        graph.launch(self.stream)
        return graph

    def lives(self, nodes):
        handle = int(self.stream.handle)

        def capture(work):
            builder = self.stream.create_graph_builder()
            builder.begin_building(mode=MODE)
            work()
            builder.end_building()
            return builder

        def release(both):
            for each in reversed(both):
                each.close()

        return {
            "cuda.core": life(
                lambda: self.scene.enqueue(handle, nodes),
                capture,
                lambda builder: (builder, builder.complete()),
                release,
            )
        }

    def dumps(self, nodes, path):
        builder = self._captured(nodes)
        return {"cuda.core": lambda: builder.debug_dot_print(path)}


class Cupy:
    """CuPy. Its end_capture always instantiates."""

    name = "CuPy"
    module = "cupy"
    is_framework = True

    def __init__(self, scene):
        import cupy

        self.cupy, self.scene = cupy, scene
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.current = nullcontext

    def _captured(self, nodes):
        with self.stream:
            self.stream.begin_capture()
            self.scene.enqueue(self.stream.ptr, nodes)
            return self.stream.end_capture()

    def replays(self, nodes):
        return {"CuPy": ((self._captured(nodes).launch, self.stream), self.stream.synchronize)}

    def one(self):
        graph = self._captured(1)
        graph.launch(self.stream)
        return graph

    def lives(self, nodes):
        stream = self.stream

        def capture(work):
            with stream:
                stream.begin_capture()
                work()
                return stream.end_capture()

        work = lambda: self.scene.enqueue(stream.ptr, nodes)  # noqa: E731
        return {"CuPy, which instantiates as well": life(work, capture)}

    def dumps(self, nodes, path):
        graph = self._captured(nodes)

        def dump():
            text = graph.debug_dot_str()
            with open(path, "w" if isinstance(text, str) else "wb") as file:
                file.write(text)

        return {"CuPy": dump}


class Warp:
    """Warp."""

    name = "Warp"
    module = "warp"
    is_framework = True

    def __init__(self, scene):
        import warp

        warp.config.quiet = True
        warp.init()
        self.warp, self.scene = warp, scene
        self.stream = warp.Stream("cuda:0")
        self.current = nullcontext

    def _captured(self, work):
        self.warp.capture_begin(stream=self.stream, force_module_load=False)
        work()
        return self.warp.capture_end(stream=self.stream)

    def _work(self, nodes):
        return lambda: self.scene.enqueue(self.stream.cuda_stream, nodes)

    def replays(self, nodes):
        graph, launch, stream = self._captured(self._work(nodes)), self.warp.capture_launch, self.stream

        def replay():
            launch(graph, stream=stream)

        return {"Warp": ((replay,), lambda: self.warp.synchronize_stream(stream))}

    def one(self):
        graph = self._captured(self._work(1))
        self.warp.capture_launch(graph, stream=self.stream)
        return graph

    def lives(self, nodes):
        return {"Warp, which may instantiate as well": life(self._work(nodes), self._captured)}

    def dumps(self, nodes, path):
        raise RuntimeError("it draws a graph in a way of its own only while it captures.")


PEERS = (CudaCore, Torch, Cupy, Warp)


def installed(plan):
    """Return the peers that are installed, and note the others."""
    found = []
    for peer in PEERS:
        try:
            there = importlib.util.find_spec(peer.module) is not None
        except ImportError:  # the package that contains it
            there = False
        if there:
            found.append(peer)
        else:
            plan.skip(peer.name, "not installed")
    return found


def torch_on_gpu(plan):
    """Return torch if it sees a GPU; otherwise note why it is left out, and return None."""
    try:
        import torch
    except ImportError:
        plan.skip("torch", "not installed")
        return None
    if torch.cuda.is_available():
        return torch
    plan.skip("torch", "it sees no GPU")
    return None


def peers(plan, scene, *, frameworks, always=False):
    """Return the peers that are installed and work: either the frameworks or the others.

    Quick runs have frameworks only where `always` is true.
    """
    found = []
    for peer in installed(plan):
        if peer.is_framework is not frameworks:
            continue
        if plan.quick and peer.is_framework and not always:
            plan.skip(peer.name, "left out of a quick run")
            continue
        made = plan.tried(peer.name, peer, scene)
        scene.use()
        if made is not None:
            found.append(made)
    return found


def scratch():
    """Return the path of a file to write to."""
    return os.path.join(tempfile.mkdtemp(prefix="accelerator-graph-"), "graph.dot")
