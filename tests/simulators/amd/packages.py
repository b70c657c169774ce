"""AMD's HIP runtime as Debian packages: found, verified and downloaded by apt, unpacked, never installed."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

CACHE = Path(__file__).resolve().parent / "__pycache__"
MIRROR = "ACCELERATOR_GRAPH_DEBIAN_MIRROR"
"""Names a mirror of Debian, for a machine whose apt knows none."""

KEYRINGS = [Path(f"/usr/share/keyrings/debian-archive-keyring.{ending}") for ending in ("pgp", "gpg")]
HELPER = "/usr/lib/apt/apt-helper"
TOOLS = ("apt-get", "apt-config", "dpkg-deb", HELPER)
HEADERS = "libhsa-runtime-dev"
TIMEOUT = 900


class Release(NamedTuple):
    """Where Debian has a version of the runtime."""

    suites: tuple[str, ...]
    """The first has the runtime; what it needs may come from the others."""
    runtime: str
    others: tuple[str, ...]


RELEASES = {
    "7.2": Release(("experimental", "sid"), "libamdhip64-7", ("libhiprtc7", "libhiprtc-builtins7")),
    "6.4": Release(("sid",), "libamdhip64-6", ("libhiprtc-builtins6",)),
}


def release_of(version: str) -> Release:
    if version not in RELEASES:
        raise ValueError(f"there is no version {version!r} of AMD's runtime here, but {', '.join(RELEASES)}.")
    return RELEASES[version]


def fetch(version: str) -> Path:
    """Return a folder with the files of AMD's runtime and of all that it needs, down to the C library.

    Downloaded once, some 70 MB, and then kept. Packages are accepted only if Debian has signed for them.

    Parameters
    ----------
    version : str
        One of `RELEASES`.

    Raises
    ------
    RuntimeError
        Debian no longer has this version, or apt can't get it.
    """
    release = release_of(version)
    root = _root(version)
    with locked(root):
        if not root.exists():
            with unfinished_for(root) as unfinished, tempfile.TemporaryDirectory(dir=CACHE) as apt:
                packages = _download(version, release, Path(apt))
                for package in packages:
                    _run("dpkg-deb", "--extract", str(package), str(unfinished))
                names = "".join(f"{package.name}\n" for package in packages)
                (unfinished / "packages").write_text(names, encoding="utf-8")
    return root


def unpack(version: str, names: tuple[str, ...], target: Path) -> None:
    """Unpack more packages of the suite that has this version, without what they depend on.

    Raises
    ------
    RuntimeError
        Debian no longer has one of them, or apt can't get it.
    """
    release = release_of(version)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        apt = _private_apt(release, Path(folder))
        _run("apt-get", "update", env=apt)
        _run("apt-get", "-t", release.suites[0], "download", *names, env=apt, cwd=Path(folder))
        for package in Path(folder).glob("*.deb"):
            _run("dpkg-deb", "--extract", str(package), str(target))


def _root(version: str) -> Path:
    return CACHE / f"amd-{version}"


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
        printed = _run("apt-get", "-o", f"Dir::State={state}", "--print-uris", "update")
    known = sorted(set(re.findall(r"^'(\S+)/dists/", printed, re.MULTILINE)))
    for uri in known:
        if uri.rpartition("/")[2] in ("debian", "debian.list"):  # the latter is a list of mirrors
            return uri
    raise RuntimeError(
        f"apt knows no mirror of Debian here, only {', '.join(known) or 'nothing at all'}; "
        f"name one in the environment variable {MIRROR}."
    )


@contextmanager
def locked(target: Path):
    """Keep other processes from making the same thing meanwhile."""
    import fcntl

    CACHE.mkdir(exist_ok=True)
    with open(target.with_name(f"{target.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def unfinished_for(target: Path):
    """Give a folder that becomes `target` if all goes well, and vanishes if not."""
    with tempfile.TemporaryDirectory(dir=CACHE) as parent:
        unfinished = Path(parent) / "unfinished"
        unfinished.mkdir()
        yield unfinished
        unfinished.rename(target)


def digest(*facts: str) -> str:
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:16]


def _download(version: str, release: Release, folder: Path) -> list[Path]:
    suite, name = release.suites[0], release.runtime
    apt = _private_apt(release, folder)
    _run("apt-get", "update", env=apt)
    wanted = (name, *release.others, HEADERS)
    try:
        _run("apt-get", "-t", suite, "--yes", "--download-only", "install", *wanted, env=apt)
    except RuntimeError as error:
        unknown = r"Unable to locate package (\S+)|Package '?([\w.+-]+)'? has no installation candidate"
        if gone := ["".join(names) for names in re.findall(unknown, str(error))]:
            raise RuntimeError(
                f"Debian's suite {suite} no longer has {', '.join(gone)}; look where AMD's HIP runtime "
                f"{version} is now and correct RELEASES in {Path(__file__).name}, or drop this version."
            ) from error
        raise
    packages = sorted((folder / "archives").glob("*.deb"))
    (found,) = (package.name.split("_")[1] for package in packages if package.name.startswith(f"{name}_"))
    if not found.startswith(f"{version}."):
        raise RuntimeError(
            f"Debian's suite {suite} no longer has {name} in version {version}, but in {found}; "
            f"correct RELEASES in {Path(__file__).name}, or drop this version."
        )
    return packages


def _private_apt(release: Release, folder: Path) -> dict[str, str]:
    """Return the environment of an apt that shares with the system's only how it reaches the network."""
    (folder / "lists" / "partial").mkdir(parents=True)
    (folder / "archives" / "partial").mkdir(parents=True)
    (folder / "status").touch()
    keyring = next(path for path in KEYRINGS if path.exists())
    origin = f"[arch=amd64 signed-by={keyring}] {mirror()}"
    sources = "".join(f"deb {origin} {suite} main\n" for suite in release.suites)
    (folder / "sources.list").write_text(sources, encoding="utf-8")
    ways = r"^Acquire::(?:https?|Retries|Force|Check)\S*[^:] .*$"  # never what would allow insecure ones
    network = re.findall(ways, _run("apt-config", "dump"), re.MULTILINE)
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


def lacking(version: str) -> str:
    """Say in a clause why a version can't be had here; nothing, if it can or is here already."""
    if _root(version).exists():
        return ""
    for tool in TOOLS:
        if shutil.which(tool) is None:
            return f"AMD's runtime comes as Debian packages, and there is no {tool}"
    if not any(path.exists() for path in KEYRINGS):
        return "AMD's runtime comes as Debian packages, and debian-archive-keyring is not installed"
    try:
        origin = mirror()
    except RuntimeError as error:
        return str(error).rstrip(".")
    release = f"{origin}/dists/{release_of(version).suites[0]}/InRelease"
    with tempfile.TemporaryDirectory() as folder:
        try:
            _run(HELPER, "download-file", release, f"{folder}/InRelease", timeout=60)
        except RuntimeError:
            return f"apt can't reach {release}"
    return ""


def _run(
    *command: str, env: dict[str, str] | None = None, cwd: Path | None = None, timeout: float = TIMEOUT
) -> str:
    try:
        done = subprocess.run(
            command,
            env=env,
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{shlex.join(command)} has not ended in {timeout:.0f} seconds.") from None
    if done.returncode:
        said = "\n".join(filter(None, [done.stdout.strip()[-2000:], done.stderr.strip()[-4000:]]))
        raise RuntimeError(f"{shlex.join(command)} fails:\n{said}")
    return done.stdout
