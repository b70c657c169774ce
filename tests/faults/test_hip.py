"""The suite of faults, on AMD's runtime: what it found, and what it covered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import faults.wrapper
import inner
from accelerator_graph.backends._hip import library
from faults import parts
from lanes import step
from simulators.amd.runtime import command, environment

FEWER = ("-k", "capture-with- or instantiate or replay or reset")
PARTS = {
    "7.2": {
        **parts.slices("every_call", 2),
        **parts.slices("interrupts", 2),
        "rest": parts.REST,
    },
    "6.4": {
        **parts.slices("every_call", 2, *FEWER),
        "rest": parts.REST,
    },
}
"""By version of the runtime. The older one runs fewer, since all of the suite takes as long again."""


OLDER = pytest.mark.needs("rest")


OF_OTHER_NODES = frozenset(
    (
        *("hipGraphHostNodeGetParams", "hipGraphChildGraphNodeGetGraph"),
        *("hipGraphMemAllocNodeGetParams", "hipGraphMemFreeNodeGetParams"),
    )
)
"""They read nodes that no graph here has, as other functions read those that the graphs have."""


@pytest.mark.promise("interrupt-leaves-no-trace")
@pytest.mark.parametrize(
    ("version", "part"),
    [
        pytest.param(version, part, marks=() if version == "7.2" else OLDER)
        for version in PARTS
        for part in PARTS[version]
    ],
)
def test_every_fault_leaves_no_trace(
    amd_runtime: Callable[[str], Path],
    shared_folder: Path,
    record_property: Callable[[str, object], None],
    run_inner: Callable[..., inner.Outcome],
    version: str,
    part: str,
) -> None:
    amd_runtime(version)
    runtime = faults.wrapper.build(version)
    env = environment(runtime, FAULTS_BACKEND="hip", SOFTWARE_HSA_DEVICES="2")
    folder = shared_folder / f"faults-hip-{version}"
    folder.mkdir(exist_ok=True)
    parts.run(run_inner, command(runtime), env, folder / f"{part}.json", PARTS[version][part])
    if version == "7.2" and (reports := parts.together(folder, PARTS[version])):  # the part that ends last
        calls, injected, states_checked, said = parts.figures(reports, "hip")
        record_property("note", f"HIP faults: {said}")
        assert calls | OF_OTHER_NODES == {*library._SIGNATURES}
        assert injected > 8000 / step("codes")
        assert states_checked > injected + 30000 / step("moments")
