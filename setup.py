"""What pyproject.toml can't say: how the C extension is built, and where README's links lead to.

The variable ACCELERATOR_GRAPH_EXTENSION decides about the extension: `always` makes a failure to build it an
error, `never` makes a wheel for every system, `py3-none-any`. Without the variable it is built if it can be.
"""

import os
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

ROOT = Path(__file__).resolve().parent
SWITCH = "ACCELERATOR_GRAPH_EXTENSION"
CHOICE = os.environ.get(SWITCH, "")
WITHOUT = (
    "accelerator_graph: the C extension was not built ({}). Everything works without it; replays take "
    "longer. To get it, install a C compiler and Python's headers, and then the library again."
)
REQUIRED = (
    f"accelerator_graph: the C extension can't be built ({{}}), and {SWITCH} is 'always'. Install a C "
    "compiler and Python's headers, or unset the variable."
)

if CHOICE not in ("", "always", "never"):
    sys.exit(f"{SWITCH} must be 'always' or 'never', or not be set, not {CHOICE!r}.")


class BuildExtension(build_ext):
    """Build the extension, or say that it is missing."""

    def build_extension(self, extension: Extension) -> None:
        """Build it; if that fails, say so and go on without, unless it is required."""
        try:
            super().build_extension(extension)
        except (BaseError, CCompilerError) as error:
            if CHOICE == "always":
                print(REQUIRED.format(error), file=sys.stderr)
                raise
            Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)  # of an earlier build
            self.distribution.ext_modules = []
            print(WITHOUT.format(error), file=sys.stderr)


class Wheel(bdist_wheel):
    """A wheel whose name says what it contains, even if the extension could not be built."""

    def run(self) -> None:
        """Build first, then decide whether this wheel is for every system."""
        self.run_command("build")
        self.root_is_pure = not self.distribution.has_ext_modules()
        super().run()


def readme(project: dict[str, Any]) -> str:
    """Return README, with links that work on an index page once the repository has an address."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    address = project.get("urls", {}).get("Repository")

    def absolute(link: re.Match[str]) -> str:
        path = link[1].partition("#")[0]
        if not path or not (ROOT / path).exists():
            return link[0]  # an address, a place on the same page, or code
        view = "raw" if path.endswith((".svg", ".png")) else "blob"
        return f"]({address}/{view}/v{project['version']}/{link[1]})"

    return re.sub(r"\]\(([^()\s]+)\)", absolute, text) if address else text


fast = Path("accelerator_graph", "_core", "fast")  # relative, as setuptools requires
extension = Extension(
    "accelerator_graph._core._fast",
    sources=[(fast / "_fast.c").as_posix()],
    depends=[(fast / path.name).as_posix() for path in sorted((ROOT / fast).glob("*.h"))],
    extra_compile_args=["-O2"],
    optional=CHOICE != "always",
)

setup(
    ext_modules=[] if CHOICE == "never" else [extension],
    cmdclass={"build_ext": BuildExtension, "bdist_wheel": Wheel},
    long_description=readme(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]),
    long_description_content_type="text/markdown",
)
