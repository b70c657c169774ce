"""A hook of MkDocs: links that leave docs/ lead to the repository, or are text while it has no address."""

import re
from pathlib import PurePosixPath
from posixpath import normpath
from typing import Any

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((\.\./[^)\s#]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Rewrite the links of a page."""
    folder = PurePosixPath("docs", page.file.src_uri).parent

    def rewritten(link: re.Match[str]) -> str:
        target = normpath(str(folder / link[2]))
        if target.startswith("docs/"):
            return link[0]
        return (
            f"[{link[1]}]({config.repo_url.rstrip('/')}/blob/main/{target})" if config.repo_url else link[1]
        )

    return _LINK.sub(rewritten, markdown)
