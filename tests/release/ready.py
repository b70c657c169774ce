#!/usr/bin/env python3
"""Say what is missing before a release; the status is 1 if anything is.

python tests/release/ready.py [TAG]
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PLUGINS = ("accelerator-graph-opencl", "accelerator-graph-sycl")


def project(folder: Path) -> dict[str, Any]:
    """Return the metadata of a distribution."""
    found: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def missing(root: Path, tag: str = "") -> Iterator[str]:
    """Return a sentence for everything that keeps a checkout from being released."""
    library = project(root)
    version, address = library["version"], library.get("urls", {}).get("Repository", "")
    if not address.startswith("https://"):
        yield "pyproject.toml has no address of the repository; add it as `Repository` to [project.urls]."
    for name in PLUGINS:
        if project(root / "plugins" / name).get("urls", {}).get("Repository", "") != address:
            yield f"plugins/{name}/pyproject.toml must have the same `Repository` in [project.urls]."
    citation = (root / "CITATION.cff").read_text(encoding="utf-8")
    for line in (f"version: {version}", *([f'repository-code: "{address}"'] if address else [])):
        if line not in citation.splitlines():
            yield f"CITATION.cff must have the line `{line}`."
    released = re.search(rf"^## {re.escape(version)} \((\d{{4}}-\d\d-\d\d)\)$", changelog(root), re.MULTILINE)
    if released is None:
        yield f"CHANGELOG.md must have the heading `## {version} (YYYY-MM-DD)`."
    elif f"date-released: {released[1]}" not in citation.splitlines():
        yield f"CITATION.cff must have the line `date-released: {released[1]}`."
    package = (root / "accelerator_graph" / "__init__.py").read_text(encoding="utf-8")
    if f'__version__ = "{version}"' not in package:
        yield f"accelerator_graph/__init__.py must have the version {version}."
    if tag and tag != f"v{version}":
        yield f"the tag must be v{version}, not {tag}."


def changelog(root: Path) -> str:
    """Return the changelog."""
    return (root / "CHANGELOG.md").read_text(encoding="utf-8")


def main(*tag: str) -> int:
    """Print what is missing."""
    found = list(missing(Path(__file__).resolve().parents[2], *tag))
    for sentence in found:
        print(sentence)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
