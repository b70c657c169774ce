"""Draw the results of run.py as SVG, for light and dark pages.

Usage: python benchmarks/plot.py results.json [--out DIR] [--format svg|png]

Needs matplotlib. Draws replay, growth and threads, as far as the results have them.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

INK = "#808080"  # legible on white and on black
OURS, OTHERS, LIMIT = "#2f81f7", "#8f959e", "#e0823d"
WIDEST = 4.0  # longer bars are cut off; the number is written beside them
NAMES = {
    "accelerator_graph: bind()": "accelerator_graph, bind()",
    "accelerator_graph: replay()": "accelerator_graph, replay()",
    "accelerator_graph: replay() on torch's current stream": "accelerator_graph, torch's stream",
    "accelerator_graph: with g": "accelerator_graph",
    "cuda.bindings, typed handles": "cuda.bindings",
    "hip-python, typed handles": "hip-python",
    "minimal callable in C": "smallest callable in C",
    "the bare begin and end": "the driver's calls",
    "C loop": "C program",
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path)
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--format", choices=("svg", "png"), default="svg")
    options = parser.parse_args()
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update(
        {
            **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
            "axes.edgecolor": INK,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "font.size": 10,
            "axes.titlesize": 11,
            "savefig.transparent": True,
            "svg.hashsalt": "graph",
        }
    )
    results = json.loads(options.results.read_text(encoding="utf-8"))
    options.out.mkdir(parents=True, exist_ok=True)
    drawn = 0
    for name, draw in (("replay", replay), ("growth", growth), ("threads", threads)):
        figure = draw(results)
        if figure is None:
            print(f"{name}: there are no figures to draw")
            continue
        path = options.out / f"{name}.{options.format}"
        more = {"metadata": {"Date": None}} if options.format == "svg" else {"dpi": 100}
        figure.savefig(path, bbox_inches="tight", **more)
        print(path)
        drawn += 1
    return 0 if drawn else 1


def rows_of(results, section, case):
    """Return the rows of one table by variant and size."""
    found = {}
    for row in results["sections"].get(section, {"rows": []})["rows"]:
        if row["case"] == case:
            found.setdefault(row["variant"], {})[row["n"]] = row
    return found


def colour(variant):
    return OURS if variant.startswith("accelerator_graph") else LIMIT if variant == "C loop" else OTHERS


def replay(results):
    """Draw one launch as a ratio to the C loop: bars, the fastest first."""
    import matplotlib.pyplot as plt

    table = rows_of(results, "replay", "burst")
    sizes = [n for n in (1, 10, 100) if any(n in each for each in table.values())]
    limit = table.pop("C loop", None)
    table = {name: each for name, each in table.items() if all(n in each for n in sizes)}
    if limit is None or not table:
        return None
    order = sorted(table, key=lambda name: -sum(table[name][n]["ratio"] for n in sizes))
    widest = max(table[name][n]["quartiles"][1] for name in order for n in sizes)
    figure, panels = plt.subplots(
        1, len(sizes), figsize=(3.1 * len(sizes) + 1.6, 0.36 * len(order) + 1.2), sharey=True, squeeze=False
    )
    for panel, n in zip(panels[0], sizes, strict=True):
        ratios = [table[name][n]["ratio"] for name in order]
        panel.barh(range(len(order)), [min(each, WIDEST) for each in ratios], color=list(map(colour, order)))
        for place, (name, ratio) in enumerate(zip(order, ratios, strict=True)):
            low, high = table[name][n]["quartiles"]
            panel.plot([min(low, WIDEST), min(high, WIDEST)], [place, place], color=INK, linewidth=1)
            text = f"{ratio:.2f}" + (" \u2192" if ratio > WIDEST else "")
            panel.text(min(max(ratio, high), WIDEST) + 0.06, place, text, va="center", fontsize=9)
        panel.axvline(1, color=LIMIT, linewidth=1.2, linestyle="--")
        panel.set_xlim(0, min(WIDEST, widest) + 0.6)
        panel.set_title(f"{n} kernel{'s' if n > 1 else ''}")
        panel.tick_params(length=0)
        panel.set_yticks(range(len(order)), [NAMES.get(name, name) for name in order])
    for label in panels[0][0].get_yticklabels():
        if label.get_text().startswith("accelerator_graph"):
            label.set_color(OURS)
            label.set_fontweight("bold")
    nanoseconds = " / ".join(f"{limit[n]['median'] / 1e3:.1f}" for n in sizes)
    figure.supxlabel(
        f"Host time of one launch of a graph; 1 = a C program that does nothing else ({nanoseconds} \u00b5s)",
        fontsize=10,
        color=INK,
    )
    figure.tight_layout()
    return figure


def growth(results):
    """Draw the cost of capture, instantiate and replay by the number of nodes."""
    import matplotlib.pyplot as plt

    panels_of = {
        "capture": ("nodes: capture", "the bare begin and end", "accelerator_graph: with g"),
        "instantiate": ("nodes: instantiate", "the bare begin and end", "accelerator_graph: with g"),
        "replay, host time": ("nodes: replay", "C loop", "accelerator_graph: bind()"),
    }
    if not rows_of(results, "growth", "nodes: capture"):
        return None
    figure, panels = plt.subplots(1, 3, figsize=(10, 3.2))
    for panel, (title, (case, base, ours)) in zip(panels, panels_of.items(), strict=True):
        table = rows_of(results, "growth", case)
        for name, style in ((base, {"marker": "o", "color": LIMIT}), (ours, {"marker": "s", "color": OURS})):
            line = table.get(name, {})
            microseconds = [row["median"] / 1e3 for row in line.values()]
            panel.loglog(list(line), microseconds, label=NAMES[name], markersize=4, linewidth=1.5, **style)
        panel.set_title(title)
        panel.set_xlabel("kernels in the graph")
        panel.grid(color=INK, alpha=0.2, linewidth=0.6)
        panel.legend(frameon=False, labelcolor=INK, fontsize=9)
    panels[0].set_ylabel("\u00b5s")
    figure.tight_layout()
    return figure


def threads(results):
    """Draw launches by several threads, each of its own graph."""
    import matplotlib.pyplot as plt

    table = rows_of(results, "threads", "a launch, all threads together")
    if not table:
        return None
    figure, panel = plt.subplots(figsize=(5.6, 3.4))
    ends = {name: 1e3 / list(line.values())[-1]["median"] for name, line in table.items()}
    markers = dict(zip(table, "osD^v", strict=False))
    for name, line in table.items():
        values = [1e3 / row["median"] for row in line.values()]
        style = {"linestyle": "--" if name == "C loop" else "-", "marker": markers[name], "markersize": 4}
        width = 2 if colour(name) == OURS else 1.4
        panel.plot(list(line), values, color=colour(name), linewidth=width, **style)
    panel.set_ylim(bottom=0)
    gap, lowest = 0.07 * panel.get_ylim()[1], 0.0
    for name in sorted(ends, key=ends.get):  # labels that would overlap are moved apart
        lowest = max(ends[name], lowest)
        panel.annotate(
            NAMES.get(name, name),
            (max(next(iter(table.values()))), lowest),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            color=colour(name),
            fontsize=9,
        )
        lowest += gap
    panel.set_xscale("log", base=2)
    panel.set_xticks(list(line), list(map(str, line)))
    panel.minorticks_off()
    panel.set_xlabel("threads, each with a graph and a stream of its own")
    panel.set_ylabel("launches per \u00b5s, all together")
    panel.grid(color=INK, alpha=0.2, linewidth=0.6)
    figure.tight_layout()
    return figure


if __name__ == "__main__":
    sys.exit(main())
