"""The contract as it is written down: one page for a small backend, and a class for each capability."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import accelerator_graph as ag
from accelerator_graph.backends import base, mixins
from accelerator_graph.backends.base import Backend, Capability, CaptureInfo, Events, NativeCalls, Recorder
from accelerator_graph.backends.cpu import CpuBackend
from accelerator_graph.backends.mixins import MIXINS, TimesGraphs
from accelerator_graph.errors import BackendContractError
from lanes import require

pytestmark = require("cpu")


def methods(kind: type) -> set[str]:
    found = inspect.getmembers(kind, lambda member: inspect.isfunction(member) or inspect.ismethod(member))
    return {name for name, _ in found if not name.startswith("_")}


def own(mixin: type[Backend]) -> frozenset[Capability]:
    return mixin.inherited.difference(*(getattr(each, "inherited", ()) for each in mixin.__bases__))


def test_a_minimal_author_reads_one_page() -> None:
    lines = Path(base.__file__).read_text(encoding="utf-8").splitlines()
    (end,) = [
        number for number, line in enumerate(lines, 1) if "a backend without all of this is complete" in line
    ]
    assert end <= 300
    abstract = {name for name in Backend.__abstractmethods__ if f"def {name}(" in "\n".join(lines[:end])}
    assert abstract == Backend.__abstractmethods__


def test_how_many_methods_there_are() -> None:
    assert len(Backend.__abstractmethods__) == 12
    assert len(methods(Backend) - Backend.__abstractmethods__) <= 9
    assert len(methods(Recorder)) == 7
    assert len(set().union(*map(methods, MIXINS))) <= 52
    assert len(methods(NativeCalls)) <= 5


def test_the_table_says_which_class_is_which_capability() -> None:
    rows = dict(re.findall(r'^``"(\w+)"`` +`(\w+)`', str(base.__doc__), re.MULTILINE))
    assert rows == {str(each): mixin.__name__ for mixin in MIXINS for each in own(mixin)}
    assert set(rows) == set(Capability)
    assert all(getattr(base, name) is getattr(mixins, name) for name in rows.values())


def test_what_a_class_inherits_is_what_it_can_do() -> None:
    assert Backend.inherited == frozenset()
    assert Events.inherited == {"events"}
    assert TimesGraphs.inherited == {"events", "timing", "nodes", "graph_events"}
    assert ag.backends.get("cpu").capabilities(0) == CpuBackend.inherited


@pytest.mark.promise("missing-capability-is-named")
def test_a_method_that_is_not_inherited_names_its_capability() -> None:
    backend = ag.backends.get("cpu")
    with pytest.raises(ag.UnsupportedError, match="'cpu' does not have the capability 'handles'") as refused:
        backend.handle_int(None)
    assert refused.value.capability == "handles"
    with pytest.raises(AttributeError, match="'CpuBackend' object has no attribute 'nonsense'"):
        backend.nonsense  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("claim", ["handles", "event"])
def test_claims_without_the_class_are_refused(claim: str) -> None:
    class Claims(CpuBackend):
        def capabilities(self, device: int) -> Any:
            return {*super().capabilities(device), claim}

    ag.backends.register("claims", Claims)
    try:
        with pytest.raises(
            BackendContractError, match=f"'claims' claims the capabilities '{claim}' and does not"
        ):
            ag.backends.get("claims")
        assert (
            f"claims the capabilities '{claim}'"
            in {each.name: each.reason for each in ag.backends.report()}["claims"]
        )
    finally:
        ag.backends.unregister("claims")


@pytest.mark.parametrize("recording", [None, "both"])
def test_a_backend_has_to_say_how_it_records(recording: str | None) -> None:
    """Nothing else tells that frameworks are not to be asked: their work would run uncaptured, silently."""

    own = {} if recording is None else {"recording": recording}
    abstract = dict.fromkeys(Backend.__abstractmethods__, lambda *_: None)
    silent = type("Silent", (Backend,), {"api_version": 1, **abstract, **own})
    with pytest.raises(
        BackendContractError, match=f'recording must be "stream" or "explicit", not {recording!r}'
    ):
        ag.backends.register("silent", silent)


def test_facts_about_a_capture_are_compared_by_value() -> None:
    assert CaptureInfo(1, 2) == CaptureInfo(1, 2) != CaptureInfo(1)
