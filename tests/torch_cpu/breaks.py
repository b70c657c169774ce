"""Captures with breaks of torch's work, by torch's build for the CPU."""

import pytest

import accelerator_graph as ag
from breaks.torch_programs import PROGRAMS, check

from .framework import taking_part

pytestmark = pytest.mark.needs("torch")


@pytest.fixture(autouse=True)
def stream():
    with taking_part(), ag.Stream(backend="cpu") as stream:
        yield stream


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_can_not_be_captured_is_left_out(program, stream):
    check(program, "cpu", stream.synchronize)
