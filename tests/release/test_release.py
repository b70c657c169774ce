"""The distributions: what they contain, what a failed build says, and what a release still lacks."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Callable
from email.parser import Parser
from pathlib import Path

import pytest

from lanes import require
from processes import execute
from release.ready import PLUGINS, missing, project

pytestmark = require("cpu")

ROOT = Path(__file__).resolve().parents[2]
SWITCH = "ACCELERATOR_GRAPH_EXTENSION"
PAGE = "accelerator_graph/inspection/page"
NO_COMPILER = {"CC": "/nowhere/cc", "LDSHARED": "/nowhere/cc -shared", SWITCH: ""}
Build = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, unpacked."""
    return sdist_of(ROOT, tmp_path_factory.mktemp("sdist"))


def sdist_of(project: Path, folder: Path) -> Path:
    """Make an sdist and unpack it; from a copy, so that the build leaves nothing in the checkout."""
    left_out = shutil.ignore_patterns(
        ".git", ".venv*", "__pycache__", "build", "site", "*.so", "*.pyd", ".*_cache"
    )
    shutil.copytree(project, folder / "checkout", ignore=left_out, ignore_dangling_symlinks=True)
    done = setup(folder / "checkout", "sdist", "--dist-dir", folder, CMPLR_ROOT="nothing is compiled")
    assert done.returncode == 0, done.stderr
    [archive] = folder.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(folder / "unpacked", filter="data")
    [unpacked] = (folder / "unpacked").iterdir()
    return unpacked


def empty_environment(folder: Path) -> tuple[Path, Path, Path]:
    """Make a virtual environment; return its folder, its Python, and where packages go."""
    environment = folder / "environment"
    venv.create(environment, with_pip=False)
    python = environment / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    [site] = environment.glob("**/site-packages")
    return environment, python, site


def setup(checkout: Path, *command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command of setuptools, as a build frontend does."""
    code = (
        "import os, runpy, setuptools; from setuptools import build_meta\n"
        "runpy.run_path('setup.py') if os.path.exists('setup.py') else setuptools.setup()"
    )
    return execute(
        [sys.executable, "-W", "ignore", "-c", code, *command],
        cwd=checkout,
        env={**os.environ, **variables},
        timeout=300,
    )


def wheel(checkout: Path, folder: Path, **variables: str) -> tuple[Path, str]:
    """Build a wheel; return it, and what the build said."""
    done = setup(checkout, "bdist_wheel", "--dist-dir", folder, **variables)
    assert done.returncode == 0, done.stderr
    [built] = folder.glob("*.whl")
    return built, done.stderr


def tracked() -> set[str]:
    """Return the files of the repository; of an unpacked sdist, none."""
    if not (ROOT / ".git").exists():
        return set()
    done = execute(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return {name for name in done.stdout.splitlines() if (ROOT / name).is_file()}


# ---- what they contain ---------------------------------------------------------------------------


@pytest.mark.needs("rest")
def test_the_sdist_is_the_repository(sdist: Path) -> None:
    there = {path.relative_to(sdist).as_posix() for path in sdist.rglob("*") if path.is_file()}
    there = {name for name in there if ".egg-info/" not in name} - {"PKG-INFO", "setup.cfg"}
    assert {"LICENSE", "CHANGELOG.md", "dev.py", "tests/lanes.py", "docs/errors.md"} <= there
    if files := tracked():
        assert there == files


@pytest.mark.needs("rest")
@pytest.mark.parametrize("choice", ["always", "never"])
def test_a_wheel_has_what_is_installed_and_no_sources(choice: str, sdist: Path, tmp_path: Path) -> None:
    built, said = wheel(sdist, tmp_path, **{SWITCH: choice})
    with zipfile.ZipFile(built) as opened:
        names = opened.namelist()
        texts = {
            name.rpartition("/")[2]: opened.read(name).decode() for name in names if ".dist-info/" in name
        }
    suffixes = {Path(name).suffix for name in names if ".dist-info/" not in name}
    compiled = {".so", ".pyd"} & suffixes
    assert suffixes - compiled == {".py", ".pyi", ".typed", ".css", ".html", ".js", ".txt"}
    assert (len(compiled) == 1) == (choice == "always")
    assert built.name.endswith("-py3-none-any.whl") == (choice == "never")
    assert texts["WHEEL"].count("Root-Is-Purelib: true") == (choice == "never")
    assert {"accelerator_graph/py.typed", "accelerator_graph/_core/_fast.pyi"} <= set(names)
    page = {path.relative_to(ROOT).as_posix() for path in (ROOT / PAGE).iterdir() if path.is_file()}
    assert page - set(names) == {f"{PAGE}/README.md"}
    modules = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("accelerator_graph/**/*.py")}
    assert modules == {name for name in names if name.endswith(".py")}
    assert texts["LICENSE"] == (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert_metadata(texts)
    assert "was not built" not in said


def assert_metadata(texts: dict[str, str]) -> None:
    """Check the metadata of the library's wheel against pyproject.toml."""
    wanted, metadata = project(ROOT), Parser().parsestr(texts["METADATA"])
    assert metadata["Version"] == wanted["version"]
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "## " in metadata.get_payload()
    assert [line for line in metadata.get_all("Requires-Dist", []) if "extra" not in line] == []
    scripts = configparser.ConfigParser()
    scripts.read_string(texts.get("entry_points.txt", ""))
    found = dict(scripts["console_scripts"]) if scripts.has_section("console_scripts") else {}
    assert found == wanted.get("scripts", {})


# ---- the plug-ins --------------------------------------------------------------------------------

FOUND = """
import sys
from importlib.metadata import distribution, entry_points
import accelerator_graph as ag
name, = sys.argv[1:]
for group in ("backends", "conformance", "demo"):
    entry, = entry_points(group=f"accelerator_graph.{group}", name=name)
    assert entry.dist.name == f"accelerator-graph-{name}", entry.dist.name
assert name in ag.backends.names()
report, = (each for each in ag.backends.report() if each.name == name)
assert report.loaded and not report.usable, report
print(report.reason)
"""


@pytest.mark.parametrize("plugin", PLUGINS)
def test_the_sdist_of_a_plug_in_has_all_its_files(plugin: str, tmp_path: Path) -> None:
    unpacked = sdist_of(ROOT / "plugins" / plugin, tmp_path)
    there = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()}
    folder = f"plugins/{plugin}/"
    own = {name.removeprefix(folder) for name in tracked() if name.startswith(folder)}
    assert own - there == set()
    assert {"pyproject.toml", "README.md", "LICENSE", "tests/conftest.py"} <= there


@pytest.mark.needs("rest")
def test_a_plug_in_is_found_where_its_wheel_is_installed(sdist: Path, tmp_path: Path) -> None:
    plugin = "accelerator-graph-opencl"  # the other one is compiled with Intel's runtime
    environment, python, site = empty_environment(tmp_path)
    library, _ = wheel(sdist, tmp_path / "library", **{SWITCH: "never"})
    built, _ = wheel(sdist_of(ROOT / "plugins" / plugin, tmp_path / "sources"), tmp_path / "plug-in")
    for each in (library, built):
        with zipfile.ZipFile(each) as opened:
            opened.extractall(site)
    elsewhere = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = execute([python, "-c", FOUND, "opencl"], env=elsewhere, cwd=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("pyopencl is not installed")


# ---- without a compiler --------------------------------------------------------------------------


@pytest.mark.promise("building-the-extension")
@pytest.mark.needs("rest")
def test_without_a_compiler_the_build_says_so_and_makes_a_pure_wheel(sdist: Path, tmp_path: Path) -> None:
    assert setup(sdist, "build", **{SWITCH: "always"}).returncode == 0  # leaves an extension behind
    (sdist / "accelerator_graph/_core/fast/_fast.c").touch()
    built, said = wheel(sdist, tmp_path, **NO_COMPILER)
    assert built.name.endswith("-py3-none-any.whl")
    [line] = [line for line in said.splitlines() if "was not built" in line]
    assert re.match(
        r"accelerator_graph: the C extension was not built \(.*/nowhere/cc.*\)\. Everything works", line
    )
    assert "install a C compiler" in line
    _, python, site = empty_environment(tmp_path)
    with zipfile.ZipFile(built) as opened:
        opened.extractall(site)
    elsewhere = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    script = ROOT / "tests/release/installed.py"
    done = execute([python, script, "--pure"], env=elsewhere, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.promise("building-the-extension")
@pytest.mark.needs("rest")
def test_a_required_extension_that_fails_fails_the_build(sdist: Path, tmp_path: Path) -> None:
    (sdist / "accelerator_graph/_core/fast/_fast.c").touch()
    done = setup(sdist, "bdist_wheel", "--dist-dir", tmp_path, **{**NO_COMPILER, SWITCH: "always"})
    assert done.returncode != 0
    said = (
        r"the C extension can't be built \(.*/nowhere/cc.*\), and ACCELERATOR_GRAPH_EXTENSION is 'always'\."
    )
    assert re.search(said, done.stderr)
    assert "error: " in done.stderr  # of the compiler
    assert list(tmp_path.glob("*.whl")) == []


def test_a_wrong_choice_is_refused() -> None:
    done = setup(ROOT, "--version", **{SWITCH: "yes"})
    assert done.returncode == 1
    assert done.stderr == f"{SWITCH} must be 'always' or 'never', or not be set, not 'yes'.\n"


# ---- before a release ----------------------------------------------------------------------------

ADDRESS = "https://host.example/accelerator_graph"


@pytest.fixture
def releasable(tmp_path: Path) -> Path:
    """A checkout from which nothing is missing."""
    version = project(ROOT)["version"]
    for name in (".", *(f"plugins/{plugin}" for plugin in PLUGINS)):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
        text = (ROOT / name / "pyproject.toml").read_text(encoding="utf-8")
        text = re.sub(r"(?ms)^\[project\.urls\].*?\n(?=\[)", "", text)
        text += f'\n[project.urls]\nRepository = "{ADDRESS}"\n'
        (tmp_path / name / "pyproject.toml").write_text(text, encoding="utf-8")
    for name in ("setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## {version} (2030-01-02)\n", encoding="utf-8")
    (tmp_path / "CITATION.cff").write_text(
        f'version: {version}\nrepository-code: "{ADDRESS}"\ndate-released: 2030-01-02\n', encoding="utf-8"
    )
    (tmp_path / "accelerator_graph").mkdir()
    (tmp_path / "accelerator_graph/__init__.py").write_text(f'__version__ = "{version}"\n', encoding="utf-8")
    return tmp_path


def test_nothing_is_missing(releasable: Path) -> None:
    assert list(missing(releasable, f"v{project(ROOT)['version']}")) == []


@pytest.mark.parametrize(
    ("file", "before", "after", "sentence"),
    [
        ("pyproject.toml", ADDRESS, "", "has no address of the repository"),
        (f"plugins/{PLUGINS[1]}/pyproject.toml", ADDRESS, "https://host.example/x", "the same `Repository`"),
        ("CITATION.cff", ADDRESS, "", "`repository-code: "),
        ("CITATION.cff", "2030", "2031", "`date-released: 2030-01-02`"),
        ("CITATION.cff", "version: ", "version: 9", "`version: "),
        ("CHANGELOG.md", "2030-01-02", "unreleased", "CHANGELOG.md must have the heading"),
        ("accelerator_graph/__init__.py", '"', '"9', "__init__.py must have the version"),
    ],
)
def test_what_is_missing_is_said(releasable: Path, file: str, before: str, after: str, sentence: str) -> None:
    path = releasable / file
    path.write_text(path.read_text(encoding="utf-8").replace(before, after), encoding="utf-8")
    assert any(sentence in each for each in missing(releasable))


def test_a_wrong_tag_is_said(releasable: Path) -> None:
    [sentence] = missing(releasable, "v0.0")
    assert sentence.startswith("the tag must be v")


def test_links_of_an_index_page_are_absolute(releasable: Path) -> None:
    (releasable / "README.md").write_text(
        "[a](LICENSE#top) ![b](drawing.svg) [c](https://x.example) [d](#e) `x[0](y)`\n", encoding="utf-8"
    )
    (releasable / "drawing.svg").touch()
    done = setup(releasable, "--long-description")
    view = f"v{project(ROOT)['version']}"
    assert done.stdout.strip() == (
        f"[a]({ADDRESS}/blob/{view}/LICENSE#top) ![b]({ADDRESS}/raw/{view}/drawing.svg) "
        "[c](https://x.example) [d](#e) `x[0](y)`"
    )
