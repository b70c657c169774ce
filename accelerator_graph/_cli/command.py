"""The commands, and how the process ends."""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import accelerator_graph as ag

from .._interpreter import terminal

FINDING = 1
"""The command has done its work and found something: a problem, a difference, a broken rule."""
TROUBLE = 2
"""The command could not do its work. argparse has the same status for wrong arguments."""
INTERRUPTED = 130
CLOSED_PIPE = 141
"""As if by the signals SIGINT and SIGPIPE, in the way that shells count."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status; SystemExit for wrong arguments and for help."""
    top = parser()
    terminal.allow_all_characters()
    try:
        try:
            options, unknown = top.parse_known_args(arguments)
            if unknown:
                options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")  # with its own usage
            return int(options.run(options))
        finally:
            terminal.flush()  # while a failure to write can still be handled
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        terminal.give_up_output()
        return CLOSED_PIPE
    except (ag.errors.AcceleratorGraphError, OSError, ValueError) as error:
        terminal.give_up_output()
        print(f"{top.prog}: error: {in_words(error)}", file=sys.stderr)
        return TROUBLE


def parser() -> argparse.ArgumentParser:
    """Return the parser. Its results `run` and `parser` are of the command; without one, of the help."""
    top = argparse.ArgumentParser(prog=program(), description=str(ag.__doc__).partition("\n")[0])
    top.add_argument("-V", "--version", action="version", version=f"accelerator_graph {ag.__version__}")
    top.set_defaults(run=run_help, parser=top)
    commands = top.add_subparsers(title="commands", metavar="COMMAND")

    about = (
        "show which backends and frameworks can be used, and why not; "
        "the status is 1 if the named backend can't"
    )
    info = commands.add_parser("info", help=about, description=sentence(about))
    info.add_argument(
        "backend",
        metavar="BACKEND",
        nargs="?",
        help="open this backend; the default is the one that ACCELERATOR_GRAPH_BACKEND names, if any",
    )
    info.add_argument("--json", action="store_true", help="print the same as JSON")
    info.set_defaults(run=run_info, parser=info)

    about = (
        "try a small capture on every usable backend, and say what disturbs graphs on this machine and what "
        "to do about it; the status is 1 if a usable backend fails, or the named one can't be used"
    )
    doctor = commands.add_parser("doctor", help=about, description=sentence(about))
    doctor.add_argument("backend", metavar="BACKEND", nargs="?", help="try this backend only")
    doctor.add_argument("--json", action="store_true", help="print the same, and what `info` says, as JSON")
    doctor.add_argument(
        "--time-limit",
        type=seconds,
        metavar="S",
        help="how long the trial of a backend may take once Python has started (120 seconds)",
    )
    doctor.set_defaults(run=run_doctor, parser=doctor)

    about = "solve the heat equation eagerly and by replaying a graph; the status is 1 if the results differ"
    demo = commands.add_parser("demo", help=about, description=sentence(about))
    demo.add_argument(
        "backend", metavar="BACKEND", nargs="?", help="the default is the best one that can be used"
    )
    demo.add_argument("--size", type=size, metavar="N", help="points along each side of the grid, 4 to 16384")
    demo.add_argument("--steps", type=steps, metavar="N", help="number of time steps, a multiple of 20")
    demo.add_argument(
        "-o",
        "--output",
        type=drawing,
        metavar="PATH",
        help="draw the graph into this file: .html for a browser, .json for `show`, .svg, .png or .pdf by "
        "Graphviz, or .dot",
    )
    demo.set_defaults(run=run_demo, parser=demo)

    about = "show a graph that Graph.debug_dump has written as JSON, or draw it"
    show = commands.add_parser("show", help=about, description=sentence(about))
    show.add_argument("file", metavar="FILE.json", help="the graph")
    show.add_argument(
        "-o",
        "--output",
        type=drawing,
        metavar="PATH",
        help="draw it into this file: .html for a browser, .svg, .png or .pdf by Graphviz, or .dot",
    )
    show.set_defaults(run=run_show, parser=show)

    about = "say what is different in the second of two such graphs; the status is 1 if anything is"
    diff = commands.add_parser("diff", help=about, description=sentence(about))
    diff.add_argument("old", metavar="OLD.json", help="the earlier graph")
    diff.add_argument("new", metavar="NEW.json", help="the later graph")
    diff.add_argument("-o", "--output", metavar="PATH.html", help="draw them side by side on this page")
    diff.set_defaults(run=run_diff, parser=diff)

    about = "check whether a backend keeps to the contract; the status is 1 if it breaks a rule"
    kit = commands.add_parser("conformance", help=about, description=sentence(about))
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
    kit.set_defaults(run=run_conformance, parser=kit)
    return top


def program() -> str:
    """Return how the user has called the program."""
    called = os.path.basename(sys.argv[0])
    return "python -m accelerator_graph" if called == "__main__.py" else "accelerator-graph"


def sentence(text: str) -> str:
    """Return a text with a capital letter and a full stop."""
    return f"{text[0].upper()}{text[1:]}."


def in_words(error: Exception) -> str:
    """Return the message of an error; without the number of an error of the system."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"


def drawing(text: str) -> str:
    """Read the path of a drawing."""
    from ..inspection.files import SUFFIXES

    if Path(text).suffix.lower() not in SUFFIXES:
        raise argparse.ArgumentTypeError(f"must end in one of {', '.join(SUFFIXES)}, not {text!r}")
    return text


def number(text: str) -> int:
    """Read a whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}") from None


def size(text: str) -> int:
    """Read the size of the grid."""
    if not 4 <= (value := number(text)) <= 16384:
        raise argparse.ArgumentTypeError(f"must be from 4 to 16384, not {text}")
    return value


def steps(text: str) -> int:
    """Read the number of steps, which must fill whole graphs."""
    from .._demo import STEPS_PER_GRAPH

    if (value := number(text)) <= 0 or value % STEPS_PER_GRAPH:
        raise argparse.ArgumentTypeError(f"must be a multiple of {STEPS_PER_GRAPH}, not {text}")
    return value


def seconds(text: str) -> float:
    """Read a time limit."""
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0 < value < threading.TIMEOUT_MAX:
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, not {text!r}")
    return value


def check_name(backend: str | None) -> None:
    """Raise `UnknownBackendError` for the name of no backend, with the name that the user may have meant."""
    if backend is not None and backend not in ag.backends.names():
        ag.backends.get(backend)


def run_help(options: argparse.Namespace) -> int:
    """Print the help. It is what a user wants who gives no command, so the status is 0, as that of pip."""
    options.parser.print_help()
    return 0


def run_info(options: argparse.Namespace) -> int:
    """Print what is known about this installation. It is a finding if the named backend can't be used."""
    from . import info

    check_name(options.backend)
    return 0 if info.print_facts(options.backend, as_json=options.json) else FINDING


def run_doctor(options: argparse.Namespace) -> int:
    """Print what disturbs graphs here. It is a finding if a usable backend fails."""
    from . import doctor

    check_name(options.backend)
    well = doctor.print_diagnosis(options.backend, options.time_limit, as_json=options.json)
    return 0 if well else FINDING


def run_demo(options: argparse.Namespace) -> int:
    """Run the demo. It is a finding if the two results differ."""
    from .. import _demo

    return 0 if _demo.run(options.backend, options.size, options.steps, options.output) else FINDING


def run_show(options: argparse.Namespace) -> int:
    """Print a graph, or draw it into a file."""
    from . import graphs

    graphs.show_graph(options.file, options.output)
    return 0


def run_diff(options: argparse.Namespace) -> int:
    """Print what differs between two graphs, which is a finding."""
    from . import graphs

    return FINDING if graphs.show_difference(options.old, options.new, options.output) else 0


def run_conformance(options: argparse.Namespace) -> int:
    """Run the conformance kit. It is a finding if a rule is broken."""
    if not __debug__:
        raise ValueError("the conformance kit checks with assert statements; run Python without -O.")
    from ..testing import _command

    kept = _command.run(
        options.backend,
        work=options.work,
        expected=options.expected,
        output=options.output,
        time_limit=options.time_limit,
    )
    return 0 if kept else FINDING
