"""A whole training step in one graph: forward, loss, backward and the optimiser.

Shows how to train: the first steps run eagerly, and are part of the training. The capture runs nothing. Every
later step copies a batch to where the graph reads it, and replays.

Needs torch and a GPU that it can use.
Run with: python examples/training_step.py [--device cuda:1]
"""

import argparse
import sys
from statistics import median
from time import perf_counter

import accelerator_graph as ag

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", default="cuda", help="such as cuda:1")
parser.add_argument("--steps", type=int, default=200, help="how many steps to train")
options = parser.parse_args()
try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError:
    sys.exit("This example needs torch, which is not installed.")
device = torch.device(options.device)
if device.type == "cuda":
    if not (torch.cuda.is_available() and ag.is_graph_available()):
        sys.exit("This example needs a GPU that torch can use; see accelerator-graph info.")
    torch.cuda.init()

LAYERS, WIDTH, CLASSES, BATCH = 8, 256, 10, 128
WARM_UP = 3


def new_training():
    """Return a function that trains on one batch and returns the loss. All begin with the same weights."""
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.GELU()) for _ in range(LAYERS)]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, CLASSES)).to(device)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)

    def train(x, target):
        optimiser.zero_grad(set_to_none=True)  # so that the capture makes gradients of its own
        loss = F.cross_entropy(model(x), target)
        loss.backward()
        optimiser.step()
        return loss.detach()

    return train


def train_all(train):
    """Train on all batches; return the losses, and the median time of a step in us, without the warm-up."""
    losses, times = [], []
    for x, target in batches:
        stream.synchronize()
        begin = perf_counter()
        losses.append(train(x, target).clone())
        stream.synchronize()
        times.append((perf_counter() - begin) * 1e6)
    return torch.stack(losses), median(times[WARM_UP + 1 :])


def graphed_training():
    """Return the same as `new_training`, but the steps after the warm-up replay one graph."""
    train, graph = new_training(), ag.Graph()
    x, target = (each.clone() for each in batches[0])
    count, loss = 0, None

    def replay(new_x, new_target):
        nonlocal count, loss
        count += 1
        if count <= WARM_UP:
            return train(new_x, new_target)
        if loss is None:
            with graph:
                loss = train(x, target)
        x.copy_(new_x)
        target.copy_(new_target)
        graph.replay()
        return loss

    return replay


with ag.Stream(device.index) as stream:  # also torch's current stream
    torch.manual_seed(1)
    teacher = torch.randn(WIDTH, CLASSES, device=device)
    inputs = [torch.randn(BATCH, WIDTH, device=device) for _ in range(options.steps)]
    batches = [(x, (x @ teacher).argmax(dim=1)) for x in inputs]

    expected, eager = train_all(new_training())
    found, replayed = train_all(graphed_training())
    same = torch.equal(found, expected)

print(f"problem     {LAYERS} layers of width {WIDTH}, {options.steps} batches of {BATCH}")
print(f"backend     {stream.backend}, device {stream.device}")
print(f"eager       {eager:.1f} us per step")
print(f"as a graph  {replayed:.1f} us per step")
print(f"gain        {eager / replayed:.2f} times as fast")
print(f"results     {'equal' if same else 'DIFFERENT'} losses, from {found[0]:.3f} to {found[-1]:.3f}")
sys.exit(0 if same else 1)
