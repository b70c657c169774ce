"""A graph for each GPU, in one process: each is captured on its device and replayed there.

Shows how one thread keeps several GPUs busy: it takes little of its time to launch a graph.

Needs torch and at least one GPU that it can use.
Run with: python examples/graph_per_gpu.py
"""

import argparse
import sys
from statistics import median
from time import perf_counter

import accelerator_graph as ag

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--devices", nargs="+", help="by default all, such as cuda:0 cuda:1")
options = parser.parse_args()
try:
    import torch
except ImportError:
    sys.exit("This example needs torch, which is not installed.")
if not options.devices:
    if not (torch.cuda.is_available() and ag.is_graph_available()):
        sys.exit("This example needs a GPU that torch can use; see accelerator-graph info.")
    torch.cuda.init()
    options.devices = [f"cuda:{number}" for number in range(torch.cuda.device_count())]

LAYERS, WIDTH, BATCH = 32, 512, 128


class Part:
    """The part of one device: its stream, its weights, its input and its graph."""

    def __init__(self, device):
        self.stream = ag.Stream(device.index)
        with self.stream:  # the stream, and the device, are current in torch
            torch.manual_seed(device.index or 0)
            self.weights = torch.randn(LAYERS, WIDTH, WIDTH, device=device) / WIDTH**0.5
            self.x = torch.randn(BATCH, WIDTH, device=device)
            self.compute()  # once eagerly: a capture can't load what is used for the first time
            with ag.Graph() as self.graph:
                self.y = self.compute()
            self.x.normal_()  # new input: the results must be of the replays
            self.expected = self.compute()

    def compute(self):
        """Enqueue the layers."""
        x = self.x
        for weight in self.weights:
            x = torch.relu(x @ weight)
        return x

    def run(self):
        """Run the layers eagerly."""
        with self.stream:
            self.compute()

    def replay(self):
        """Run the layers as a graph."""
        self.graph.replay()


def measure(enqueue):
    """Let all devices work at the same time, several times; return the median time of a round in us."""
    times = []
    for _ in range(51):
        begin = perf_counter()
        for part in parts:
            enqueue(part)
        for part in parts:
            part.stream.synchronize()
        times.append((perf_counter() - begin) * 1e6)
    return median(times)


with torch.no_grad():
    parts = [Part(torch.device(name)) for name in options.devices]
    eager, replayed = measure(Part.run), measure(Part.replay)
    same = [torch.equal(part.y, part.expected) for part in parts]

print(f"problem     {LAYERS} layers of width {WIDTH} on each of {len(parts)} devices")
print(f"backend     {parts[0].stream.backend}, devices {', '.join(options.devices)}")
print(f"eager       {eager:.1f} us per round")
print(f"as a graph  {replayed:.1f} us per round")
print(f"gain        {eager / replayed:.2f} times as fast")
print(f"results     {'equal, bit for bit' if all(same) else f'DIFFERENT: equal on {sum(same)} devices'}")
sys.exit(0 if all(same) else 1)
