"""The command line: ``python -m accelerator_graph`` with ``info``, ``demo`` or ``conformance``."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import threading
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
    """Return the parser. Its option `run` is the function of the chosen command."""
    top = argparse.ArgumentParser(
        prog="python -m accelerator_graph", description=str(ag.__doc__).partition("\n")[0]
    )
    commands = top.add_subparsers(required=True, metavar="command")

    info = commands.add_parser("info", help="show which backends and frameworks are usable")
    info.add_argument("--json", action="store_true", help="print the same as JSON")
    info.set_defaults(run=run_info)

    demo = commands.add_parser("demo", help="solve the heat equation eagerly and by replaying a graph")
    demo.add_argument("--backend", metavar="NAME", help="the default is the best usable one")
    demo.add_argument("--size", type=size, metavar="N", help="number of points along each side of the grid")
    demo.add_argument("--steps", type=steps, metavar="N", help="number of time steps")
    demo.add_argument("--dump", metavar="PATH", help="the file for the drawing of the graph")
    demo.set_defaults(run=run_demo)

    kit = commands.add_parser("conformance", help="check whether a backend keeps to the contract")
    kit.add_argument("backend", metavar="BACKEND", help="the backend's name")
    kit.add_argument("-o", "--output", metavar="PATH", help="write a report, in Markdown, to this file")
    kit.add_argument(
        "--work",
        metavar="MODULE:CLASS",
        help="the backend's memory and work for the kit; the default is that of its entry point. The module "
        "may register a backend that is not installed",
    )
    kit.add_argument(
        "--expected",
        metavar="PATH",
        help='a TOML file with a line `test_name = "reason"` for each rule that is known to be broken',
    )
    kit.add_argument("--time-limit", type=seconds, metavar="S", help="how long a rule may take (120 seconds)")
    kit.set_defaults(run=run_conformance)
    return top


def size(text: str) -> int:
    """Read the size of the grid."""
    if not 4 <= (value := int(text)) <= 16384:
        raise argparse.ArgumentTypeError("must be from 4 to 16384")
    return value


def steps(text: str) -> int:
    """Read the number of steps, which must fill whole graphs."""
    if (value := int(text)) <= 0 or value % _demo.STEPS_PER_GRAPH:
        raise argparse.ArgumentTypeError(f"must be a multiple of {_demo.STEPS_PER_GRAPH}")
    return value


def seconds(text: str) -> float:
    """Read a time limit."""
    if not 0 < (value := float(text)) < threading.TIMEOUT_MAX:
        raise argparse.ArgumentTypeError("must be more than 0")
    return value


def run_conformance(options: argparse.Namespace) -> int:
    """Run the conformance kit. Returns 1 if a rule is broken."""
    if not __debug__:
        raise ValueError("the conformance kit checks with assert statements; run Python without -O.")
    from .testing import _command

    kept = _command.run(
        options.backend,
        work=options.work,
        expected=options.expected,
        output=options.output,
        time_limit=options.time_limit,
    )
    return 0 if kept else 1


def run_demo(options: argparse.Namespace) -> int:
    """Run the demo. Returns 1 if the two results differ."""
    return 0 if _demo.run(options.backend, options.size, options.steps, options.dump) else 1


def run_info(options: argparse.Namespace) -> int:
    """Print what is known about this installation."""
    facts = collect()
    print(json.dumps(facts, indent=2) if options.json else as_text(facts))
    return 0


def collect() -> dict[str, Any]:
    """Return everything that ``info`` prints. This makes the automatic choice, which opens a backend."""
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
        "frameworks": [row._asdict() for row in ag.interop.report()],
        "chosen": chosen,
        "problem": problem,
    }


def as_text(facts: dict[str, Any]) -> str:
    """Format the facts for people."""
    backends = [("backend", "usable", "devices", "from", "versions")]
    for row in facts["backends"]:
        devices = "-" if row["devices"] is None else str(row["devices"])
        versions = ", ".join(f"{name} {version}" for name, version in row["versions"].items())
        backends.append((row["name"], yes_or_no(row["usable"]), devices, row["origin"], versions))
    frameworks = [("framework", "usable", "from", "")]
    for row in facts["frameworks"]:
        on = f"on {row['backend']}" if row["backend"] else ""
        frameworks.append((row["name"], yes_or_no(row["usable"]), row["origin"], row["reason"] or on))

    remarks = [f"{row['name']}: {remark}." for row in facts["backends"] if (remark := remark_on(row))]
    remarks += [f"{row['name']}: {row['warning']}" for row in facts["backends"] if row["warning"]]
    head = f"accelerator_graph {facts['version']}, Python {facts['python']}, {facts['platform']}"
    choice = f"A bare Stream() uses backend {facts['chosen']!r}." if facts["chosen"] else facts["problem"]
    parts = [[head], table(backends), table(frameworks), remarks, [choice]]
    return "\n\n".join("\n".join(part) for part in parts if part)


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, cells, widths)).rstrip() for cells in rows]


def yes_or_no(value: bool) -> str:
    """Return the value as a word."""
    return "yes" if value else "no"


def remark_on(row: dict[str, Any]) -> str:
    """Return a remark on a backend that its line in the table has no room for; may be empty."""
    if row["usable"]:
        return "usable, but used only if you name it" if row["only_named"] else ""
    return str(row["reason"]).rstrip(".")


if __name__ == "__main__":
    sys.exit(main())
