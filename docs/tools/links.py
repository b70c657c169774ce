"""A hook of MkDocs: links that leave docs/ lead to the repository, or are text while it has no address."""

import re
import tomllib
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Any

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\./[^)\s#]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Rewrite the links of a page."""
    folder = PurePosixPath("docs", page.file.src_uri).parent
    pyproject = Path(config.config_file_path).with_name("pyproject.toml")
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    address = project.get("urls", {}).get("Repository")

    def rewritten(link: re.Match[str]) -> str:
        target = normpath(str(folder / link[2]))
        if target.startswith("docs/"):
            return link[0]
        return f"[{link[1]}]({address}/blob/main/{target})" if address else link[1]

    return _LINK.sub(rewritten, markdown)
