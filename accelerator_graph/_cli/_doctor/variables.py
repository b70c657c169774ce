"""Environment variables that disturb graphs, or the search for what disturbs them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ..trial import Finding

Means = Callable[[str], bool]
"""Returns True if a value has the effect."""


def on(value: str) -> bool:
    """Return True for a switch that is on."""
    return value.strip() not in ("", "0")


def names_no_device(value: str) -> bool:
    """Return True if a list of visible devices is empty: it ends at the first entry that names none."""
    return value.split(",")[0].strip() in ("", "-1")


HIDING = "hides every {} from the process."
OF_VENDORS: dict[str, tuple[Means, str, str]] = {
    "CUDA_VISIBLE_DEVICES": (names_no_device, HIDING.format("NVIDIA GPU, and every AMD GPU,"), "Unset it."),
    "HIP_VISIBLE_DEVICES": (names_no_device, HIDING.format("AMD GPU"), "Unset it."),
    "ROCR_VISIBLE_DEVICES": (names_no_device, HIDING.format("AMD GPU"), "Unset it."),
    "CUDA_LAUNCH_BLOCKING": (
        on,
        "makes every launch wait for its kernel, replays included.",
        "Unset it, except to look for a kernel that fails.",
    ),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": (
        on,
        "makes torch allocate by cudaMalloc, which breaks every capture that allocates.",
        "Unset it.",
    ),
    "AMD_LOG_LEVEL": (
        on,
        "makes AMD's runtime write its log to the error output.",
        "Unset it, except to look for the call that broke a capture.",
    ),
    "DEBUG_HIP_GRAPH_DOT_PRINT": (
        on,
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


def findings(settings: Iterable[Mapping[str, Any]], unusable: Iterable[str]) -> Iterator[Finding]:
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
        elif name in OWN and on(row["value"]):
            yield Finding(name, f"{OWN[name]}.", "Unset it, unless you mean that.")
    for name, (disturbs, effect, advice) in OF_VENDORS.items():
        value = os.environ.get(name)
        if value is not None and disturbs(value):
            yield Finding(name, f"{name}={value} {effect}", advice)
    for name in dict.fromkeys(name for backend in unusable for name in LIMITING[backend]):
        value = os.environ.get(name)
        if value is not None and not names_no_device(value):
            fact = f"{name}={value} limits which GPUs the process sees."
            yield Finding(name, fact, "Unset it if it names none of this machine's.")


OWN = {
    "ACCELERATOR_GRAPH_PURE_PYTHON": "Replays go through Python, which is slower",
    "ACCELERATOR_GRAPH_DISABLE_PLUGINS": "Plug-ins that are installed are not found",
}
"""What the library's own switches do that are easily forgotten."""
