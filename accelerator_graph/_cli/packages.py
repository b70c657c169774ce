"""Installed packages that get in the way of a backend, bad versions of them, and variables that disturb."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from glob import glob
from typing import Any, NamedTuple

from .trial import (
    LIBRARIES,
    Finding,
    library_of,
    loaded_libraries,
    report,
    run_in_process,
)

AMDS_CUDA = ("hip-python-interop", "hip-python-as-cuda")
"""Distributions of AMD's whose package is called cuda, like that of cuda-python."""

GPUS = {"cuda": ("/dev/nvidia[0-9]*", "an NVIDIA GPU"), "hip": ("/dev/kfd", "an AMD GPU")}
"""By backend: the files that show a GPU that its driver knows, and what that GPU is."""


class KnownVersions(NamedTuple):
    """Versions of a component that are known to be bad, or that nobody has tried."""

    backend: str
    """Whose component it is; empty for an installed distribution."""
    component: str
    """A key of the backend's versions, or the distribution."""
    first: str
    until: str
    """The first version that is meant, and the first after it that is not."""
    fact: str
    advice: str


KNOWN = (
    KnownVersions(
        "hip",
        "runtime",
        "6.4",
        "6.5",
        "HIP 6.4 runs a captured fill of host memory, in a graph without branches, once, when the graph is "
        "instantiated, and not at the replays.",
        "Fill memory of the device instead.",
    ),
    KnownVersions(
        "hip",
        "runtime",
        "6.5",
        "7.2.53211",
        "This library has not run on this version of HIP: it is tested on 6.4.3 and 7.2.4. On a MI300X, "
        "replays on ROCm 7.2.0 to 7.2.3 were reported to read stale data now and then (clr#279).",
        "Prefer ROCm 7.2.4, and compare the results of replays with those of the same work without a graph.",
    ),
    KnownVersions(
        "hip",
        "runtime",
        "7.2",
        "7.3",
        "HIP 7.2 can lose nodes if several threads record captures at once (rocm-systems#6888).",
        "Capture in one thread at a time.",
    ),
    KnownVersions(
        "hip",
        "runtime",
        "7.3",
        "99",
        "This library has not run on this version of HIP: it is tested on 6.4.3 and 7.2.4.",
        "Run `accelerator-graph conformance hip`, and compare the results of replays with those of the same "
        "work without a graph.",
    ),
    *(
        KnownVersions(
            "",
            distribution,
            "2.28.9",
            "2.28.10",
            "With NCCL 2.28.9, replays of graphs with collectives between hosts were reported to hang "
            "(vllm#52504). They do not with 2.30.4.",
            "If your graphs contain collectives between hosts, install NCCL 2.30.4 or newer.",
        )
        for distribution in ("nvidia-nccl-cu12", "nvidia-nccl-cu13")
    ),
)


def package_findings(facts: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield what is wrong with the installed packages, given what `info` has gathered."""
    yield from amds_cuda_findings()
    yield from framework_build_findings(facts["frameworks"])
    versions = {row["name"]: row["versions"] for row in facts["backends"]}
    for known in KNOWN:
        if known.backend:
            version = versions.get(known.backend, {}).get(known.component, "")
        else:
            version = installed_version(known.component)
        if version and version_numbers(known.first) <= version_numbers(version) < version_numbers(
            known.until
        ):
            name = f"{known.backend} {known.component} {version}".strip()
            yield Finding(name, known.fact, known.advice)


def amds_cuda_findings() -> Iterator[Finding]:
    """Yield a finding if the package ``cuda`` is AMD's."""
    for name in AMDS_CUDA:
        version = installed_version(name)
        if version:
            yield Finding(
                name,
                f"{name} {version} installs a package `cuda` that calls HIP, in the place of cuda-python's, "
                "so the backend 'cuda' can't be used.",
                f"The backend 'hip' does not need it. Uninstall it: pip uninstall {name}. Then install "
                "cuda-python again if this machine has an NVIDIA GPU.",
            )


def framework_build_findings(frameworks: Iterable[Mapping[str, Any]]) -> Iterator[Finding]:
    """Yield a finding if a framework was built without the GPU that this machine has."""
    for row in frameworks:
        version = row["installed"] or ""
        build = version.partition("+")[2]
        for backend, (_, gpu) in GPUS.items():
            unfit = build == "cpu" or (build.startswith("rocm") and backend == "cuda")
            unfit = unfit or (build.startswith("cu") and backend == "hip" and not gpu_is_visible("cuda"))
            if build and unfit and gpu_is_visible(backend):
                yield Finding(
                    row["name"],
                    f"{row['name']} {version} was built without support for {gpu}, which this machine has.",
                    f"Install the build of {row['name']} for it.",
                )


def gpu_is_visible(backend: str) -> bool:
    """Return True if the system shows a GPU of a backend's vendor."""
    return bool(glob(GPUS[backend][0]))


def installed_version(distribution: str) -> str:
    """Return the version of a distribution; an empty string if it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with."""
    found = []
    for part in version.split("."):
        if not part.isdigit():
            break
        found.append(int(part))
    return tuple(found)


# ---- what frameworks load --------------------------------------------------------------------


class ImportResult(NamedTuple):
    """What importing all installed frameworks, in one process, has shown."""

    findings: list[Finding]
    libraries: tuple[str, ...] = ()
    """The drivers' libraries that the process had loaded."""


def import_result(names: Iterable[str], time_limit: float) -> ImportResult:
    """Import frameworks in a process of its own."""
    names = list(names)
    if not names:
        return ImportResult([])
    result = run_in_process(__name__, "import_all", names, time_limit=time_limit)
    libraries = tuple(result.last("libraries") or ())
    found = [
        Finding(
            name,
            f"{name} is installed, but importing it raises {error.rstrip('.')}.",
            "Repair or uninstall it.",
        )
        for each in result.reports
        for name, error in each.get("failed", {}).items()
    ]
    if result.failure:
        name = result.last("importing") or "Python"
        found.append(
            Finding(
                name,
                f"The process {result.failure} while importing {name}.",
                "Repair or uninstall it.",
            )
        )
    for library, what in LIBRARIES.items():
        copies = {os.path.realpath(each) for each in libraries if library_of(each) == library}
        if len(copies) > 1:
            found.append(
                Finding(
                    library,
                    f"The installed frameworks load {len(copies)} copies of {what} into one process: "
                    f"{', '.join(sorted(copies))}.",
                    "Use one of these frameworks at a time, or install builds that share one copy.",
                )
            )
    return ImportResult(found, libraries)


def import_all(names: Iterable[str]) -> None:
    """Import frameworks; report each, its error, and the libraries at the end. Called in that process."""
    for name in names:
        report(importing=name)
        try:
            importlib.import_module(name)
        except Exception as error:
            report(failed={name: f"{type(error).__name__}: {error}"})
    report(libraries=loaded_libraries())


# ---- environment variables -------------------------------------------------------------------------

Means = Callable[[str], bool]
"""Returns True if a value has the effect."""


def is_on(value: str) -> bool:
    """Return True for a switch that is on."""
    return value.strip() not in ("", "0")


def names_no_device(value: str) -> bool:
    """Return True if a list of visible devices is empty: it ends at the first entry that names none."""
    return value.split(",")[0].strip() in ("", "-1")


HIDING = "hides every {} from the process."
VENDORS_VARIABLES: dict[str, tuple[Means, str, str]] = {
    "CUDA_VISIBLE_DEVICES": (names_no_device, HIDING.format("NVIDIA GPU, and every AMD GPU,"), "Unset it."),
    "HIP_VISIBLE_DEVICES": (names_no_device, HIDING.format("AMD GPU"), "Unset it."),
    "ROCR_VISIBLE_DEVICES": (names_no_device, HIDING.format("AMD GPU"), "Unset it."),
    "CUDA_LAUNCH_BLOCKING": (
        is_on,
        "makes every launch wait for its kernel, replays included.",
        "Unset it, except to look for a kernel that fails.",
    ),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": (
        is_on,
        "makes torch allocate by cudaMalloc, which breaks every capture that allocates.",
        "Unset it.",
    ),
    **dict.fromkeys(
        ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"),
        (
            lambda value: "cudaMallocAsync" in value,
            "makes torch allocate without blocks that it could report, so `Graph.check` finds less.",
            "Leave `backend:` out while you look for memory that a graph does not own.",
        ),
    ),
    "AMD_LOG_LEVEL": (
        is_on,
        "makes AMD's runtime write its log to the error output.",
        "Unset it, except to look for the call that broke a capture.",
    ),
    "DEBUG_HIP_GRAPH_DOT_PRINT": (
        is_on,
        "makes AMD's runtime write files into the current folder for every graph that is instantiated.",
        "Unset it; `Graph.debug_dump` writes the graph that you name.",
    ),
}
"""By variable: which values disturb, what they do, and the way out."""


LIMITING = {
    "cuda": ("CUDA_VISIBLE_DEVICES",),
    "hip": ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
}
"""By backend: the variables that say which GPUs the process sees."""


def variable_findings(settings: Iterable[Mapping[str, Any]], unusable: Iterable[str]) -> Iterator[Finding]:
    """Yield the variables that disturb.

    Parameters
    ----------
    settings : iterable of mapping
        The library's own variables, as `info` has gathered them.
    unusable : iterable of str
        The backends that can't be used, although the system shows a GPU of theirs.
    """
    for row in settings:
        name = row["name"]
        if not row["read"]:
            yield Finding(
                name, f"The variable is set, but {row['effect']}.", "Unset it, or correct its name."
            )
        elif "raises" in row["effect"]:
            yield Finding(name, f"{row['effect'].rstrip('.')}.", "Correct or unset it.")
        elif name in OWN_SWITCHES and is_on(row["value"]):
            yield Finding(name, f"{OWN_SWITCHES[name]}.", "Unset it, unless you mean that.")
    for name, (disturbs, effect, advice) in VENDORS_VARIABLES.items():
        value = os.environ.get(name)
        if value is not None and disturbs(value):
            yield Finding(name, f"{name}={value} {effect}", advice)
    for name in dict.fromkeys(name for backend in unusable for name in LIMITING[backend]):
        value = os.environ.get(name)
        if value is not None and not names_no_device(value):
            fact = f"{name}={value} limits which GPUs the process sees."
            yield Finding(name, fact, "Unset it if it names none of this machine's.")


OWN_SWITCHES = {
    "ACCELERATOR_GRAPH_PURE_PYTHON": "Replays go through Python, which is slower",
    "ACCELERATOR_GRAPH_DISABLE_PLUGINS": "Plug-ins that are installed are not found",
}
"""What the library's own switches do that are easily forgotten."""
