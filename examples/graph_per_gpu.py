"""A graph for every GPU, in one process: each is captured on its device and replayed there.

Needs torch and at least one GPU. Prints, for every device, whether its result is that of eager execution.
"""

import torch

import accelerator_graph as ag

count = torch.cuda.device_count()
weights = [torch.randn(512, 512, device=f"cuda:{device}") for device in range(count)]
inputs = [torch.randn(512, 512, device=f"cuda:{device}") for device in range(count)]
eager = [torch.relu(x @ w) @ w for x, w in zip(inputs, weights, strict=True)]

graphs, results = [], []
for device in range(count):
    graph = ag.Graph()
    with ag.Stream(device), ag.graph(graph):  # the device's stream, and the device, are current inside
        results.append(torch.relu(inputs[device] @ weights[device]) @ weights[device])
    graphs.append(graph)

for graph in graphs:  # all at work at the same time
    graph.replay()
for graph in graphs:
    graph.stream.synchronize()
for device, (got, wanted) in enumerate(zip(results, eager, strict=True)):
    same = torch.equal(got, wanted)
    print(f"device {device}: {'identical to eager, bit for bit' if same else 'DIFFERENT from eager'}")
