"""The page with the state table of a graph."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

INTRODUCTION = """# States of a graph

<!-- Written by docs/tools/generate.py from accelerator_graph/_core/graph.py: change that. -->

A graph is in one of four states, which `Graph.state` returns:

- **empty**: before the first capture, after `reset()`, and after a capture that failed;
- **capturing**: between the beginning and the end of a capture;
- **captured**: after a capture of a graph that is kept, until the first replay or `instantiate()`;
- **ready**: it has an executable.

A graph is **kept** if it was made with `Graph(keep_graph=True)`, or if `enable_debug_mode()` was called
before the capture: it then keeps what was captured beside the executable. A capture takes a graph from empty
to capturing, and its end to captured if the graph is kept, else to ready. `reset()` is allowed in every state
and takes the graph back to empty.

The table shows which operations a graph allows in each state. A graph that is captured is always kept; one
that is ready may be kept or not. A number stands for a refusal: the call raises
[`GraphStateError`](../errors.md#graphstateerror) with the sentence below the table,
and changes nothing. <!-- promise: state-error-changes-nothing -->

"""


def page(root: Path) -> str:
    """Return the page."""
    from accelerator_graph._core.graph import REFUSED, REFUSED_UNLESS_KEPT, GraphState

    *before, ready = get_args(GraphState)
    columns = [*before, f"{ready}, kept", f"{ready}, not kept"]
    rows: dict[str, list[str | None]] = {}
    for operation, refused in REFUSED.items():
        not_kept = REFUSED_UNLESS_KEPT.get(operation, refused.get(ready))
        rows[operation] = [*map(refused.get, (*before, ready)), not_kept]
    sentences = [*dict.fromkeys(each for row in rows.values() for each in row if each is not None)]
    lines = [f"| | {' | '.join(columns)} |", "| --- |" + " :---: |" * len(columns)]
    for operation, row in rows.items():
        cells = ["yes" if each is None else str(sentences.index(each) + 1) for each in row]
        lines.append(f"| `{operation}` | {' | '.join(cells)} |")
    notes = [f"{number}. {_in_markdown(sentence)}." for number, sentence in enumerate(sentences, 1)]
    return INTRODUCTION + "\n".join([*lines, "", *notes, ""])


def _in_markdown(sentence: str) -> str:
    """Return a sentence with its code marked."""
    words = []
    for word in sentence.split(" "):
        bare = word.rstrip(",;")
        words.append(f"`{bare}`{word[len(bare) :]}" if bare.endswith(")") or "=" in bare else word)
    return " ".join(words)
