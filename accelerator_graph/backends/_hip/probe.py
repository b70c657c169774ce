"""Whether HIP could run here, found out without initialising it."""

from __future__ import annotations

import importlib.metadata
import os
import re

from ..base import Availability
from .library import NAME, Library, SeveralLibrariesError, import_hip, mapped_copies

_OLDEST_BINDING, _OLDEST_UNKNOWN_BINDING = (6, 4), (8, 0)
_DEVICE = "/dev/kfd"
_TOPOLOGY = "/sys/class/kfd/kfd/topology/nodes"
_DEFECTS = {
    "6.4": (
        "HIP 6.4 crashes on graphs with branches if two of their streams share the queue of the stream that "
        "the graph is replayed on",
        "DEBUG_HIP_FORCE_GRAPH_QUEUES",
        "1",
    ),
    "7.2": (
        "HIP 7.2.4 crashes on some graphs of many short branches (rocm-systems#11499)",
        "DEBUG_HIP_GRAPH_SEGMENT_SCHEDULING",
        "2",
    ),
}
"""By version: what the runtime does, and the variable that prevents it, with its value."""
_VISIBLE = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def probe() -> Availability:
    """Return whether HIP could run here, and the first reason if it could not."""
    versions: dict[str, str] = {}
    try:
        reason = _binding_missing(versions) or _runtime_missing(versions)
        devices = None if reason else _devices()
    except Exception as error:
        return Availability(False, f"looking for HIP failed with {error!r}", versions)
    if devices == 0:
        reason = "no AMD GPU is visible to this process. Attach one, or correct HIP_VISIBLE_DEVICES"
    elif not reason and os.path.exists(_DEVICE) and not os.access(_DEVICE, os.R_OK | os.W_OK):
        reason = f"this user may not open {_DEVICE}. Add the user to its group, which is render or video"
    return Availability(not reason, reason, versions, devices, _defect(versions.get("runtime", "")))


def _defect(runtime: str) -> str:
    """Return a known defect of this runtime; nothing if the user has applied the workaround."""
    what, variable, value = _DEFECTS.get(".".join(runtime.split(".")[:2]), ("", "", None))
    if os.environ.get(variable) == value:
        return ""
    return f"{what}. Set {variable}={value} in the environment before the process starts."


def _binding_missing(versions: dict[str, str]) -> str:
    try:
        hip = import_hip()
        numbers: tuple[int, int] = hip.HIP_VERSION_MAJOR, hip.HIP_VERSION_MINOR
    except ModuleNotFoundError as error:
        if error.name in (None, "hip", "hip.hip"):
            return f"hip-python is not installed. {_how_to_install()}"
        return f"hip-python can't be imported ({error}). {_how_to_install()}"
    except Exception as error:
        return f"hip-python can't be imported ({error}). {_how_to_install()}"
    try:
        version = importlib.metadata.version("hip-python")
        older = f"hip-python>=6.4,<{version.partition('+')[0]}"
    except importlib.metadata.PackageNotFoundError:
        from ..._install import REQUIREMENTS

        version = f"for HIP {numbers[0]}.{numbers[1]}"
        older = REQUIREMENTS["hip"]
    versions["hip-python"] = version
    if numbers < _OLDEST_BINDING:
        return f"hip-python {version} is too old; 6.4 is the oldest that works. {_how_to_install()}"
    if numbers >= _OLDEST_UNKNOWN_BINDING:
        return (
            f"hip-python {version} is too new; its interface may have changed. Install an older one with: "
            f'pip install "{older}"'
        )
    return ""


def _runtime_missing(versions: dict[str, str]) -> str:
    try:
        library = Library()
    except SeveralLibrariesError as error:
        return (
            f"there are two copies of the HIP runtime in this process, {error}. Have all packages use one: "
            "import the one that brings its own before anything else uses hip-python"
        )
    except OSError as error:
        if f"{NAME}: cannot open shared object file: No such file" in str(error):
            return f"no HIP runtime ({NAME}) was found. Install ROCm, or name its folder in ROCM_PATH"
        return f"the HIP runtime can't be loaded ({error}). Reinstall ROCm"
    try:
        library.function("hipGraphLaunch")
    except AttributeError:
        return f"{library.path} is not a HIP runtime: it has no hipGraphLaunch. Install ROCm"
    for copy in mapped_copies():
        numbers = re.search(r"\.so\.(\d+\.\d+[.\d]*)", copy)
        if numbers:
            versions["runtime"] = numbers[1]
    return ""


def _devices() -> int | None:
    """Count the devices that the system shows; None where it shows none, as in WSL."""
    visible = os.environ.get("HIP_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES"))
    if visible is not None and visible.split(",")[0].strip() in ("", "-1"):
        return 0  # the list ends at the first entry that does not name a device
    try:
        nodes = os.listdir(_TOPOLOGY)
    except OSError:
        return None
    count = sum(_is_gpu(f"{_TOPOLOGY}/{node}/gpu_id") for node in nodes)
    return count if count == 0 or not any(name in os.environ for name in _VISIBLE) else None


def _is_gpu(file: str) -> bool:
    """Return True if a node of the topology is a GPU. The identifier of a processor is 0."""
    try:
        with open(file, encoding="ascii") as text:
            return int(text.read()) != 0
    except (OSError, ValueError):
        return False


def _how_to_install() -> str:
    from ..._install import command

    return f"Install it with: {command('hip')}"
