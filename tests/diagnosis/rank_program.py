"""One of several processes that capture and compare their graphs: arguments RANK, SIZE and FOLDER.

Runs every scenario on the cpu backend, and writes what `check_ranks` has found, by scenario.
"""

import json
import sys
import time
from pathlib import Path

import accelerator_graph as ag

LATE_SECONDS = 1.0


def work(): ...


def other_work(): ...


def ask(stream, kind, elements, dtype="float32", **how):
    """Enqueue something that stands for a collective, and note it."""
    stream.launch(work)
    ag.note_collective(kind, dtype, elements, **how)


def equal(rank, stream):
    ask(stream, "all_reduce", 4)
    ask(stream, "all_gather", 8)


def pipeline(rank, stream):
    """Each rank has other work, and hands its result to the next one; the first two share a group."""
    if rank > 0:
        ask(stream, "recv", 16, peer=rank - 1)
    for _ in range(rank + 1):
        stream.launch(other_work)
    if rank < 2:
        ask(stream, "all_reduce", 2, group="first", ranks=(0, 1))
        ask(stream, "send", 16, peer=rank + 1)
    ask(stream, "all_reduce", 1)


def uneven(rank, stream):
    """Sizes that differ rightly are not known."""
    ask(stream, "all_to_all", None)


def nothing_at_all(rank, stream):
    stream.launch(work)


def swapped(rank, stream):
    kinds = [("all_reduce", 4), ("all_gather", 8)]
    for kind in reversed(kinds) if rank == 2 else kinds:
        ask(stream, *kind)


def another_count(rank, stream):
    ask(stream, "all_reduce", 4)
    ask(stream, "all_gather", 9 if rank == 1 else 8)


def another_type(rank, stream):
    ask(stream, "all_reduce", 4, "float16" if rank == 0 else "float32")


def another_root(rank, stream):
    ask(stream, "broadcast", 4, peer=rank % 2)


def missing(rank, stream):
    stream.launch(work)
    ask(stream, "all_reduce", 4)
    if rank != 1:
        ask(stream, "all_gather", 8)


def none_at_all(rank, stream):
    stream.launch(work)
    if rank != 1:
        ask(stream, "all_reduce", 4)


def unmatched_send(rank, stream):
    pipeline(rank, stream)
    if rank == 0:
        ask(stream, "send", 16, peer=1)


def mismatched_send(rank, stream):
    if rank == 0:
        ask(stream, "send", 16, peer=1)
    elif rank == 1:
        ask(stream, "recv", 17, peer=0)
    else:
        stream.launch(work)


def failed(rank, stream):
    equal(rank, stream)
    if rank == 2:
        stream.synchronize()


def all_failed(rank, stream):
    stream.synchronize()


def crossed_groups(rank, stream):
    for group in "ab" if rank else "ba":
        ask(stream, "all_reduce", 4, group=group)


def side_by_side(rank, stream):
    """Two groups' collectives, in another order on rank 0, that do not wait for each other."""
    side = ag.Stream(like=stream)
    side.wait(stream)
    for group in "ab" if rank else "ba":
        ask(stream if group == "a" else side, "all_reduce", 4, group=group)
    stream.wait(side)


SCENARIOS = {
    each.__name__: each
    for each in (
        *(equal, pipeline, uneven, nothing_at_all, swapped, another_count, another_type, another_root),
        *(missing, none_at_all, unmatched_send, mismatched_send, failed, all_failed, crossed_groups),
        side_by_side,
    )
}


class Files:
    """An all-gather over files."""

    def __init__(self, folder, rank, size):
        self._folder, self._rank, self._size, self._round = folder, rank, size, 0

    def __call__(self, text):
        self._round += 1
        paths = [self._folder / f"{self._round}-{rank}" for rank in range(self._size)]
        half = self._folder / f"half-{self._rank}"
        half.write_text(text, encoding="utf-8")
        half.rename(paths[self._rank])
        while not all(path.exists() for path in paths):
            time.sleep(0.005)
        return [path.read_text(encoding="utf-8") for path in paths]


def captured(rank, scenario, **how):
    """Return the graph, or the exception of its capture."""
    graph = ag.Graph(**how)
    try:
        with ag.Stream(backend="cpu"), graph:
            scenario(rank, ag.current_stream())
    except ag.CaptureError as error:
        return error
    return graph


def found(graph, gather, **how):
    """Return what the ranks agree on, or what they don't."""
    try:
        report, error = ag.check_ranks(graph, gather, **how), ""
    except ag.RanksDisagreeError as raised:
        report, error = raised.report, str(raised)
    return {"error": error, "text": str(report), "report": json.loads(report.to_json())}


def main(rank, size, folder):
    gather = Files(folder, rank, size)
    results = {
        name: found(captured(rank, scenario, keep_graph=True), gather) for name, scenario in SCENARIOS.items()
    }
    results["strict"] = found(captured(rank, pipeline, keep_graph=True), gather, strict=True)
    results["not_kept"] = found(captured(rank, equal), gather)
    results["no_graph"] = found(None if rank == 1 else captured(rank, equal), gather)
    results["empty"] = found(ag.Graph() if rank == 1 else captured(rank, equal), gather)
    if rank != 2:  # which does not call
        results["late"] = found(captured(rank, equal), gather, timeout=LATE_SECONDS)
    (folder / f"results-{rank}.json").write_text(json.dumps(results), encoding="utf-8")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
