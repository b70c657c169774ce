"""Functions to graph, containers to pass to them, and what tests do with them."""

from __future__ import annotations

import statistics
import sys
import time
from collections import OrderedDict, namedtuple
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

import accelerator_graph as ag

ROOT = ag.__path__[0]
LIMIT = 120
"""Seconds after which a test counts as hanging."""

Point = namedtuple("Point", "x y")


@dataclass
class Pair:
    left: Any
    right: Any


@dataclass
class Outputs(OrderedDict):
    """A dataclass and a dict, like the outputs of Hugging Face's models."""

    logits: Any = None
    hidden: Any = None

    def __post_init__(self):
        for field in fields(self):
            if getattr(self, field.name) is not None:
                super().__setitem__(field.name, getattr(self, field.name))

    def __setattr__(self, name, value):
        if name in self:
            super().__setitem__(name, value)
        super().__setattr__(name, value)

    def __reduce__(self):
        return self.__class__, tuple(getattr(self, field.name) for field in fields(self))


def launch(work, *args, **how):
    ag.current_stream().launch(work, *args, **how)


def doubled(**options):
    """A graphed function that doubles an array, and the list of the factors that it was run with."""
    runs = []

    @ag.graphed(**options)
    def double(x, factor=2, *rest, **more):
        runs.append(factor)
        out = np.empty_like(x)
        launch(np.multiply, x, factor, out)
        return out

    return double, runs


def twice(x):
    out = np.empty_like(x)
    launch(np.multiply, x, 2, out)
    return out


def replays(function, *args, **kwargs):
    """Return True if a call replays a graph, without capturing one."""
    before = function.cache_info()
    function(*args, **kwargs)
    after = function.cache_info()
    return (after.replays, after.captures) == (before.replays + 1, before.captures)


def microseconds(call, count):
    """Host time of a call, the median of a few rounds; the GPU finishes each round before the next."""
    import torch

    rounds = []
    for _ in range(7):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            call()
        rounds.append((time.perf_counter() - begin) / count * 1e6)
        torch.cuda.synchronize()
    return statistics.median(rounds)


def calls(f, *args, **kwargs):
    """Return what a call of a function returned, and the functions of the library that it ran in Python."""
    found = []

    def note(frame, event, arg):
        if event == "call" and frame.f_code.co_filename.startswith(ROOT):
            found.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        result = f(*args, **kwargs)
    finally:
        sys.setprofile(None)
    return result, found
