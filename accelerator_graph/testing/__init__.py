"""The conformance kit: it says whether a backend keeps to the contract.

A backend's tests are one class, which pytest collects::

    from accelerator_graph.testing import BackendConformance, Work

    class MyWork(Work):
        ...                      # memory of the device, and one piece of work on it

    class TestMyBackend(BackendConformance):
        def work(self):
            return MyWork()

Without pytest, ``accelerator-graph conformance NAME`` does the same and writes a report, and
`check_backend` does it in a program. Rules about something that the backend does not have are left out:
pytest deselects them and says so in a line for each reason, and `check_backend` returns them as skipped. No
rule asks for a backend's name. The kit finds leaks if `Work.live_objects` counts what your runtime has alive.
To skip where there is no hardware, raise `unittest.SkipTest` in `work`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._failure import ask_pytest

if TYPE_CHECKING:
    from ._conformance import BackendConformance as BackendConformance
    from ._conformance import CheckResult as CheckResult
    from ._conformance import check_backend as check_backend
    from ._work import Work as Work
    from ._work import live_instances as live_instances

if not __debug__:
    raise ImportError("accelerator_graph.testing checks with assert statements; run Python without -O.")

ask_pytest(f"{__name__}.rules", f"{__name__}._case")

__all__ = ["BackendConformance", "CheckResult", "Work", "check_backend", "live_instances"]

_HOMES = {
    "BackendConformance": "_conformance",
    "CheckResult": "_conformance",
    "Work": "_work",
    "check_backend": "_conformance",
    "live_instances": "_work",
}
"""The public names by the module that defines them, which is imported on first use: a program that only
wants a `Work` does not load the rules."""

if not TYPE_CHECKING:  # type checkers read the imports above, and so find names that do not exist

    def __getattr__(name: str) -> object:
        from importlib import import_module

        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_HOMES})
