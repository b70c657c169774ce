"""torch modules and tensors for `make_graphed_callables`, on torch's CPU build."""

import torch

import accelerator_graph as ag

inputs = "copy"
"""How the callables that tests make get their arguments."""


def make(*args, **options):
    return ag.make_graphed_callables(*args, **{"inputs": inputs, **options})


def net(*more):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), *more, torch.nn.Linear(8, 3))


def x_of(n=4, grad=False):
    return torch.randn(n, 6, requires_grad=grad)


def grads(module):
    return [None if p.grad is None else p.grad.clone() for p in module.parameters()]


def same(ours, theirs):
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        if other is None:
            assert one is None
        else:
            torch.testing.assert_close(one, other, rtol=0, atol=0)
