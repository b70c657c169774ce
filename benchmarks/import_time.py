"""How long `import accelerator_graph` takes, beyond a bare interpreter's start.

The two are run in turns, so that whatever else the machine does falls on both alike.
"""

import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 15


def start(statement: str) -> float:
    """Return how long a fresh interpreter takes for one statement, in milliseconds."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); {statement}"
    begin = perf_counter()
    subprocess.run([sys.executable, "-I", "-c", code], check=True)
    return (perf_counter() - begin) * 1e3


def main() -> None:
    start("import accelerator_graph")  # writes the byte code
    rounds = [(start("pass"), start("import accelerator_graph")) for _ in range(ROUNDS)]
    bare, loaded = (median(column) for column in zip(*rounds, strict=True))
    added = median(after - before for before, after in rounds)
    print(
        f"import accelerator_graph: {added:.1f} ms more than a bare interpreter "
        f"({bare:.1f} ms against {loaded:.1f} ms, medians of {ROUNDS}, Python {sys.version.split()[0]})"
    )


if __name__ == "__main__":
    main()
