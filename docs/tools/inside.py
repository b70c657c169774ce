"""The page that shows the calls of a capture and of a replay, as they are made."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

INTRODUCTION = """# What happens in a capture and in a replay

<!-- Written by docs/tools/generate.py from the calls that are made, and from docstrings. -->

For those who work on the library: all its own functions that a capture and its replays run, in order, on
the cpu backend and without the C extension. A call stands below the call that makes it. Of the backend,
only the calls that the library makes are shown. Each line is the first sentence of the docstring.

The page is right by a test. If you have changed what is called, run `python docs/tools/generate.py` and
read the difference: a function that only forwards, or a file that only this path needs, costs every capture
of every program.

A capture has four parts. **Where** it happens is decided first, by one function and for all ways to
capture: the stream, where replays go, who takes part, what is waited for. It takes a hold on the stream, or
a new one if the current stream can't be captured, and nothing else. The **transaction**, `Capture`, undoes
every step if one fails, whenever that is. The **runner** is what is left of it: the graph, the executable,
the pool, and what stays with the work. The **binding** launches, on one stream, whatever executable the
runner has at that moment: the `owner` of the launch lock, a `Current`. The C extension reads that field
while it holds the lock, so a swap is one assignment.

"""

OBSERVERS = """
## Where others come in

**Frameworks** are asked by `where` for their current streams. `Capture.begin` has them release what they
cache. `Capture._take_in` makes the stream their current one and sends their allocations to the pool, and
one of them may record: its recorder then stands in the place of the backend, from `capture_begin` to the
end of the executable.

**Observers** ([take part in a capture](guides/observe-captures.md)) are asked by `BaseGraph._begin`, once
the pool is leased and before anything else has happened. A new one is a class of its own, outside of
`_core`, which imports none; it has a method for each thing that it needs to know. These call the methods:

| Method | Called by |
| --- | --- |
| `begin` | `BaseGraph._begin` |
| `begun`, `used` | `Capture.begin`, once the backend captures |
| `border` | `label`, on entry and at the end of the block |
| `collective` | the framework that sees it, or `note_collective` |
| `stop` | `Capture.end`, or `Capture.failure` and `Capture.abandon` |
| `end`, `succeeded` | `Capture.end`, around the backend's `capture_end` |
| `explained` | `Capture.failure` and `Capture.end`, if the capture has failed |
| `own_nodes`, `hand_on` | `BaseGraph._keep_observations`; `hand_on` also `update`, `clone` and `recapture` |
| `kept_by` | `Runner.observe` |
| `check` | `Binding._decide`, ahead of launches until it returns True; `children.record`, in a capture |

**If something raises**, `BaseGraph._recover` calls `Capture.abandon`, which ends the recording, undoes what
frameworks and observers have done, and gives the pool back. That holds for the body of the block, for every
step above, and for a signal handler.
"""

PROGRAM = r'''
import gc, inspect, json, sys
from pathlib import Path

import accelerator_graph as ag

PACKAGE = Path(ag.__file__).parent


def work():
    pass


def calls(function):
    """Return the library's own calls: depth, file, name and docstring."""
    found, depth, inside = [], 0, []

    def note(frame, event, arg):
        nonlocal depth
        code = frame.f_code
        path = Path(code.co_filename)
        if not path.is_relative_to(PACKAGE) or code.co_name.startswith("<"):
            return
        if event == "call":
            file = path.relative_to(PACKAGE).as_posix()
            backend = file.startswith("backends/")
            if not inside or not backend:
                found.append((depth, file, code.co_qualname, doc_of(frame)))
            if backend:
                inside.append(frame)
            depth += 1
        elif event == "return":
            depth -= 1
            if inside and inside[-1] is frame:
                inside.pop()

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return found


def doc_of(frame):
    code = frame.f_code
    scope = sys.modules[frame.f_globals["__name__"]]
    *classes, name = code.co_qualname.split(".")
    for part in classes:
        scope = getattr(scope, part, None)
    if "<locals>" in code.co_qualname:
        return f"The callable that `{code.co_qualname.partition('.<locals>')[0]}` has returned."
    text = inspect.getdoc(scope if name == "__init__" else vars(scope).get(name)) or ""
    sentence, stop, _ = " ".join(text.partition("\n\n")[0].split()).partition(". ")
    return sentence + stop.strip()


stream = ag.Stream(backend="cpu")
for _ in range(3):
    with ag.Graph(stream=stream) as graph:
        stream.launch(work)
    graph.replay(), graph.replay(stream)
stream.synchronize()
graph.reset()
gc.collect()
gc.disable()
parts = {}
parts["`graph = ag.Graph(stream=stream)`"] = calls(lambda: globals().update(graph=ag.Graph(stream=stream)))
parts["`with graph:`"] = calls(lambda: graph.__enter__())
parts["`stream.launch(work)`, in the block"] = calls(lambda: stream.launch(work))
parts["The end of the block"] = calls(lambda: graph.__exit__(None, None, None))
parts["The first `graph.replay()`"] = calls(graph.replay)
parts["`graph.replay()` from then on"] = calls(graph.replay)
graph.replay(stream)
parts["`graph.replay(stream)`, to the stream of the last time"] = calls(lambda: graph.replay(stream))
print(json.dumps(parts))
'''


def calls(root: Path) -> dict[str, list[tuple[int, str, str, str]]]:
    """Return the calls of each part of a capture and its replays, as a process of its own makes them."""
    environment = {**os.environ, "PYTHONPATH": str(root), "ACCELERATOR_GRAPH_PURE_PYTHON": "1"}
    for name in [*environment]:
        if name.startswith("ACCELERATOR_GRAPH_") and not name.endswith("PURE_PYTHON"):
            del environment[name]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    parts: dict[str, list[tuple[int, str, str, str]]] = json.loads(done.stdout)
    return parts


def page(root: Path) -> str:
    """Return the page."""
    text = INTRODUCTION
    for part, found in calls(root).items():
        text += f"## {part}\n\n"
        for depth, file, name, doc in found:
            text += f"{'    ' * depth}- `{name.removesuffix('.__init__')}` in `{file}`: {doc}\n"
        text += "\n"
    return text.rstrip() + "\n" + OBSERVERS
