"""A plug-in with a planted ill, and distributions that are installed in a folder of a test."""

from __future__ import annotations

import os
from pathlib import Path

from command_line.calls import ROOT

PLUGIN = """
import atexit, faulthandler, os, time
import accelerator_graph as ag
from accelerator_graph.backends.base import Availability
from accelerator_graph.backends.cpu import CpuBackend
from accelerator_graph.errors import BackendUnavailableError, DriverError
from accelerator_graph.testing.works.host import HostWork

ILL = os.environ.get("ILL", "")

class Backend(CpuBackend):
    priority = None

    @classmethod
    def probe(cls):
        if ILL == "crash when asked":
            faulthandler._sigsegv()
        if ILL == "a defect":
            return Availability(True, warning="Its tapes tear. Use tapes of 1981.")
        return CpuBackend.probe()

    def open(self):
        if ILL == "not there":
            raise BackendUnavailableError("its door is locked. Bring the key")
        if ILL == "crash at the end":
            atexit.register(faulthandler._sigsegv)
        if ILL == "exit":
            os._exit(3)
        super().open()

    def replay(self, executable, stream):
        if ILL == "crash":
            print("about to crash", flush=True)
            faulthandler._sigsegv()
        if ILL == "hang":
            time.sleep(600)
        if ILL == "fail":
            raise DriverError("the tape is torn.")
        if ILL != "lose a replay":
            super().replay(executable, stream)

    def native_calls(self, stream):
        return None

class Work(HostWork):
    def __init__(self):
        super().__init__("plug")

    def enqueue(self, stream, cell, a, b):
        if ILL == "run at once" and ag.backends.get("plug").capture_status(stream.native) == "active":
            cell.value = cell.value * a + b
        super().enqueue(stream, cell, a, b)
"""


def installed(folder: Path, name: str, version: str, *, entry_points: str = "") -> None:
    """Put the metadata of a distribution into a folder."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    if entry_points:
        (info / "entry_points.txt").write_text(entry_points)


def plugged(folder: Path, *, target: str = "the_plugin:Backend", work: bool = True) -> None:
    """Install the plug-in, with its work for the kit or without."""
    (folder / "the_plugin.py").write_text(PLUGIN)
    points = f"[accelerator_graph.backends]\nplug = {target}\n"
    if work:
        points += "[accelerator_graph.conformance]\nplug = the_plugin:Work\n"
    installed(folder, "the-plugin", "1.0", entry_points=points)


def path_with(folder: Path) -> str:
    """Return the import path with a folder on it."""
    return os.pathsep.join((str(ROOT), str(folder)))
