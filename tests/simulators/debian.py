"""Debian packages that tests need: found, verified and downloaded by apt, unpacked, never installed."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path

MIRROR = "ACCELERATOR_GRAPH_DEBIAN_MIRROR"
"""Names a mirror of Debian, for a machine whose apt knows none."""

KEYRINGS = [Path(f"/usr/share/keyrings/debian-archive-keyring.{ending}") for ending in ("pgp", "gpg")]
HELPER = "/usr/lib/apt/apt-helper"
TOOLS = ("apt-get", "apt-config", "dpkg-deb", HELPER)
TIMEOUT = 900


class Gone(RuntimeError):
    """Debian no longer has these packages in the suite where they were."""

    def __init__(self, suite: str, names: Sequence[str]) -> None:
        super().__init__(f"Debian's suite {suite} no longer has {', '.join(names)}")


def unpack(root: Path, suites: Sequence[str], wanted: Sequence[str], *, alone: bool = False) -> list[str]:
    """Fill an empty folder with the files of packages and of all that they need, down to the C library.

    Packages are accepted only if Debian has signed for them.

    Parameters
    ----------
    root : Path
        The folder.
    suites : sequence of str
        The first has the packages; what they need may come from the others.
    wanted : sequence of str
        The packages.
    alone : bool
        Whether the packages are unpacked without what they need.

    Returns
    -------
    list of str
        The names of the unpacked files, such as ``"libpocl2_3.1-3_amd64.deb"``.

    Raises
    ------
    Gone
        Debian no longer has one of them.
    RuntimeError
        apt can't get them.
    """
    with tempfile.TemporaryDirectory(dir=root.parent) as folder:
        apt = _private_apt(suites, Path(folder))
        archives = Path(folder) / "archives"
        how = ("download",) if alone else ("--yes", "--download-only", "install")
        run("apt-get", "update", env=apt)
        try:
            run("apt-get", "-t", suites[0], *how, *wanted, env=apt, cwd=archives)
        except RuntimeError as error:
            unknown = r"Unable to locate package (\S+)|Package '?([\w.+-]+)'? has no installation candidate"
            if gone := ["".join(names) for names in re.findall(unknown, str(error))]:
                raise Gone(suites[0], gone) from error
            raise
        packages = sorted(archives.glob("*.deb"))
        for package in packages:
            run("dpkg-deb", "--extract", str(package), str(root))
    return [package.name for package in packages]


def mirror() -> str:
    """Return the mirror of Debian that apt is set up for, read by apt itself, whatever the format.

    Raises
    ------
    RuntimeError
        There is none.
    """
    if named := os.environ.get(MIRROR):
        return named.rstrip("/")
    with tempfile.TemporaryDirectory() as state:
        printed = run("apt-get", "-o", f"Dir::State={state}", "--print-uris", "update")
    known = sorted(set(re.findall(r"^'(\S+)/dists/", printed, re.MULTILINE)))
    for uri in known:
        if uri.rpartition("/")[2] in ("debian", "debian.list"):  # the latter is a list of mirrors
            return uri
    raise RuntimeError(
        f"apt knows no mirror of Debian here, only {', '.join(known) or 'nothing at all'}; "
        f"name one in the environment variable {MIRROR}."
    )


def lacking(suite: str, what: str) -> str:
    """Say in a clause why packages of a suite can't be had here; nothing, if they can."""
    for tool in TOOLS:
        if shutil.which(tool) is None:
            return f"{what} comes as Debian packages, and there is no {tool}"
    if not any(path.exists() for path in KEYRINGS):
        return f"{what} comes as Debian packages, and debian-archive-keyring is not installed"
    try:
        origin = mirror()
    except RuntimeError as error:
        return str(error).rstrip(".")
    release = f"{origin}/dists/{suite}/InRelease"
    with tempfile.TemporaryDirectory() as folder:
        try:
            run(HELPER, "download-file", release, f"{folder}/InRelease", timeout=60)
        except RuntimeError:
            return f"apt can't reach {release}"
    return ""


@contextmanager
def locked(target: Path):
    """Keep other processes from making the same thing meanwhile."""
    import fcntl

    target.parent.mkdir(exist_ok=True)
    with open(target.with_name(f"{target.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def unfinished_for(target: Path):
    """Give a folder that becomes `target` if all goes well, and vanishes if not."""
    with tempfile.TemporaryDirectory(dir=target.parent) as parent:
        unfinished = Path(parent) / "unfinished"
        unfinished.mkdir()
        yield unfinished
        unfinished.rename(target)


def digest(*facts: str) -> str:
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:16]


def run(
    *command: str, env: dict[str, str] | None = None, timeout: float = TIMEOUT, cwd: Path | None = None
) -> str:
    """Return what a command prints; RuntimeError with all that it says if it fails."""
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=env,
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{shlex.join(command)} has not ended in {timeout:.0f} seconds.") from None
    if done.returncode:
        said = "\n".join(filter(None, [done.stdout.strip()[-2000:], done.stderr.strip()[-4000:]]))
        raise RuntimeError(f"{shlex.join(command)} fails:\n{said}")
    return done.stdout


def _private_apt(suites: Sequence[str], folder: Path) -> dict[str, str]:
    """Return the environment of an apt that shares with the system's only how it reaches the network."""
    (folder / "lists" / "partial").mkdir(parents=True)
    (folder / "archives" / "partial").mkdir(parents=True)
    (folder / "status").touch()
    keyring = next(path for path in KEYRINGS if path.exists())
    origin = f"[arch=amd64 signed-by={keyring}] {mirror()}"
    sources = "".join(f"deb {origin} {suite} main\n" for suite in suites)
    (folder / "sources.list").write_text(sources, encoding="utf-8")
    ways = r"^Acquire::(?:https?|Retries|Force|Check)\S*[^:] .*$"  # never what would allow insecure ones
    network = re.findall(ways, run("apt-config", "dump"), re.MULTILINE)
    settings = {
        "APT::Architecture": "amd64",
        "APT::Architectures": "amd64",
        "APT::Default-Release": "",
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "",
        "APT::Update::Error-Mode": "any",
        "Acquire::Languages": "none",
        "Dir::Cache": folder,
        "Dir::Cache::archives": folder / "archives",
        "Dir::Etc::main": "/dev/null",
        "Dir::Etc::parts": "/dev/null",
        "Dir::Etc::preferences": "/dev/null",
        "Dir::Etc::preferencesparts": "/dev/null",
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State": folder,
        "Dir::State::status": folder / "status",
    }
    lines = [*network, *(f'{name} "{value}";' for name, value in settings.items())]
    (folder / "apt.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {**os.environ, "APT_CONFIG": str(folder / "apt.conf"), "LC_ALL": "C"}
