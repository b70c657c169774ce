"""The kit finds what a vendor may get wrong: each fault by the rules that are meant for it."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from unittest import SkipTest

import pytest

from accelerator_graph.backends.base import Backend
from accelerator_graph.backends.cpu import CpuBackend
from accelerator_graph.testing import BackendConformance, CheckResult, Work, check_backend
from accelerator_graph.testing.works.host import HostWork
from kit.command_lists import CommandLists, ListsWork
from kit.explicit_runtime import Explicit
from kit.planted.collection import CAUGHT, NAME, SURVIVES, WORKS
from kit.planted.without_a_fault import CrossesBorders, EveryCapability, ReportsFailures
from kit.planted.works import FailingWork

KINDS = {
    "recording": "executes during the capture, records wrongly, or records stale parameters",
    "ending": "leaves or leaks a capture on error",
    "replaying": "replays something else, elsewhere, or at another time",
    "updating": "updates an executable in part, changes other nodes, or says what is not true of that",
    "ordering": "ignores a dependency, or has events that move",
    "failing": "hides failures, or breaks more than what has failed",
    "refusing": "swallows an error, or raises another one",
    "stating": "lies about a capability or a status",
    "listing": "lists other nodes and dependencies than the graph's",
    "destroying": "destroys early, late, or with an error",
    "leaking": "never releases what it has made",
    "threads": "loses replays under threads, or knows only one thread",
    "timing": "is wrong about when events are done, or about the time between them",
    "waiting": "waits where nothing has to be waited for, or lets others wait",
}
for kind in (*KINDS, "command_lists", "ordinary"):
    importlib.import_module(f"kit.planted.{kind}")


OF_NO_FAULT = {"AttributeError", "BackendContractError"}
"""What is raised where a fault does not fit the library that it is planted in."""
ATTEMPTS = 5
"""A rule about work in progress may see it done already, if the machine is busy."""


def conformance(fault: type[Backend]) -> BackendConformance:
    class Conformance(BackendConformance):
        def work(self) -> Work:
            return WORKS.get(fault, HostWork)(NAME)

    return Conformance()


def name_of(parameter: object) -> str:
    return getattr(parameter, "__name__", str(parameter))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # of the fault
@pytest.mark.parametrize(
    ("fault", "rule"), [(fault, rule) for fault, rules in CAUGHT.items() for rule in rules], ids=name_of
)
def test_fault_is_caught(
    fault: type[Backend],
    rule: str,
    register: Callable[[type[Backend]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    register(fault)
    monkeypatch.setattr(BackendConformance, "time_limit", 3.0)  # some faults hang
    monkeypatch.setattr(BackendConformance, "patience", 2.0)
    for _ in range(ATTEMPTS):
        try:
            getattr(conformance(fault), rule)()
        except SkipTest as error:
            raise AssertionError(f"the rule was left out: {error}") from error
        except Exception as error:
            found = names_of(error)
            break
    else:
        raise AssertionError("the rule passes")
    assert OF_NO_FAULT.isdisjoint(found), "it was not the fault that the rule has caught"


def names_of(error: BaseException | None) -> set[str]:
    """Return the names of the types of an exception and of those that it was raised from."""
    found = set[str]()
    while error is not None:
        found.add(type(error).__name__)
        error = error.__cause__
    return found


@pytest.mark.parametrize(("fault", "rule"), SURVIVES.items(), ids=name_of)
def test_survivor_does_survive(
    fault: type[Backend], rule: str, register: Callable[[type[Backend]], None]
) -> None:
    register(fault)
    getattr(conformance(fault), rule)()


def test_few_survive() -> None:
    assert len(CAUGHT) >= 150
    assert len(SURVIVES) <= 4


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("runtime", [CpuBackend, Explicit], ids=["captures streams", "records explicitly"])
def test_both_kinds_of_runtime_have_faults_of_each_kind(kind: str, runtime: type[Backend]) -> None:
    faults = [
        each for each in CAUGHT if each.__module__ == f"kit.planted.{kind}" and issubclass(each, runtime)
    ]
    assert len(faults) >= 3


@pytest.mark.parametrize(
    ("backend", "work"),
    [
        (CommandLists, ListsWork),
        (EveryCapability, HostWork),
        (CrossesBorders, HostWork),
        pytest.param(ReportsFailures, FailingWork, marks=pytest.mark.needs("rest")),
    ],
)
def test_without_a_fault_nothing_is_found(
    backend: type[Backend], work: Callable[[str], Work], register: Callable[[type[Backend]], None]
) -> None:
    register(backend)
    results = check_backend(work(NAME))
    assert len(results) == len({result.name for result in results})
    assert CheckResult("test_each_replay_runs_the_work_once", "passed") in results
    skipped = [result.reason for result in results if result.outcome == "skipped"]
    assert [reason for reason in skipped if "capability" not in reason and NAME not in reason] == []
    assert len(results) - len(skipped) > 200
