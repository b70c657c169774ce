"""The results as a page in Markdown."""

from __future__ import annotations

UNITS = {
    "ns": ((1, "ns"), (1e3, "us"), (1e6, "ms"), (1e9, "s")),
    "B": ((1, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB")),
}


def amount(value, unit):
    """Return an amount in the unit in which it is shortest."""
    size, name = next(
        (each for each in reversed(UNITS[unit]) if abs(value) >= each[0]),
        UNITS[unit][0],
    )
    return f"{value / size:.3g} {name}"


def render(results):
    machine = results["machine"]
    lines = [
        f"# Measured with the backend {results['backend']!r}",
        "",
        f"Written by `benchmarks/run.py`{' --quick' if results['quick'] else ''} in {results['seconds']} s.",
        "",
        f"- commit: {results['commit']}",
        f"- date: {results['date']}",
        *(f"- {name}: {value}" for name, value in machine.items()),
        *(f"- {name}: {value}" for name, value in results["versions"].items()),
        "",
        "Each figure is a median over rounds, in which all variants of a table take turns in one process.",
        "A ratio is to the first variant of the column in the same round, with its quartiles.",
        "",
    ]
    goals = [goal for section in results["sections"].values() for goal in section["goals"]]
    if goals:
        lines += ["## Figures to reach", "", "| figure | measured | wanted | reached |"]
        lines += ["| --- | --- | --- | --- |", *map(_goal, goals)]
        lines.append("")
    for name, section in results["sections"].items():
        lines += [f"## {name.replace('_', ' ')}", ""]
        if section["error"]:
            lines += ["This section failed:", "", "```", section["error"], "```", ""]
        for case in dict.fromkeys(row["case"] for row in section["rows"]):
            lines += _table(case, [row for row in section["rows"] if row["case"] == case])
        notes = [f"- {what}: {fact}" for what, fact in section["facts"].items()]
        notes += [f"- not measured: {what}: {why}" for what, why in section["skipped"].items()]
        lines += [*notes, ""] if notes else []
    return "\n".join(lines)


def _goal(goal):
    low, high = goal["quartiles"]
    unit = f" {goal['unit']}" if goal["unit"] else ""
    reached = "yes" if goal["reached"] else "**no**"
    return (
        f"| {goal['what']} | {goal['value']}{unit} ({low} to {high}) | {goal['wanted']}{unit} | {reached} |"
    )


def _table(case, rows):
    sizes = list(dict.fromkeys(row["n"] for row in rows))
    cells = {(row["variant"], row["n"]): _cell(row) for row in rows}
    of = {row["n"]: row["of"] for row in rows}
    heads = ["" if n is None else f"{n} {of[n].removesuffix('s') if n == 1 else of[n]}" for n in sizes]
    counts = sorted({row["rounds"] for row in rows})
    rounds = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    return [
        f"**{case}** (rounds: {rounds})",
        "",
        f"| variant | {' | '.join(heads)} |",
        f"| --- |{' --- |' * len(sizes)}",
        *(
            f"| {name} | {' | '.join(cells.get((name, n), '') for n in sizes)} |"
            for name in dict.fromkeys(row["variant"] for row in rows)
        ),
        "",
    ]


def _cell(row):
    value = amount(row["median"], row["unit"])
    if "ratio" not in row or row["variant"] == row["reference"]:
        low, high = (amount(each, row["unit"]) for each in row["range"])
        return value if row["rounds"] == 1 else f"{value} ({low} to {high})"
    low, high = row["quartiles"]
    return f"{row['ratio']:.2f} ({low:.2f} to {high:.2f}), {value}"
