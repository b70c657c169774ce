"""Fair timings: variants interleaved round by round, medians and quartiles, ratios within one run."""

from __future__ import annotations

import gc
import json
import os
from itertools import repeat
from statistics import median, quantiles
from time import perf_counter, perf_counter_ns

LEAST = 3  # quartiles of fewer rounds mean nothing


def loop(call, *args):
    """Return a variant: it makes a number of calls in a Python loop and returns how many ns they took."""

    def without():
        begin = perf_counter_ns()
        for _ in repeat(None, count):
            call()
        return perf_counter_ns() - begin

    def with_one(a):
        begin = perf_counter_ns()
        for _ in repeat(None, count):
            call(a)
        return perf_counter_ns() - begin

    def with_two(a, b):
        begin = perf_counter_ns()
        for _ in repeat(None, count):
            call(a, b)
        return perf_counter_ns() - begin

    count = 1

    def run(calls):
        nonlocal count
        count = calls
        return (without, with_one, with_two)[len(args)](*args)

    return run


def each(calls_in_turn):
    """Return a variant that calls the items of an endless iterator, one after another."""

    def run(calls):
        begin = perf_counter_ns()
        for _ in repeat(None, calls):
            next(calls_in_turn)()
        return perf_counter_ns() - begin

    return run


class Plan:
    """One section of measurements: its rows, the variants left out with the reasons, and its time limit.

    Parameters
    ----------
    backend : str
        What to measure.
    quick : bool
        About a sixth of the time, and smaller sizes.
    most : int
        The most rounds.
    path : str, optional
        The file for what has been measured so far.
    """

    def __init__(self, backend, quick=False, most=400, path=None):
        self.backend = backend
        self.quick = quick
        self.most = max(LEAST, most)
        self.path = path
        self.rows = []
        self.goals = []
        self.skipped = {}
        self.facts = {}

    def skip(self, what, why):
        """Note a variant that is not measured, with the exception if there is one."""
        if isinstance(why, BaseException):
            why = f"{type(why).__name__}: {why}".splitlines()[0]
        self.skipped.setdefault(what, why)

    def tried(self, what, make, *args):
        """Return the result of `make`; None, and a note, if it raises."""
        try:
            return make(*args)
        except Exception as error:
            self.skip(what, error)
            return None

    def compare(self, case, n, variants, reference, *, calls=1, seconds=2.0, between=None, **more):
        """Measure variants side by side, and add a row for each: ns per call, and the ratio round by round.

        `variants` maps a name to a function that takes the number of calls to make and returns the ns that
        they took; `between` runs, untimed, before each. A variant that fails at first is skipped. Returns
        the measurements by name: for each round, the ns by step.
        """

        def step(name, run):
            return lambda: {"": run(calls) / calls}

        lives = {name: step(name, run) for name, run in variants.items()}
        return self.compare_lives(
            case, n, lives, reference, seconds=seconds, between=between, calls=calls, **more
        )

    def compare_lives(self, case, n, lives, reference, *, seconds=2.0, between=None, **more):
        """Like `compare`, for functions that return the ns of several steps, by step."""
        between = between or (lambda: None)
        end = perf_counter() + seconds * (0.15 if self.quick else 1)
        running = {}
        for name, life in lives.items():
            between()
            if name == reference:
                life()  # without the reference there is nothing to compare
                running[name] = life
            elif self.tried(name, life) is not None:
                running[name] = life
        times = {name: [] for name in running}
        names = list(running)
        done = 0
        gc.collect()
        gc.disable()
        try:
            while done < LEAST or (done < self.most and perf_counter() < end):
                turn = done % len(names)
                for name in names[turn:] + names[:turn]:
                    between()
                    times[name].append(running[name]())
                done += 1
        finally:
            gc.enable()
        base = times[reference]
        for name, found in times.items():
            for step in found[0]:
                values = [each[step] for each in found]
                ratios = [
                    each[step] / other[step] for each, other in zip(found, base, strict=True) if step in other
                ]
                self.add(" ".join(filter(None, (case, step))), n, name, values, ratios, reference, **more)
        self.save()
        return times

    def add(self, case, n, variant, values, ratios=None, reference=None, unit="ns", of="nodes", calls=1):
        """Add one row: the measurement of each round, and its ratio to the reference in the same round."""
        low, _, high = spread(values)
        row = {"case": case, "n": n, "of": of, "variant": variant, "unit": unit}
        row |= {"median": number(median(values)), "range": [number(low), number(high)]}
        if ratios:
            low, middle, high = spread(ratios)
            row |= {"ratio": round(middle, 3), "quartiles": [round(low, 3), round(high, 3)]}
            row["reference"] = reference
        self.rows.append(row | {"rounds": len(values), "calls": calls})

    def goal(self, what, values, limit, *, unit="", least=False):
        """Compare the median of the measurements with a target."""
        if not values:
            return
        low, middle, high = (round(value, 3) for value in spread(values))
        reached = middle >= limit if least else middle <= limit
        self.goals.append(
            {
                "what": what,
                "value": middle,
                "quartiles": [low, high],
                "unit": unit,
                "wanted": f"at {'least' if least else 'most'} {limit}",
                "reached": reached,
            }
        )

    def save(self):
        """Write the results so far as JSON, so that they survive a crash of the process."""
        if self.path:
            names = ("rows", "goals", "skipped", "facts")
            with open(f"{self.path}.tmp", "w", encoding="utf-8") as file:
                json.dump({name: getattr(self, name) for name in names}, file)
            os.replace(f"{self.path}.tmp", self.path)


def above(times, name, other, base, step=""):
    """Return how much longer one variant took than another, in units of the base, round by round."""
    if name not in times or other not in times:
        return []
    rounds = zip(times[name], times[other], times[base], strict=True)
    return [(a[step] - b[step]) / c[step] for a, b, c in rounds]


def spread(values):
    """Return the lower quartile, the median and the upper quartile."""
    return quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3


def number(value):
    """Return a number with as many digits as are significant."""
    return round(value, 1) if abs(value) < 1000 else round(value)


def resident():
    """Return how many bytes of memory this process uses."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
