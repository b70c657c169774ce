"""The commands `show` and `diff`."""

from __future__ import annotations

from pathlib import Path

import pytest

import accelerator_graph as ag
from accelerator_graph.__main__ import main
from accelerator_graph.inspection import files
from command_line.calls import command_line


def captured(path: Path, times: int) -> Path:
    with ag.Stream(backend="cpu") as stream, ag.Graph(keep_graph=True) as graph:
        for _ in range(times):
            stream.launch(print)
    graph.debug_dump(path)
    return path


def test_show_prints_every_node(tmp_path: Path) -> None:
    done = command_line("show", str(captured(tmp_path / "a.json", 50)))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("graph of cpu, device 0: 50 nodes (50 host), 49 dependencies\n")
    assert done.stdout.splitlines()[-1].split() == ["49", "host", "print"]


def test_show_draws_into_a_file(tmp_path: Path) -> None:
    path = captured(tmp_path / "a.json", 2)
    done = command_line("show", str(path), "-o", str(tmp_path / "a.dot"))
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "n0 -> n1;" in (tmp_path / "a.dot").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", ["show", "diff"])
def test_a_file_is_replaced_only_by_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    graph, page = captured(tmp_path / "a.json", 2), tmp_path / "a.html"
    page.write_text("before", encoding="utf-8")

    def fails(path: str, text: str) -> None:
        Path(path).write_text(text[:9], encoding="utf-8")
        raise OSError("no space left")

    monkeypatch.setattr(files, "_write_text", fails)
    arguments = [command, str(graph), *([str(graph)] if command == "diff" else []), "-o", str(page)]
    assert main(arguments) == 2
    assert page.read_text(encoding="utf-8") == "before"
    assert sorted(tmp_path.iterdir()) == [page, graph]


def test_show_and_diff_make_pages(tmp_path: Path) -> None:
    two, three = captured(tmp_path / "two.json", 2), captured(tmp_path / "three.json", 3)
    done = command_line("show", str(two), "-o", str(tmp_path / "two.html"))
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "Graph of cpu, device 0" in (tmp_path / "two.html").read_text(encoding="utf-8")
    done = command_line("diff", str(two), str(three), "-o", str(tmp_path / "both.html"))
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert "node 2 (host print) is new" in (tmp_path / "both.html").read_text(encoding="utf-8")
    done = command_line("diff", str(two), str(two), "-o", str(tmp_path / "both.svg"))
    assert done.returncode == 2
    assert "must end in .html" in done.stderr
    assert not (tmp_path / "both.svg").exists()


def test_diff_has_the_status_of_diff(tmp_path: Path) -> None:
    two, three = captured(tmp_path / "two.json", 2), captured(tmp_path / "three.json", 3)
    same = command_line("diff", str(two), str(two))
    assert (same.returncode, same.stdout) == (0, "the graphs are equal\n"), same.stderr
    other = command_line("diff", str(two), str(three))
    assert (other.returncode, other.stdout) == (1, "node 2 (host print) is new\n"), other.stderr
    missing = command_line("diff", str(two), str(tmp_path / "four.json"))
    assert missing.returncode == 2
    assert missing.stderr.endswith(f"error: {tmp_path / 'four.json'}: No such file or directory\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file"),
        ("{}", "not the description of a graph"),
        ("x", "not JSON; name a .json file"),
        ("\N{LATIN SMALL LETTER E WITH ACUTE}", "not JSON; name a .json file"),
    ],
)
def test_files_that_hold_no_graph(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "graph.json"
    if text is not None:
        path.write_text(text, encoding="latin-1")
    done = command_line("show", str(path))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert said in done.stderr
    assert str(path) in done.stderr
