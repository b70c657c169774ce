"""The conformance kit: it says whether a backend keeps to the contract.

A backend's tests are one class, which pytest collects::

    from accelerator_graph.testing import BackendConformance, Work

    class MyWork(Work):
        ...                      # memory of the device, and one piece of work on it

    class TestMyBackend(BackendConformance):
        def work(self):
            return MyWork()

Without pytest, ``python -m accelerator_graph conformance NAME`` does the same and writes a report, and
`check_backend` does it in a program. Rules that rest on a capability which the backend
does not have are left out: pytest deselects them and says so in a line for each capability, and
`check_backend` returns them as skipped. No rule asks for a backend's name. Leaks it sees if
`Work.live_objects` counts what your runtime has alive. To skip where there is no hardware, raise
`unittest.SkipTest` in `work`.
"""

from __future__ import annotations

import sys

if not __debug__:
    raise ImportError("accelerator_graph.testing checks with assert statements; run Python without -O.")

from ._assertions import showing_values

if "pytest" in sys.modules:
    import pytest

    pytest.register_assert_rewrite(f"{__name__}.rules", f"{__name__}._case")
    from . import rules as rules
else:
    with showing_values(f"{__name__}.rules", f"{__name__}._case"):
        from . import rules as rules

from ._check import CheckResult, check_backend
from ._conformance import BackendConformance
from ._live import live_instances
from ._work import Work

__all__ = ["BackendConformance", "CheckResult", "Work", "check_backend", "live_instances"]
