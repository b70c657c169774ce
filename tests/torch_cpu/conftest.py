"""The fixture of the tests that run with torch's CPU build."""

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
