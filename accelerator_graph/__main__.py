"""The command line: ``python -m accelerator_graph info`` and ``python -m accelerator_graph demo``."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Sequence
from typing import Any

import accelerator_graph as ag

from . import _demo


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status."""
    options = parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except (ag.errors.AcceleratorGraphError, OSError, ValueError) as error:
        print(f"accelerator_graph: {error}", file=sys.stderr)
        return 1


def parser() -> argparse.ArgumentParser:
    """Return the parser; the function for each command stands in `run`."""
    top = argparse.ArgumentParser(
        prog="python -m accelerator_graph", description=str(ag.__doc__).partition("\n")[0]
    )
    commands = top.add_subparsers(required=True, metavar="command")

    info = commands.add_parser("info", help="show which backends are usable, and why the others are not")
    info.add_argument("--json", action="store_true", help="the same for programs")
    info.set_defaults(run=run_info)

    demo = commands.add_parser("demo", help="solve the heat equation eagerly and by replaying a graph")
    demo.add_argument("--backend", metavar="NAME", help="by default the best that is usable")
    demo.add_argument("--size", type=size, metavar="N", help="points along each side of the grid")
    demo.add_argument("--steps", type=steps, metavar="N", help="steps in time")
    demo.add_argument("--dump", metavar="PATH", help="where to draw the graph; by default a temporary file")
    demo.set_defaults(run=run_demo)
    return top


def size(text: str) -> int:
    """Return a size of the grid."""
    if not 4 <= (value := int(text)) <= 16384:
        raise argparse.ArgumentTypeError("must be from 4 to 16384")
    return value


def steps(text: str) -> int:
    """Return a number of steps: so many whole graphs."""
    if (value := int(text)) <= 0 or value % _demo.STEPS_PER_GRAPH:
        raise argparse.ArgumentTypeError(f"must be a multiple of {_demo.STEPS_PER_GRAPH}")
    return value


def run_demo(options: argparse.Namespace) -> int:
    """Run the demo; 1 if the two results differ."""
    return 0 if _demo.run(options.backend, options.size, options.steps, options.dump) else 1


def run_info(options: argparse.Namespace) -> int:
    """Print what is known of this installation."""
    facts = collect()
    print(json.dumps(facts, indent=2) if options.json else as_text(facts))
    return 0


def collect() -> dict[str, Any]:
    """Return everything that ``info`` prints. Makes the automatic choice, which opens its backend."""
    chosen, problem = None, ""
    try:
        chosen = ag.backends.resolve(cpu_fallback=True).name
    except (ag.errors.BackendError, ValueError) as error:
        problem = str(error)
    return {
        "version": ag.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "backends": [{**row._asdict(), "versions": dict(row.versions)} for row in ag.backends.report()],
        "chosen": chosen,
        "problem": problem,
    }


def as_text(facts: dict[str, Any]) -> str:
    """Lay the facts out for people."""
    rows = [("backend", "usable", "devices", "from", "versions")]
    for row in facts["backends"]:
        usable = "yes" if row["usable"] else "no"
        devices = "-" if row["devices"] is None else str(row["devices"])
        versions = ", ".join(f"{name} {version}" for name, version in row["versions"].items())
        rows.append((row["name"], usable, devices, row["origin"], versions))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    table = ["  ".join(map(str.ljust, cells, widths)).rstrip() for cells in rows]

    remarks = [f"{row['name']}: {remark}." for row in facts["backends"] if (remark := remark_on(row))]
    remarks += [f"{row['name']}: {row['warning']}" for row in facts["backends"] if row["warning"]]
    head = f"accelerator_graph {facts['version']}, Python {facts['python']}, {facts['platform']}"
    choice = f"A bare Stream() is of backend {facts['chosen']!r}." if facts["chosen"] else facts["problem"]
    return "\n".join([head, "", *table, "", *remarks, *([""] if remarks else []), choice])


def remark_on(row: dict[str, Any]) -> str:
    """Return what there is to say of a backend besides its line in the table."""
    if row["usable"]:
        return "usable, but used only if you name it" if row["only_named"] else ""
    return str(row["reason"]).rstrip(".")


if __name__ == "__main__":
    sys.exit(main())
