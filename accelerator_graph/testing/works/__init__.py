"""The works of the built-in backends, and how those of plug-ins are found."""

from __future__ import annotations

from typing import Final

from ..._plugins.hooks import Hook
from .._work import Work

BUILTINS = {
    "cpu": "accelerator_graph.testing.works.host:HostWork",
    "cuda": "accelerator_graph.testing.works.cuda:CudaWork",
    "hip": "accelerator_graph.testing.works.hip:HipWork",
}

_hook: Hook[Work] = Hook(
    noun="work for the conformance kit",
    group="accelerator_graph.conformance",
    builtins=BUILTINS,
    base=Work,
)

work_of: Final = _hook.load
"""Return the class of a backend's work: built in, or from the entry point of the backend's name."""
