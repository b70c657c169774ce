"""The page with the state table of a graph."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

INTRODUCTION = """# States of a graph

<!-- Written by docs/tools/generate.py from accelerator_graph/_core/states.py: change that. -->

A graph is in one of four states, which `Graph.state` returns:

- **empty**: before the first capture, after `reset()`, and after a capture that failed;
- **capturing**: between the beginning and the end of a capture;
- **captured**: after a capture with `keep_graph=True`, until the first replay or `instantiate()`;
- **ready**: it has an executable.

A capture takes a graph from empty to capturing, and its end to ready, or to captured with `keep_graph=True`.
`reset()` is allowed in every state and takes the graph back to empty.

The table shows which operations a graph allows in each state. A number stands for a refusal: the call raises
[`GraphStateError`](../errors.md#graphstateerror) with the sentence below the table, and changes nothing.

"""


def page(root: Path) -> str:
    """Return the page."""
    from accelerator_graph._core.states import REFUSED, GraphState

    states = get_args(GraphState)
    sentences = list(dict.fromkeys(sentence for row in REFUSED.values() for sentence in row.values()))
    lines = [f"| | {' | '.join(states)} |", "| --- |" + " :---: |" * len(states)]
    for operation, refused in REFUSED.items():
        cells = [str(sentences.index(refused[state]) + 1) if state in refused else "yes" for state in states]
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
