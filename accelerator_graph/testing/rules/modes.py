"""Capture modes."""

from __future__ import annotations

from unittest import SkipTest

import accelerator_graph as ag
from accelerator_graph.backends.base import CaptureStatus

from .._case import Case, applied, raises


class ModeRules(Case):
    """Only "default" is portable; a mode that the backend does not have is refused, never replaced."""

    def test_default_mode_works(self) -> None:
        """The mode "default" works on every backend, in all ways to pass it."""
        stream, cell = self.stream(), self.cell()
        for _ in range(2):
            self.captured(stream, cell, capture_error_mode="default").replay()
        graph = self.graph(stream)
        graph.capture_error_mode = "default"
        graph.capture_begin(capture_error_mode="default")
        self.enqueue(stream, cell)
        graph.capture_end()
        graph.replay()
        assert self.read(cell) == applied(3)

    def test_every_declared_mode_works(self) -> None:
        """Each of `capture_modes` captures a graph that replays."""
        stream, cell = self.stream(), self.cell()
        modes = sorted(self.backend.capture_modes)
        for mode in modes:
            graph = self.captured(stream, cell, capture_error_mode=mode)
            assert graph.capture_error_mode == mode
            graph.replay()
        assert self.read(cell) == applied(len(modes))

    def test_undeclared_mode_is_refused_before_anything_begins(self) -> None:
        """A mode that the backend does not have is an `UnsupportedError`, and no capture begins."""
        stream = self.stream()
        for mode in self._undeclared():
            graph = self.graph(stream, capture_error_mode=mode)
            with raises(ag.UnsupportedError, match=mode):
                graph.capture_begin()
            assert graph.state == "empty"
            assert self.status(stream) is CaptureStatus.NONE
            with raises(ag.UnsupportedError, match=mode), graph:
                raise AssertionError("the body must not run")
            graph.capture_error_mode = "default"
            self.works(stream, graph)

    def test_mode_of_capture_begin_wins(self) -> None:
        """The mode passed to `capture_begin` overrides the constructor's, for that capture."""
        stream, cell = self.stream(), self.cell()
        mode = self._undeclared()[0]
        graph = self.graph(stream, capture_error_mode=mode)
        graph.capture_begin(capture_error_mode="default")
        self.enqueue(stream, cell)
        graph.capture_end()
        graph.replay()
        assert self.read(cell) == applied(1)
        assert graph.capture_error_mode == mode
        with raises(ag.UnsupportedError):
            self.graph(stream).capture_begin(capture_error_mode=mode)

    def test_nonsense_mode_is_refused_where_it_is_given(self) -> None:
        """An unknown mode is an immediate ValueError, and one that is not a string a TypeError."""
        stream = self.stream()
        graph = self.graph(stream)
        bad: list[tuple[object, type[Exception]]] = [
            ("", ValueError),
            ("GLOBAL", ValueError),
            ("nonsense", ValueError),
            (0, TypeError),
            (b"global", TypeError),
        ]
        for mode, kind in bad:
            given: dict[str, object] = {"capture_error_mode": mode}
            with raises(kind, match="capture_error_mode"):
                ag.Graph(**given)  # type: ignore[arg-type]
            with raises(kind, match="capture_error_mode"):
                graph.capture_error_mode = mode  # type: ignore[assignment]
            with raises(kind, match="capture_error_mode"):
                graph.capture_begin(**given)  # type: ignore[arg-type]
            with raises(kind, match="capture_error_mode"):
                ag.graph(graph, **given)  # type: ignore[arg-type]
        with raises(TypeError, match="capture_error_mode"):
            graph.capture_error_mode = None  # type: ignore[assignment]
        assert graph.capture_error_mode == "default"
        self.works(stream, graph)

    def _undeclared(self) -> list[str]:
        modes = sorted({"global", "thread_local", "relaxed"}.difference(self.backend.capture_modes))
        if not modes:
            raise SkipTest(f"backend {self.backend.name!r} has every capture mode")
        return modes
