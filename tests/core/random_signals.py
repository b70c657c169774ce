"""Real signals that interrupt work at random moments."""

import gc
import random
import signal
import threading
import time
from collections.abc import Callable

SEED = 20
MEASURED = 20
"""So many calls that no signal interrupts tell how long the work takes."""


def interrupt(work: Callable[[], object], after: Callable[[], object], rounds: int) -> None:
    """Do work many times with a KeyboardInterrupt at a random moment, and call `after` each time.

    Garbage is not collected meanwhile. Python swallows an exception that is raised in a finalizer or in a
    callback of the collector (Hypothesis has one), and pytest would report it.
    """

    def strike(number: int, frame: object) -> None:
        nonlocal armed
        if armed:  # a signal may come after its timer was stopped
            armed = False
            raise KeyboardInterrupt

    assert threading.current_thread() is threading.main_thread()
    armed, struck, rng = False, 0, random.Random(SEED)
    longest = 2 * usual_time(work, after)
    handler = signal.signal(signal.SIGALRM, strike)
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            try:
                armed = True
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-6, longest))
                try:
                    work()
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    armed = False
            except KeyboardInterrupt:
                struck += 1
                signal.setitimer(signal.ITIMER_REAL, 0)
            after()
    finally:
        gc.enable()
        signal.signal(signal.SIGALRM, handler)
    assert struck > rounds / 50


def usual_time(work: Callable[[], object], after: Callable[[], object]) -> float:
    """Return the median of the seconds that the work takes."""
    times = []
    for _ in range(MEASURED):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
        after()
    return sorted(times)[MEASURED // 2]
