"""The decode loop of a transformer, with a static cache of keys and values: one replay for each token.

Shows how to write a step that a graph can hold: the token, its position and the cache are always in the same
memory, and the step advances them itself. The weights are random; the most probable token is the next one.

Needs torch and a GPU that it can use.
Run with: python examples/decode_loop.py [--device cuda:1]
"""

import argparse
import sys
from statistics import median
from time import perf_counter

import accelerator_graph as ag

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", default="cuda", help="such as cuda:1")
parser.add_argument("--tokens", type=int, default=255, help="how many to generate")
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

LAYERS, HEADS, WIDTH, VOCABULARY = 6, 8, 512, 8192
LENGTH = options.tokens + 1  # the first token is given


class Layer(nn.Module):
    """Attention to all tokens so far, then a network of two linear layers."""

    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.project, self.output = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.network = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.register_buffer("keys", torch.zeros(1, HEADS, LENGTH, WIDTH // HEADS))
        self.register_buffer("values", torch.zeros(1, HEADS, LENGTH, WIDTH // HEADS))

    def forward(self, x, position, mask):
        """Put the token's keys and values into the cache at its position, and attend to the cache."""
        query, key, value = self.project(self.before(x)).view(3, 1, HEADS, 1, WIDTH // HEADS)
        self.keys.index_copy_(2, position, key)
        self.values.index_copy_(2, position, value)
        attended = F.scaled_dot_product_attention(query, self.keys, self.values, attn_mask=mask)
        x = x + self.output(attended.reshape(1, WIDTH))
        return x + self.network(self.between(x))


@torch.no_grad()
def step():
    """Enqueue the computation of the next token."""
    x = words(token) + places(position)
    mask = (everywhere <= position).view(1, 1, 1, LENGTH)
    for layer in layers:
        x = layer(x, position, mask)
    token.copy_(head(x).argmax(dim=-1))
    position.add_(1)
    text.index_copy_(0, position, token)


def decode(advance):
    """Generate the text several times; return it, and the median time of a token in us."""
    times = []
    for _ in range(5):
        token.fill_(1)
        position.zero_()
        text.zero_()
        stream.synchronize()
        begin = perf_counter()
        for _ in range(options.tokens):
            advance()
        stream.synchronize()
        times.append((perf_counter() - begin) / options.tokens * 1e6)
    return text.clone(), median(times)


with ag.Stream(device.index) as stream:  # also torch's current stream
    torch.manual_seed(0)
    words, places = nn.Embedding(VOCABULARY, WIDTH).to(device), nn.Embedding(LENGTH, WIDTH).to(device)
    layers = [Layer().to(device) for _ in range(LAYERS)]
    head = nn.Linear(WIDTH, VOCABULARY).to(device)
    everywhere, text = torch.arange(LENGTH, device=device), torch.arange(LENGTH, device=device)
    token, position = torch.arange(1, device=device), torch.arange(1, device=device)

    expected, eager = decode(step)  # also loads all kernels, which a capture can't do
    with ag.Graph() as graph:
        step()
    found, replayed = decode(graph.replay)
    same = torch.equal(found, expected)

print(f"problem     {LAYERS} layers of width {WIDTH}, {options.tokens} tokens")
print(f"backend     {stream.backend}, device {stream.device}")
print(f"eager       {eager:.1f} us per token")
print(f"as a graph  {replayed:.1f} us per token")
print(f"gain        {eager / replayed:.2f} times as fast")
print(f"results     {'the same tokens' if same else 'DIFFERENT tokens'}")
sys.exit(0 if same else 1)
