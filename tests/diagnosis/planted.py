"""Planted faults: functions in which one line, marked with a comment, breaks the capture."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import accelerator_graph as ag
from threads import in_thread

MARK = "# breaks"


def marked(function: Callable[..., Any]) -> tuple[str, int]:
    """Return file and line of the marked line of a function."""
    lines, first = inspect.getsourcelines(function)
    [at] = [number for number, line in enumerate(lines, first) if line.rstrip().endswith(MARK)]
    file = inspect.getsourcefile(function)
    assert file is not None
    return file, at


def broken_by(fault: Callable[..., Any], graph: ag.Graph, *args: Any) -> ag.CaptureError:
    """Capture a fault, which has to fail, and return the error."""
    with pytest.raises(ag.CaptureError) as raised, graph:
        fault(*args)
    assert graph.state == "empty"
    return raised.value


def named(fault: Callable[..., Any], graph: ag.Graph, *args: Any, thread: str = "") -> ag.CaptureError:
    """Capture a fault, on a thread of its own if that has a name; the error names its line, and no other."""
    run = (lambda: in_thread(fault, name=thread)) if thread else fault
    error = broken_by(run, graph, *args)
    file, line = marked(fault)
    assert [(call.file, call.line, call.thread) for call in error.calls] == [(file, line, thread)], error
    assert f":{line} in " in str(error)
    assert fault.__name__ in error.calls[0].function
    return error


def named_after_work(
    fault: Callable[..., Any], said: str, diagnosed: Callable[..., ag.Graph], scene: Any
) -> None:
    """Capture a fault between right calls; the error has its line and says what it did."""

    def after_some_work(scene: Any) -> None:
        ag.current_stream().fill(int(scene.memory), 1, 64)
        fault(scene)
        ag.current_stream()

    error = broken_by(after_some_work, diagnosed(scene), scene)
    assert [(each.file, each.line, each.thread) for each in error.calls] == [(*marked(fault), "")], error
    assert said in str(error)
    graph = diagnosed(scene)
    with graph:
        ag.current_stream().fill(int(scene.memory), 1, 64)
    assert graph.num_nodes == 1


def library(folder: Path, source: str) -> Any:
    """Return a module of this source, in a folder of installed packages."""
    installed = folder / "site-packages"
    installed.mkdir()
    path = installed / "planted_library.py"
    path.write_text(source)
    names: dict[str, Any] = {"__name__": "planted_library"}
    exec(compile(source, str(path), "exec"), names)
    return names


def asked_while(kind: type[Any], graph: ag.Graph, memory: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how often Python is asked for the status of a capture with a hundred fills."""
    asked: list[int] = []
    status = kind.capture_status
    monkeypatch.setattr(kind, "capture_status", lambda *args: asked.append(1) or status(*args))
    with graph:
        for _ in range(100):
            ag.current_stream().fill(memory, 1, 64)
    return len(asked)
