"""The two ways in which the events of a diagnosed capture are answered."""

from __future__ import annotations

import pytest

from accelerator_graph._core.extension import fast
from accelerator_graph.diagnosis._tracing import observation


@pytest.fixture(params=["in C", "in Python"])
def answered(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the extension, if it was built, and without it."""
    if request.param == "in Python":
        monkeypatch.setattr(observation, "fast", None)
    elif fast is None:
        pytest.skip("there is no extension")
