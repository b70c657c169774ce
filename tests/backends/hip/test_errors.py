"""What the codes of the HIP runtime mean, in the library's own errors."""

from __future__ import annotations

import pickle
import re
from enum import IntEnum

import pytest

from accelerator_graph import errors
from accelerator_graph.backends._hip.errors import call_failed
from accelerator_graph.backends._hip.library import import_hip


def test_every_code_becomes_one_readable_sentence():
    pytest.importorskip("hip")
    codes = import_hip().hipError_t
    for code in codes:
        error = call_failed("hip", "hipCall", int(code), codes, b"some words")
        assert (error.code, error.code_name, error.call, error.backend) == (
            int(code),
            code.name,
            "hipCall",
            "hip",
        )
        assert isinstance(error, errors.OutOfMemoryError) == (int(code) == 2)
        assert re.fullmatch(r"[^\n~]+[^.]\.", str(error)), str(error)
        assert pickle.loads(pickle.dumps(error)).args == error.args


NAMES = IntEnum("hipError_t", {"hipErrorX": 1})


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (1, "other"),
        (2, "out_of_memory"),
        (101, "other"),
        (214, "device_lost"),
        (401, "other"),
        (700, "device_lost"),
        (701, "other"),
        (709, "other"),
        (719, "device_lost"),
        (900, "illegal_call"),
        (901, "invalidated"),
        (902, "foreign_capture"),
        (903, "foreign_capture"),
        (904, "unjoined"),
        (905, "foreign_capture"),
        (906, "default_stream"),
        (907, "illegal_call"),
        (908, "wrong_thread"),
    ],
)
def test_reasons(code, reason):
    assert call_failed("hip", "hipCall", code, NAMES, None).reason == reason


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
