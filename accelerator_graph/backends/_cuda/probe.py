"""Whether CUDA could run here, found out without initialising it."""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
from typing import Any

from ..base import Availability

_LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
_OLDEST_BINDING, _OLDEST_UNKNOWN_BINDING = (12, 9, 1), (14,)
"""12.9.0 holds the interpreter's lock while it waits for a stream, whose host functions may be in Python."""
_OLDEST_DRIVER = 12000


def probe() -> Availability:
    """Return whether CUDA could run here, and the first reason if it could not."""
    versions: dict[str, str] = {}
    try:
        reason = _binding_missing(versions) or _driver_missing(versions)
        devices = None if reason else _devices()
    except Exception as error:
        return Availability(False, f"looking for CUDA failed with {error!r}", versions)
    if devices == 0:
        reason = "no NVIDIA GPU is visible to this process. Attach one, or correct CUDA_VISIBLE_DEVICES"
    return Availability(not reason, reason, versions, devices)


def import_driver() -> Any:
    """Return the module ``cuda.bindings.driver``. Importing it initialises nothing."""
    return importlib.import_module("cuda.bindings.driver")


def version_text(version: int) -> str:
    """Return ``"13.0"`` for 13000, as the driver counts."""
    return f"{version // 1000}.{version % 1000 // 10}"


def _binding_missing(versions: dict[str, str]) -> str:
    try:
        bindings = importlib.import_module("cuda.bindings")
    except ModuleNotFoundError:
        return f"cuda-python is not installed. {_how_to_install()}"
    version: str | None = getattr(bindings, "__version__", None)
    if version is None:
        return (
            "the package cuda.bindings is not cuda-python's: another distribution, such as "
            f"hip-python-interop, has installed it. Uninstall that one. {_how_to_install()}"
        )
    versions["cuda-bindings"] = version
    digits = "".join(each if each.isdecimal() else "." for each in version)
    numbers = tuple(map(int, digits.split(".")[:3]))
    if numbers < _OLDEST_BINDING:
        return f"cuda-python {version} is too old; 12.9.1 is the oldest that works. {_how_to_install()}"
    if numbers >= _OLDEST_UNKNOWN_BINDING:
        return f"cuda-python {version} is too new; its interface may have changed. {_how_to_install()}"
    try:
        import_driver()
    except Exception as error:
        return f"cuda-python can't be imported ({error}). {_how_to_install()}"
    return ""


def _driver_missing(versions: dict[str, str]) -> str:
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError as error:
        missing = f"{_LIBRARY}: cannot open shared object file: No such file"
        if missing in str(error) or sys.platform != "linux":  # other loaders have other words
            return f"no driver library ({_LIBRARY}) was found. Install NVIDIA's driver"
        return f"the driver library can't be loaded ({error}). Reinstall NVIDIA's driver"
    try:
        get_version = library.cuDriverGetVersion
    except AttributeError:
        return f"{_LIBRARY} is not a CUDA driver: it has no cuDriverGetVersion. Install NVIDIA's driver"
    version = ctypes.c_int()
    code = get_version(ctypes.byref(version))
    if code == 34:
        return f"{_LIBRARY} is only the stub for linking. Put the driver's own library first"
    if code != 0:
        return f"the driver library answers error {code} to cuDriverGetVersion. Reinstall NVIDIA's driver"
    versions["driver"] = version_text(version.value)
    if version.value < _OLDEST_DRIVER:
        return f"the driver only supports CUDA {versions['driver']}. Install one for CUDA 12.0 or newer"
    return ""


def _devices() -> int | None:
    """Count the devices that the system shows; None where it shows none, as in WSL and on Tegra."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.split(",")[0].strip() in ("", "-1"):
        return 0  # the list ends at the first entry that does not name a device
    count = _count("/dev", "nvidia")
    if not count:  # the driver makes the files in /dev on first use, where it is allowed to
        count = _count("/proc/driver/nvidia/gpus", "")
    return count if count == 0 or visible is None else None


def _count(folder: str, prefix: str) -> int | None:
    try:
        names = [name.removeprefix(prefix) for name in os.listdir(folder) if name.startswith(prefix)]
    except OSError:
        return None
    return len([name for name in names if name.isdigit() or not prefix])


def _how_to_install() -> str:
    from ..._install import command

    return f"Install it with: {command('cuda')}"
