"""Captures with breaks of programs in torch, with its build for the CPU."""

import pytest
import torch

import accelerator_graph as ag
from breaks.torch_programs import OPERATORS, PROGRAMS, check, check_operator

pytestmark = [pytest.mark.needs("torch"), pytest.mark.usefixtures("stream")]


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_can_not_be_captured_is_left_out(program, stream):
    check(program, "cpu", stream.synchronize)


@pytest.mark.promise("breaks-operators")
@pytest.mark.parametrize("observe", [(), ag.ownership()], ids=["", "observed"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_calls_of_an_operator_are_eager(operator, observe, stream):
    check_operator(operator, "cpu", stream.synchronize, observe)


@pytest.mark.parametrize(
    ("name", "fact"),
    [
        ("aten::nope", "torch does not have"),
        ("aten::add.Nope", "torch does not have"),
        ("nolib::op", "torch does not have"),
        ("aten::matmul", "name one of those operators"),
    ],
)
def test_an_operator_that_can_not_be_a_break_is_refused_first(name, fact):
    graph = ag.Graph()
    with (
        pytest.raises(ValueError, match=f"breaks names the operator '{name}'.*{fact}"),
        ag.graph(graph, breaks=[name]),
    ):
        pytest.fail("it has begun")
    assert graph.state == "empty"


def test_what_stands_in_the_way_of_an_operator_is_said(stream):
    modes, graph = torch.utils._python_dispatch._get_current_dispatch_mode_stack, ag.Graph()
    before, weight = modes(), torch.ones(3, requires_grad=True)
    with (
        pytest.raises(
            ag.UnsupportedError, match=r"aten::mul\.Tensor at .* takes a tensor that requires grad"
        ),
        ag.graph(graph, breaks=["aten::mul"]),
    ):
        weight * 2

    class Mode(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    def in_a_mode():
        with Mode():
            torch.ones(3) + 1
            ag.graph_break()

    with pytest.raises(ag.UnsupportedError, match="a mode of torch"), ag.graph(graph, breaks=["aten::mul"]):
        in_a_mode()
    with pytest.raises(ZeroDivisionError), ag.graph(graph, breaks=["aten::mul"]):
        raise ZeroDivisionError
    assert graph.state == "empty"
    assert modes() == before
