"""Honest timings: the variants interleaved round by round, medians and quartiles, ratios in one run."""

import gc
import statistics
import time


def interleave(variants, rounds, calls, between=lambda: None):
    """Time every variant `calls` times in each of `rounds` rounds.

    `variants` maps a name to a function without arguments; `between` runs, untimed, before each.
    Returns nanoseconds a call, a list by name, one entry a round.
    """
    times = {name: [] for name in variants}
    names = list(variants)
    gc.disable()
    try:
        for n in range(rounds):
            for name in names[n % len(names) :] + names[: n % len(names)]:
                call = variants[name]
                between()
                begin = time.perf_counter_ns()
                for _ in range(calls):
                    call()
                times[name].append((time.perf_counter_ns() - begin) / calls)
    finally:
        gc.enable()
    return times


def summary(times, reference):
    """Return, by name, the median in ns and the quartiles of the ratio to the reference, round by round."""
    rows = {}
    for name, values in times.items():
        ratios = [value / base for value, base in zip(values, times[reference], strict=True)]
        low, mid, high = statistics.quantiles(ratios, n=4)
        rows[name] = {
            "median_ns": round(statistics.median(values), 1),
            "ratio": round(mid, 3),
            "quartiles": [round(low, 3), round(high, 3)],
        }
    return rows


def table(title, rows):
    """Return the summary as a Markdown table."""
    lines = [f"**{title}**", "", "| variant | median ns | ratio | quartiles |", "| --- | --- | --- | --- |"]
    for name, row in rows.items():
        low, high = row["quartiles"]
        lines.append(f"| {name} | {row['median_ns']:.0f} | {row['ratio']:.3f} | {low:.3f} to {high:.3f} |")
    return "\n".join([*lines, ""])
