"""Tests on a simulator, which must know all that it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

import inner

Run = Callable[..., inner.Outcome]


@pytest.fixture
def on_simulator(run_inner: Run, tmp_path: Path) -> Run:
    """Runs tests on a simulator; returns what they showed, and what the simulator has counted.

    Of each file or folder at least one test passes, or as many as `least` says. The reasons of skipped tests
    begin with one of `may_skip`.
    """

    def run(
        python: Sequence[str],
        env: Mapping[str, str],
        *files: str,
        least: Mapping[str, int] = {},
        may_skip: tuple[str, ...] = (),
        options: Sequence[str] = (),
    ) -> inner.Outcome:
        unknown = tmp_path / "unknown"
        asking = {f"SOFTWARE_{name}_UNKNOWN": str(unknown) for name in ("CUDA", "HSA")}
        paths = (f"tests/{name}" for name in files)
        found = run_inner(python, *options, *paths, env={**env, **asking}, accounts="simulators.accounts")
        assert lacking(unknown) == []
        assert found.fewer(dict.fromkeys(files, 1) | {**least}) == {}
        assert [reason for reason in found.skipped if not reason.startswith(may_skip)] == []
        return found

    return run


def lacking(unknown: Path) -> list[str]:
    """Return what a simulator was asked for and lacks, which it writes into that file."""
    return sorted(set(unknown.read_text().splitlines())) if unknown.exists() else []
