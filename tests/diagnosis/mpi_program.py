"""One of three processes that MPI has started, which compare their graphs by messages: argument FOLDER."""

import json
import sys
from pathlib import Path

from mpi4py import MPI

from .rank_program import captured, equal, failed, found, swapped


def main(folder):
    world = MPI.COMM_WORLD
    rank = world.Get_rank()
    results = {
        each.__name__: found(captured(rank, each, keep_graph=True), world)
        for each in (equal, swapped, failed)
    }
    world.Barrier()
    if rank != 1:  # which does not call
        results["late"] = found(captured(rank, equal), world, timeout=2)
    world.Barrier()
    results["after"] = found(captured(rank, equal), world, timeout=1)
    world.Barrier()
    (folder / f"results-{rank}.json").write_text(json.dumps(results), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
