"""A hook of MkDocs: pages that answer questions come before records in the results of a search."""

from typing import Any

BOOSTS = {
    "wrong/": 8.0,
    "start/": 4.0,
    "capturing.md": 4.0,
    "questions.md": 4.0,
    "errors.md": 4.0,
    "guides/": 3.0,
    "drop-in.md": 3.0,
    "frameworks.md": 3.0,
    "verified/": 0.1,
    "performance/": 0.1,
    "decisions/": 0.1,
}
"""The weights of pages, by the beginning of their paths. All others have 1."""


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Give a page its weight."""
    path = page.file.src_uri
    boost = next((weight for start, weight in BOOSTS.items() if path.startswith(start)), 1.0)
    page.meta.setdefault("search", {"boost": boost})
    return markdown
