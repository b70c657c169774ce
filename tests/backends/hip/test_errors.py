"""What the codes of the HIP runtime mean, in the library's own errors."""

from enum import IntEnum

from accelerator_graph.backends._hip.errors import explain

NAMES = IntEnum("hipError_t", {"hipErrorX": 1})


def test_a_code_is_explained_by_the_runtime_where_the_library_knows_nothing():
    said = explain("hipCall", 1, NAMES, b"invalid \xff argument.")
    assert said == ("hipErrorX", "invalid \ufffd argument.", "other")
    assert explain("hipCall", 1, NAMES, None) == ("hipErrorX", "", "other")


def test_a_code_that_hip_python_does_not_know():
    assert explain("hipCall", 4711, NAMES, b"") == ("an unknown code", "", "other")
