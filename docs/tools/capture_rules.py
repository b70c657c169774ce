"""The page with what each vendor's driver permits during a capture."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import calls

INTRODUCTION = """# Capture rules

<!-- Written by docs/tools/generate.py from tests/driver_rules: change the tables there. -->

What happens if your code makes a call while a stream is being captured. The tests of this library check each
row: for CUDA on an H200 with driver 580 and on the software driver that stands in for it, for HIP on AMD's
own runtime, 7.2 and 6.4, on the CPU. No row has been checked on an AMD GPU.

The rows say what the driver answers to one call while *the captured stream* captures, in each of the modes.
`capture_error_mode="default"` of this library is `"thread_local"` on CUDA and on HIP.

- **yes**: the capture goes on. Work that is enqueued on the captured stream becomes part of the graph.
- **breaks**: the driver refuses the call, and the capture is lost. The number is the driver's code.
- **refused**: the driver refuses the call, and the capture goes on as if it had not been made.

*Thread* is the thread that makes the call: the one that began the capture (*same*), another one, or either.
*Captured stream* says whether the row holds only if that stream is a blocking one, which waits for the legacy
default stream, or only if it is non-blocking, as the streams of this library are.

"""

THREADS = {"any": "either", "here": "same", "other": "another"}


def page(root: Path) -> str:
    """Return the page."""
    folder = root / "tests" / "driver_rules"
    cuda = _constant(folder / "test_cuda_captures.py", "RULES")
    relaxed = _constant(folder / "test_cuda_captures.py", "RELAXED_RULES")
    hip = _constant(folder / "test_hip_captures.py", "RULES")
    lines = [
        *("## CUDA", "", *_table(cuda, calls.CUDA)),
        *("", "### In a thread that has set its own mode to relaxed", ""),
        "The library does this, with `cuThreadExchangeStreamCaptureMode`, around calls of its own that would",
        "break a capture. Then the driver answers as follows.",
        *("", *_table(relaxed, calls.CUDA)),
        *("", "## HIP", "", "A row that holds for one version of AMD's runtime only names it.", ""),
        *_table(hip, calls.HIP),
        "",
    ]
    return INTRODUCTION + "\n".join(lines)


def _constant(path: Path, name: str) -> str:
    """Return a constant of a module, which is not imported: that would need a driver."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == [name]:
            return str(ast.literal_eval(node.value))
    raise LookupError(f"{path.name} has no constant {name}.")


def _table(rules: str, names: dict[str, str]) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    head, *rows = filter(None, rules.strip().splitlines())
    versions = "runtime" in head.split()
    yield "| call | thread | captured stream | global | thread_local | relaxed |"
    yield "| --- | --- | --- | --- | --- | --- |"
    threads_of: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        words = row.split()
        cells = [_outcome(cell) for cell in words[-3:]]
        version = words[-4] if versions else "any"
        *step, thread, stream = words[: -4 if versions else -3]
        call = calls.named(" ".join(step), names) + ("" if version == "any" else f" (HIP {version})")
        threads_of.setdefault((call, stream, *cells), []).append(thread)
    for (call, stream, *cells), threads in threads_of.items():
        thread = THREADS[threads[0]] if len(threads) == 1 else "either"  # two rows that say the same
        yield f"| {call} | {thread} | {stream} | {' | '.join(cells)} |"


def _outcome(cell: str) -> str:
    if cell.startswith("ok"):
        return "yes"
    return f"refused, {cell[:-1]}" if cell.endswith("=") else f"**breaks**, {cell}"
