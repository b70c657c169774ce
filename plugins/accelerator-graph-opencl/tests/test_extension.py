"""Which command buffers a device has, and what the versions of the extension differ in."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pyopencl as cl
import pytest
from accelerator_graph_opencl import _extension as extension
from accelerator_graph_opencl._extension import extension_of

NONE, PROFILING, UNORDERED = 0, 2, 1


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that makes the extension of a device with a version and numbers by parameter."""
    monkeypatch.delenv(extension.SWITCH, raising=False)

    def make(version: tuple[int, int, int] | None, **numbers: int) -> Any:
        major, minor, patch = version or (0, 0, 0)
        found = SimpleNamespace(name=extension.NAME, version=major << 22 | minor << 12 | patch)

        def get_info(parameter: int) -> Sequence[Any]:
            if version is None:
                raise cl.Error
            return [SimpleNamespace(name="cl_khr_other", version=0), found]

        named = {
            0x12A9: numbers.get("capabilities", 4),
            0x129A: numbers.get("supported", 0),
            0x12AA: numbers.get("required", 0),
        }
        monkeypatch.setattr(extension, "device_number", lambda device, parameter: named[parameter])
        monkeypatch.setattr(extension, "function_address", lambda platform, name: numbers.get("address", 1))
        device = SimpleNamespace(get_info=get_info, platform=SimpleNamespace(int_ptr=1))
        return extension_of(device)

    return make


@pytest.mark.parametrize("version", [None, (0, 8, 9), (2, 0, 0)])
def test_versions_that_are_not_known_are_not_used(made: Any, version: tuple[int, int, int] | None) -> None:
    assert made(version) is None


def test_a_function_that_is_missing(made: Any) -> None:
    assert made((1, 0, 0)) is not None
    assert made((1, 0, 0), address=0) is None


def test_the_variable_turns_them_off(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(extension.SWITCH, "1")
    assert made((1, 0, 0)) is not None
    monkeypatch.setenv(extension.SWITCH, "0")
    assert made((1, 0, 0)) is None


@pytest.mark.parametrize(
    ("version", "listed"), [((0, 9, 0), 0), ((0, 9, 4), 0), ((0, 9, 5), 1), ((0, 9, 8), 1), ((1, 0, 0), 1)]
)
def test_fills_and_copies_have_properties_since_0_9_5(
    made: Any, version: tuple[int, int, int], listed: int
) -> None:
    """The number of arguments: buffer, queue, properties, then memory, and four about points."""
    functions = made(version).functions
    for kind in ("memset", "memcpy"):
        assert len(functions[kind].argtypes) == 2 + listed + 5 + 4
    assert len(functions["kernel"].argtypes) == 12


@pytest.mark.parametrize(
    ("version", "capabilities", "flags"),
    [((0, 9, 0), 4, 1), ((0, 9, 7), 0, None), ((0, 9, 8), 0, 0), ((1, 0, 0), 4, 0)],
)
def test_simultaneous_use_is_needed_while_there_is_a_pending_state(
    made: Any, version: tuple[int, int, int], capabilities: int, flags: int | None
) -> None:
    found = made(version, capabilities=capabilities)
    assert (found and found.flags) == flags


@pytest.mark.parametrize(
    ("version", "capabilities", "supported", "out_of_order"),
    [((0, 9, 0), 12, 0, True), ((0, 9, 0), 4, 1, False), ((0, 9, 6), 12, 0, False), ((1, 0, 0), 0, 1, True)],
)
def test_who_says_whether_queues_may_be_out_of_order(
    made: Any, version: tuple[int, int, int], capabilities: int, supported: int, out_of_order: bool
) -> None:
    found = made(version, capabilities=capabilities, supported=supported)
    assert found.out_of_order is out_of_order


def test_which_queues_are_accepted(made: Any) -> None:
    old = made((0, 9, 6), supported=PROFILING)
    assert [old.accepts(each) for each in (NONE, PROFILING)] == [True, False]
    assert not made((0, 9, 0), required=PROFILING).accepts(PROFILING)
    new = made((0, 9, 7), supported=PROFILING)
    assert [new.accepts(each) for each in (NONE, PROFILING, PROFILING | 8)] == [True, True, False]
    strict = made((1, 0, 0), supported=PROFILING, required=PROFILING)
    assert [strict.accepts(each) for each in (NONE, PROFILING)] == [False, True]
