"""The lines of a transformer's block, and torch's trace of its replay, on a GPU."""

import inspect
import json

from lanes import require

pytestmark = require("gpu", "torch")

import torch

import accelerator_graph as ag


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(256)
        self.attention = torch.nn.MultiheadAttention(256, 4)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 256))

    def forward(self, x):
        h = self.norm(x)
        h, _ = self.attention(h, h, h, need_weights=False)
        x = x + h
        return x + self.mlp(self.norm(x))


def test_a_profilers_trace_is_joined_with_the_lines(tmp_path):
    block, x = Block().cuda().eval(), torch.randn(64, 8, 256, device="cuda")
    with torch.no_grad():
        block(x)
        with torch.cuda.Stream(), ag.Graph(keep_graph=True, observe=ag.stacks()) as graph:
            block(x)
    graph.replay()
    torch.cuda.synchronize()
    how = {"activities": [torch.profiler.ProfilerActivity.CUDA], "acc_events": True}  # else it warns
    with torch.profiler.profile(**how) as profile:
        graph.replay()
        torch.cuda.synchronize()
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    kinds = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
    ran = [event for event in events if event.get("cat") in kinds]
    ran.sort(key=lambda event: event["ts"])  # these traces name no nodes, but there are no branches
    nodes = [node for node in graph.describe().nodes if node.kind in kinds.values()]
    assert len(ran) == len(nodes) > 5
    joined = list(zip(ran, nodes, strict=True))
    names = {node.name for node in nodes}
    for event, node in joined:
        if node.kind == "kernel":
            short = node.demangled or node.name
            assert event["name"] in (node.name, short) or event["name"].split("<")[0] in short, names
    source, first = inspect.getsourcelines(Block.forward)
    lines = {next(each.line for each in node.stack if each.function == "Block.forward") for node in nodes}
    assert lines == {first + at for at, line in enumerate(source) if "=" in line or "return" in line}
