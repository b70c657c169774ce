"""The conformance kit, for every backend that can run here."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import ClassVar

import pytest

import accelerator_graph as ag
from accelerator_graph.backends.hip import HipBackend
from accelerator_graph.testing import BackendConformance, Work
from accelerator_graph.testing.works.host import HostWork
from lanes import SIMULATOR
from simulators.cuda.faults import ALWAYS, Accounts, Faults

OUT_OF_MEMORY = 2
STAYS_FORBIDDEN = (
    "AMD's runtime lets only the thread that began a global capture take back what that forbids "
    "(rocm-systems#6097, #11589); destroying the stream does"
)
DEAD_GLOBAL_CAPTURES = (
    "test_global_capture_of_a_thread_that_ended_is_abandoned",
    "test_reset_abandons_the_global_capture_of_a_thread_that_has_ended",
)
PLUGIN = Path(__file__).resolve().parents[1] / "plugins" / "good"


@pytest.mark.needs("cpu")
class TestCpu(BackendConformance):
    def work(self) -> Work:
        return HostWork("cpu")


@pytest.mark.needs("cuda")
class TestCuda(BackendConformance):
    def work(self) -> Work:
        from accelerator_graph.testing.works.cuda import CudaWork

        class SoftwareCudaWork(CudaWork):
            exhausts_memory = True

            def exhausted(self, after: int = 0) -> AbstractContextManager[object]:
                return without_memory(after)

            def live_objects(self) -> Mapping[str, int]:
                return Accounts().live()

        return (SoftwareCudaWork if os.environ.get(SIMULATOR) == "cuda" else CudaWork)()


@pytest.mark.needs("hip")
class TestHip(BackendConformance):
    expected_failures: ClassVar[Mapping[str, str]] = (
        dict.fromkeys(DEAD_GLOBAL_CAPTURES, STAYS_FORBIDDEN)
        if "runtime" in HipBackend.probe().versions
        else {}
    )

    def work(self) -> Work:
        from accelerator_graph.testing.works.hip import HipWork

        return HipWork()


@contextmanager
def without_memory(after: int) -> Iterator[None]:
    """Let the software CUDA driver make so many streams, events and executables, and no more."""
    faults = Faults("libcuda.so.1")
    try:
        for name in ("cuStreamCreateWithPriority", "cuEventCreate", "cuGraphInstantiate"):
            faults.fail(name, code=OUT_OF_MEMORY, nth=after + 1, times=ALWAYS)
        yield
    finally:
        faults.reset()


@contextmanager
def tape() -> Iterator[None]:
    """The example of a plug-in, registered."""
    sys.path.insert(0, str(PLUGIN))
    ag.backends.register("tape_in_the_kit", "accelerator_graph_tape:TapeBackend")
    try:
        yield
    finally:
        ag.backends.unregister("tape_in_the_kit")
        sys.path.remove(str(PLUGIN))


@pytest.mark.needs("cpu")
class TestTape(BackendConformance):
    """The example of a plug-in: a runtime that records explicitly."""

    @pytest.fixture(autouse=True)
    def plugin(self) -> Iterator[None]:
        with tape():
            yield

    @classmethod
    def left_out(cls) -> dict[str, str]:
        with tape():
            return super().left_out()

    def work(self) -> Work:
        from accelerator_graph_tape_testing import TapeWork

        return TapeWork("tape_in_the_kit")
