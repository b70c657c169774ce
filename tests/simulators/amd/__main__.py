"""Run a command on AMD's HIP runtime, without an AMD GPU: python -m simulators.amd VERSION -- COMMAND [...]

VERSION is 7.2 or 6.4. `python` in the command is this interpreter, with the packages that it has
(hip-python among them), and so are the Pythons that it starts. For example

    python -m simulators.amd 7.2 -- python -m pytest tests/simulators/amd/itself.py

Packages of some 70 MB are downloaded first, once, through the system's apt; nothing is installed.

SOFTWARE_HSA_DEVICES=2     so many GPUs instead of one
SOFTWARE_HSA_HARSH=SEED    queues, copies and memory do all that is legal, with delays by that seed
SOFTWARE_HSA_UNKNOWN=FILE  where to note what is missing in the library below the runtime
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from .packages import RELEASES
from .runtime import build, command, environment, missing


def main(*arguments: str) -> int:
    if len(arguments) < 3 or arguments[0] not in RELEASES or arguments[1] != "--":
        sys.stderr.write(__doc__)
        return 0 if arguments[:1] in (("-h",), ("--help",)) else 2
    if lack := missing(arguments[0]):
        sys.stderr.write(f"{lack}.\n")
        return 2
    folder = build(arguments[0])
    (python,) = command(folder)
    path = os.pathsep.join((str(Path(python).parent), os.environ.get("PATH", os.defpath)))
    return subprocess.call(arguments[2:], env=environment(folder, PATH=path))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
