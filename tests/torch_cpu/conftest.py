"""The stream that tests of torch's build for the CPU record torch's work on."""

import pytest

import accelerator_graph as ag


@pytest.fixture
def stream():
    """The current stream, of the CPU backend."""
    import torch

    from .framework import taking_part

    torch.manual_seed(1)
    with taking_part(), ag.Stream(backend="cpu") as stream:
        yield stream
