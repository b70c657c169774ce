"""Names of kernels that a person can read."""

from __future__ import annotations

import pytest

from accelerator_graph.backends.base import GraphContents, GraphNode
from accelerator_graph.inspection.names import body_title, demangled, short_name

BODY: GraphContents = ([], [])
MANGLED = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_"


def test_mangled_names_are_demangled():
    assert demangled(MANGLED).startswith("void at::native::vectorized_elementwise_kernel<4,")
    assert short_name(demangled(MANGLED)) == "vectorized_elementwise_kernel"


@pytest.mark.parametrize("name", ["squash", "", "_Znot_mangled", "_Z", "Z3foov", "step.<locals>.<lambda>"])
def test_other_names_stay_as_they_are(name):
    assert demangled(name) == name


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("squash", "squash"),
        ("", ""),
        ("step.<locals>.<lambda>", "<lambda>"),
        ("Solver.step", "Solver.step"),
        ("_Znot_mangled", "_Znot_mangled"),
        ("void cutlass::Kernel2<cutlass::gemm<float, (bool)1>>(Params)", "Kernel2"),
        ("(anonymous namespace)::fill<int>(int*)", "fill"),
        ("std::enable_if<((8)>(4)), void>::type fill<8>(float*)", "fill"),
        ("std::enable_if<((8)<(4)), void>::type ns::fill<8>(float*)", "fill"),
        ("std::enable_if<((sizeof (double))>>(1))!=(0), void>::type ns::fill<double>(double)", "fill"),
        ("decltype (({parm#1}->x)()) ns::get<ns::S*>(ns::S*)", "get"),
        ("void ns::map<int (*)(int)>(int (*)(int))", "map"),
        ("use()::{lambda(int)#1}::operator()(int) const", "operator()"),
        ("ns::S::operator<(int)", "operator<"),
        ("bool ns::operator< <int>(int)", "operator<"),
        ("ns::S::operator bool()", "operator bool"),
        ("ns::S<int>::operator bool() const", "operator bool"),
        ("two words", "two words"),
        ("two words (fast)", "two words"),
        ("a->b", "a->b"),
        ("<lambda>", "<lambda>"),
        ("a\nb", r"a\nb"),
    ],
)
def test_short_names(name, short):
    assert short_name(name) == short


@pytest.mark.parametrize(
    ("node", "titles"),
    [
        (GraphNode(3, "graph", bodies=(BODY,)), ["inside node 3"]),
        (GraphNode(3, "conditional", "while", bodies=(BODY,)), ["inside node 3"]),
        (GraphNode(3, "conditional", "if", bodies=(BODY,)), ["inside node 3"]),
        (
            GraphNode(3, "conditional", "if", bodies=(BODY,) * 2),
            ["inside node 3, then", "inside node 3, else"],
        ),
        (GraphNode(3, "conditional", "switch", bodies=(BODY,)), ["inside node 3, case 0"]),
        (GraphNode(3, "conditional", bodies=(BODY,) * 2), ["inside node 3, body 0", "inside node 3, body 1"]),
    ],
)
def test_a_body_is_named_by_when_it_runs(node, titles):
    assert [body_title(node, number) for number in range(len(node.bodies))] == titles
