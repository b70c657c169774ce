"""A hook of MkDocs: what a search finds first. Pages that answer questions come before records."""

import json
import re
from pathlib import Path
from typing import Any

BOOSTS = {
    "wrong/": 8.0,
    "start/": 4.0,
    "capturing.md": 4.0,
    "questions.md": 4.0,
    "errors.md": 4.0,
    "guides/": 4.0,
    "drop-in.md": 3.0,
    "frameworks.md": 3.0,
    "reference/promises.md": 0.1,
    "verified/": 0.1,
    "performance/": 0.1,
    "decisions/": 0.1,
}
"""The weights of pages, by the beginning of their paths. All others have 1."""

NAME = 4.0
"""The weight of a public name in the reference, as `accelerator_graph.Graph`."""
SHORT = 80.0
"""The weight of a public name that begins others, such as Graph: a search prefers what is rarer."""
QUESTION, ASKING_PAGE = 80.0, 20.0
"""The weights of headings and of pages that are questions: a search takes short words for beginnings."""
_NAME = re.compile(r"reference/[^#]*#accelerator_graph\.\w+")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Give a page its weight."""
    path = page.file.src_uri
    boost = next((weight for start, weight in BOOSTS.items() if path.startswith(start)), 1.0)
    page.meta.setdefault("search", {"boost": boost})
    return markdown


def on_post_build(config: Any, **_: Any) -> None:
    """Give the names of the reference, and questions, their weight in the index."""
    path = Path(config.site_dir, "search", "search_index.json")
    index = json.loads(path.read_text(encoding="utf-8"))
    public = [section for section in index["docs"] if _NAME.fullmatch(section["location"])]
    for section in index["docs"]:
        if section["title"].endswith("?"):
            section["boost"] = QUESTION if "#" in section["location"] else ASKING_PAGE
    names = [section["title"].lower() for section in public]
    for section in public:
        begins = sum(name.startswith(section["title"].lower()) for name in names)
        section["boost"] = SHORT if begins > 1 else NAME
    path.write_text(json.dumps(index, separators=(",", ":")), encoding="utf-8")
