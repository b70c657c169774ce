"""The commands for missing packages, as messages show them."""

from __future__ import annotations

PUBLISHED = False
"""True once accelerator-graph on the package index is this library. Messages name its extras from then on."""

REQUIREMENTS = {
    "cuda": "cuda-python>=12.9.1,<14",
    "hip": "hip-python>=6.4,<11",
    "programs": "hypothesis>=6.100",
}
"""What each extra installs."""


def command(extra: str) -> str:
    """Return the command that installs what an extra has."""
    wanted = f"accelerator-graph[{extra}]" if PUBLISHED else REQUIREMENTS[extra]
    return f'pip install "{wanted}"'


def with_extension() -> str:
    """Return a sentence that says how to get the C extension."""
    if PUBLISHED:
        return "To get it, run: pip install --force-reinstall --only-binary :all: accelerator-graph"
    return (
        "To get it, install a C compiler, then the library again from its checkout: "
        "pip install --force-reinstall --no-deps PATH"
    )
