"""Write the pages that are drawn from the code: python docs/tools/generate.py

Afterwards the pages say what the code says; a test compares them.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import capture_rules  # noqa: E402 (found where the line above says)
import command_table  # noqa: E402
import inside  # noqa: E402
import promises  # noqa: E402
import state_table  # noqa: E402

PAGES = {
    "reference/states.md": state_table.page,
    "reference/capture-rules.md": capture_rules.page,
    "reference/command-line.md": command_table.page,
    "inside.md": inside.page,
    promises.PAGE: promises.page,
}


def main() -> None:
    """Write the pages."""
    for name, page in PAGES.items():
        (ROOT / "docs" / name).write_text(page(ROOT), encoding="utf-8")


if __name__ == "__main__":
    main()
