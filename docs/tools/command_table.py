"""The page with the commands and their options."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

INTRODUCTION = """# Command line

<!-- Written by docs/tools/generate.py from the parser of the command line: change that. -->

`accelerator-graph COMMAND`, or `python -m accelerator_graph COMMAND`, which looks for the library and for
other modules in the current folder first. With `--help` after a command, it prints what is on this page.

The status is 0 if all is well, 1 if the command has found something (a backend that fails, a difference, a
broken rule), and 2 if it could not do its work.
"""


def page(root: Path) -> str:
    """Return the page."""
    from accelerator_graph._cli.command import parser

    top = parser()
    commands = next(action for action in top._actions if isinstance(action, argparse._SubParsersAction))
    lines = ["", *_options(top)]
    for about in commands._choices_actions:
        lines += ["", f"## {about.dest}", "", f"{_sentence(about.help or '')}", ""]
        lines += _options(commands.choices[about.dest])
    return INTRODUCTION + "\n".join(lines) + "\n"


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the lines of a table of options."""
    options = [
        each
        for each in parser._actions
        if not isinstance(each, argparse._SubParsersAction | argparse._HelpAction)
    ]
    if options:
        yield "| option | what it is for |"
        yield "| --- | --- |"
    for each in options:
        names = ", ".join(each.option_strings)
        yield f"| `{' '.join(filter(None, (names, each.metavar)))}` | {_sentence(each.help or '')} |"


def _sentence(text: str) -> str:
    text = re.sub(r"\b[A-Z]+(_[A-Z]+)+\b", r"`\g<0>`", text)  # an environment variable
    return f"{text[:1].upper()}{text[1:]}."
