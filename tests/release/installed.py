"""Try the library that is installed for this Python, as its users would: away from its sources.

python tests/release/installed.py --extension    it has the C extension
python tests/release/installed.py --pure         it has not
"""

from __future__ import annotations

import _thread
import contextlib
import subprocess
import sys
import sysconfig
import tempfile
from importlib.metadata import distribution
from pathlib import Path

COMMANDS = (("info",), ("demo", "cpu", "--size", "32", "--steps", "40"))
CONFORMANCE = ("conformance", "cpu")
WITHOUT_CONFORMANCE = (
    "The conformance kit is left out: an interrupt can make this Python leave a lock locked; see "
    "https://github.com/python/cpython/issues/148874."
)


class Interrupted:
    """A context that is interrupted between its `__enter__` and its body."""

    __enter__ = staticmethod(_thread.interrupt_main)

    def __init__(self) -> None:
        self.left = False

    def __exit__(self, *exc: object) -> None:
        self.left = True


def loses_locks() -> bool:
    """Return True if an interrupt can skip the end of a `with` block, as in CPython 3.14.10."""
    context = Interrupted()
    with contextlib.suppress(KeyboardInterrupt), context:
        for _ in range(1000):
            pass
    return not context.left


def check_installation(*, extension: bool) -> None:
    """Check what was installed, and what it imports."""
    import accelerator_graph as ag
    from accelerator_graph._core.extension import fast

    folder = Path(ag.__file__).parent
    assert Path(sysconfig.get_paths()["platlib"]) in folder.parents, (
        f"this is not an installed copy: {folder}"
    )
    assert ag.__version__ == distribution("accelerator-graph").version
    assert (fast is not None) == extension, f"the extension is {fast}"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        assert not sys._is_gil_enabled(), "an import has switched the GIL on"  # type: ignore[attr-defined]


def main() -> None:
    """Check the installation, then run the commands."""
    check_installation(extension={"--extension": True, "--pure": False}[sys.argv[1]])
    lossy = loses_locks()
    if lossy:
        print(WITHOUT_CONFORMANCE)
    with tempfile.TemporaryDirectory() as elsewhere:
        for command in COMMANDS if lossy else (*COMMANDS, CONFORMANCE):
            print("$ python -m accelerator_graph", *command, flush=True)
            subprocess.run([sys.executable, "-m", "accelerator_graph", *command], cwd=elsewhere, check=True)


if __name__ == "__main__":
    main()
