"""Run the code of a page in this process: python player.py STEPS

STEPS is a JSON file: a list of the fences that are to run, as `pages.Fence` has them. They run in the current
folder, in one namespace, in order. After each of them the output has `MARK`.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import types
import warnings
from pathlib import Path

MARK = "\0end of a step\0"


def main(steps: str) -> None:
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.path[0] = os.getcwd()  # instead of the folder of this file
    with contextlib.ExitStack() as stack:
        if os.environ.get("ACCELERATOR_GRAPH_TEST_SIMULATOR") == "torch_cpu":
            from torch_cpu.framework import taking_part

            stack.enter_context(taking_part())
        warnings.simplefilter("error")
        # torch's own, on threads of its own: autograd's have no context before their first matrix product
        warnings.filterwarnings("ignore", "Attempting to run cuBLAS", UserWarning)
        for step in json.loads(Path(steps).read_text(encoding="utf-8")):
            if step["kind"] == "file":
                _write(Path(step["argument"]), step["text"])
            elif step["kind"] == "command":
                sys.stdout.flush()
                subprocess.run(["sh", "-e", "-c", step["text"]], stderr=subprocess.STDOUT, check=True)
            else:
                _run(
                    module, Path(steps).with_name(step["page"].replace("/", "-")), step["line"], step["text"]
                )
            sys.stdout.write(MARK)
            sys.stdout.flush()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _run(module: types.ModuleType, page: Path, line: int, text: str) -> None:
    """Run code from a file, since Triton reads a kernel's source there, with the page's numbers of lines."""
    path = page.with_suffix(f".{line}.py")
    path.write_text("\n" * (line - 1) + text, encoding="utf-8")
    module.__file__ = str(path)
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), vars(module))


if __name__ == "__main__":
    main(*sys.argv[1:])
