"""AMD's HIP runtime as Debian packages: which ones, and where they are unpacked."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from .. import debian

CACHE = Path(__file__).resolve().parent / "__pycache__"
HEADERS = "libhsa-runtime-dev"


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

    Downloaded once, some 70 MB, and then kept.

    Parameters
    ----------
    version : str
        One of `RELEASES`.

    Raises
    ------
    RuntimeError
        Debian no longer has this version, or apt can't get it.
    """
    root = _root(version)
    with debian.locked(root):
        if not root.exists():
            with debian.unfinished_for(root) as unfinished:
                packages = _unpack(version, unfinished)
                names = "".join(f"{package}\n" for package in packages)
                (unfinished / "packages").write_text(names, encoding="utf-8")
    return root


def unpack(version: str, names: tuple[str, ...], target: Path) -> None:
    """Unpack more packages of the suite that has this version, without what they depend on.

    Raises
    ------
    RuntimeError
        Debian no longer has one of them, or apt can't get it.
    """
    debian.unpack(target, release_of(version).suites, names, alone=True)


def lacking(version: str) -> str:
    """Say in a clause why a version can't be had here; nothing, if it can or is here already."""
    if _root(version).exists():
        return ""
    return debian.lacking(release_of(version).suites[0], "AMD's runtime")


def _root(version: str) -> Path:
    return CACHE / f"amd-{version}"


def _unpack(version: str, folder: Path) -> list[str]:
    release = release_of(version)
    suite, name = release.suites[0], release.runtime
    try:
        packages = debian.unpack(folder, release.suites, (name, *release.others, HEADERS))
    except debian.Gone as error:
        raise RuntimeError(
            f"{error}; look where AMD's HIP runtime {version} is now and correct RELEASES in "
            f"{Path(__file__).name}, or drop this version."
        ) from error
    (found,) = (package.split("_")[1] for package in packages if package.startswith(f"{name}_"))
    if not found.startswith(f"{version}."):
        raise RuntimeError(
            f"Debian's suite {suite} no longer has {name} in version {version}, but in {found}; "
            f"correct RELEASES in {Path(__file__).name}, or drop this version."
        )
    return packages
