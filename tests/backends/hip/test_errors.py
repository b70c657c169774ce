"""What the codes of the HIP runtime mean, in the library's own errors."""

from enum import IntEnum

from accelerator_graph.backends._hip.errors import call_failed

NAMES = IntEnum("hipError_t", {"hipErrorX": 1})


def test_a_code_is_explained_by_the_runtime_where_the_library_knows_nothing():
    said = str(call_failed("hip", "hipCall", 1, NAMES, b"invalid \xff argument."))
    assert said == "backend 'hip': hipCall returned hipErrorX (1): invalid \ufffd argument."
    assert (
        str(call_failed("hip", "hipCall", 1, NAMES, None)) == "backend 'hip': hipCall returned hipErrorX (1)."
    )


def test_a_code_that_hip_python_does_not_know():
    error = call_failed("hip", "hipCall", 4711, NAMES, b"")
    assert (error.code, error.code_name, error.reason) == (4711, "an unknown code", "other")
    assert str(error) == "backend 'hip': hipCall returned an unknown code (4711)."
