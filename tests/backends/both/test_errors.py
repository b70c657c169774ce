"""What the codes of the CUDA driver and the HIP runtime mean, in the library's own errors."""

import pickle
import re
from enum import IntEnum

import pytest

from accelerator_graph import errors
from accelerator_graph.backends._cuda.errors import explain as explain_cuda
from accelerator_graph.backends._hip.errors import explain as explain_hip
from accelerator_graph.backends._hip.library import import_hip
from accelerator_graph.backends.driver import Driver, Names, is_handle


class _Names(Names, prefix="a"):
    """Of no runtime."""


class _Driver(Driver):
    """Has only the names of codes."""

    names = _Names

    def __init__(self, name, explain):
        super().__init__(name, None)
        self.explain = explain


def failed(name, explain, code):
    """The error for a code, as the driver of a backend raises it."""
    with pytest.raises(errors.AcceleratorGraphError) as found:
        _Driver(name, explain).failed("aCall", code)
    return found.value


def cuda_failed(code):
    return failed("cuda", lambda function, code: explain_cuda(code), code)


def hip_failed(code, names, text):
    return failed("hip", lambda function, code: explain_hip(function, code, names, text), code)


def codes_of(backend):
    """All codes that the binding of a backend knows, each with the error for it."""
    if backend == "cuda":
        driver = pytest.importorskip("cuda.bindings.driver")
        return [(code, cuda_failed(code)) for code in driver.CUresult]
    pytest.importorskip("hip")
    codes = import_hip().hipError_t
    return [(code, hip_failed(int(code), codes, b"some words")) for code in codes]


@pytest.mark.parametrize("backend", ["cuda", "hip"])
def test_every_code_becomes_one_readable_sentence(backend):
    for code, error in codes_of(backend):
        found = error.code, error.code_name, error.call, error.backend
        assert found == (int(code), code.name, "aCall", backend)
        assert isinstance(error, errors.OutOfMemoryError) == (int(code) == 2)
        assert re.fullmatch(r"[^\n~]+[^.]\.", str(error)), str(error)
        assert ":py:" not in str(error)
        if "terminated and relaunched" in " ".join((code.__doc__ or "").split()):
            assert error.reason == "device_lost"
        assert pickle.loads(pickle.dumps(error)).args == error.args


@pytest.mark.parametrize(
    ("obj", "expected"),
    [(0, True), (5, True), ((1 << 64) - 1, True), (1 << 64, False), (-1, False), (True, False), ("5", False)],
)
def test_what_could_be_a_handle(obj, expected):
    assert is_handle(obj) is expected


REASONS = {
    1: "other",
    2: "out_of_memory",
    101: "other",
    201: "other",
    214: "device_lost",
    401: "other",
    700: "device_lost",
    701: "other",
    719: "device_lost",
    900: "illegal_call",
    901: "invalidated",
    902: "foreign_capture",
    903: "foreign_capture",
    904: "unjoined",
    905: "foreign_capture",
    906: "default_stream",
    907: "illegal_call",
    908: "wrong_thread",
}


@pytest.mark.promise("same-reason-everywhere")
@pytest.mark.parametrize(("code", "reason"), REASONS.items())
def test_reasons(code, reason):
    name = IntEnum("codes", {"A_CODE": code})
    assert cuda_failed(name(code)).reason == reason
    assert hip_failed(code, name, None).reason == reason


def test_a_context_that_is_destroyed_is_lost_with_its_device_on_cuda():
    """HIP has no contexts: there the code says that a stream is none."""
    name = IntEnum("codes", {"A_CODE": 709})
    assert cuda_failed(name(709)).reason == "device_lost"
    assert hip_failed(709, name, None).reason == "other"
