"""The lines of a program that depend on nothing but one step."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from .memory import BUFFER_BYTES, work_of
from .steps import Capture, Options, Traits

PRELUDE = {
    "suppress": "from contextlib import suppress",
    "partial": "from functools import partial",
    "ref": "from weakref import ref",
    "ag": "import accelerator_graph as ag",
    "in_threads": "from accelerator_graph.testing._programs.run import in_threads",
    "Abandoned": "class Abandoned(Exception): ...",
    "Token": "class Token: ...",
    "there": "there = work.on(1)",
}
"""What defines a name that programs use."""


def indented(lines: Iterable[str]) -> list[str]:
    """Return the lines of a block."""
    return [f"    {line}" for line in lines]


def captured(step: Capture, given: int | None, function: str, token: str) -> list[str]:
    """Return the lines that capture a function.

    Parameters
    ----------
    step : Capture
        The way.
    given : int, optional
        The stream that the graph was made with.
    function : str
        Name of the function.
    token : str
        Name of the reference to an object that the graph retains; empty if it retains none.
    """
    graph = f"g{step.graph}"
    origin = f"s{step.stream if given is None else given}"
    entered = origin if given is None else ""
    argument = "ag.current_stream()" if step.way == "side stream" and given is None else origin
    inside = [f"{token} = ref({graph}.retain(Token()))"] if token else []
    inside.append(f"{function}({argument})")
    abandoned = "suppress(Abandoned)" if step.raises is not None else ""
    if step.way == "by hand":
        if abandoned:
            inside = [f"with {abandoned}:", *indented(inside)]
        inside = [f"{graph}.capture_begin()", *inside, f"{graph}.{'reset' if abandoned else 'capture_end'}()"]
        return [f"with {entered}:", *indented(inside)] if entered else inside
    context = {
        "with": graph,
        "graph": f"ag.graph({graph}, stream={origin})",
        "side stream": f"ag.graph({graph})",
    }[step.way]
    if step.way == "graph":
        entered = ""
    return [f"with {', '.join(filter(None, (abandoned, entered, context)))}:", *indented(inside)]


def stream(traits: Traits, number: int) -> str:
    """Return the call that makes a stream."""
    return f'ag.Stream({traits.device(number)}, backend="{traits.backend}")'


def declared(lines: Sequence[str], traits: Traits, options: Sequence[Options]) -> list[str]:
    """Return the lines that make what a program uses."""
    used = set(re.findall(r"[A-Za-z_]\w*", "\n".join(lines)))
    graphs = [number for number in range(len(options)) if f"g{number}" in used]
    used |= {f"s{options[number].stream}" for number in graphs}
    made: dict[str, Callable[[int], str]] = {
        "s": lambda number: stream(traits, number),
        "c": lambda number: f"{work_of(number)}.new()",
        "b": lambda number: f"{work_of(number)}.buffer({BUFFER_BYTES})",
    }
    found = [f"aside = {stream(traits, 0)}"] if "aside" in used else []
    for kind, code in made.items():
        names = (name for name in sorted(used) if re.fullmatch(rf"{kind}\d", name))
        found += [f"{name} = {code(int(name[1:]))}" for name in names]
    used |= set(re.findall(r"there", "\n".join(found)))
    found += [f"g{number} = {options[number].code(traits.modes)}" for number in graphs]
    return [line for name, line in PRELUDE.items() if name in used | {"ag"}] + found
