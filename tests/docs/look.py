"""Open the pages of the built site in a browser: python tests/docs/look.py [SCREENSHOTS [PAGE ...]]

Needs playwright and a Chromium on the path, and `python3 dev.py docs` to have run. Each page is
opened in light and dark, wide and as narrow as a telephone. The status is 1 if a page logs an error, lacks a
file, asks another host for one, or is wider than the window, or if a search finds the wrong page first. The
pages are drawn into the folder SCREENSHOTS.
"""

from __future__ import annotations

import functools
import http.server
import re
import sys
import threading
from pathlib import Path
from urllib.parse import quote

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))

from browser import launched, watched

SITE = TESTS.parent / "site"
SEARCHES = {
    "Graph": "reference/graph/#accelerator_graph.Graph",
    "label": "reference/descriptions/#accelerator_graph.label",
    "how do I capture in my library": "guides/vendor-neutral-library/#the-library",
    "what is a pool": "capturing/#pools",
    "do I need this library": "start/need/",
}
"""What users type into the search, and what they are to find first."""
FIRST = ".md-search-result__item a"
WIDTHS = {"wide": 1280, "narrow": 400}
TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


class Server(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def main(folder: str = "", *chosen: str) -> int:
    handler = functools.partial(Server, directory=str(SITE))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/"
    pages = sorted(path.parent.relative_to(SITE).as_posix() for path in SITE.rglob("index.html"))
    pages = [page for page in pages if not chosen or page in chosen]
    wrong = []
    with launched() as browser:
        view = browser.new_page()
        for words, wanted in SEARCHES.items():
            view.goto(f"{address}?q={quote(words)}")
            view.wait_for_selector(FIRST, state="attached")
            view.wait_for_timeout(500)  # it sorts as it goes
            links = view.evaluate(f"[...document.querySelectorAll('{FIRST}')].slice(0, 2).map((a) => a.href)")
            if not any(wanted in re.sub(r"\?h=[^#]*", "", link) for link in links):
                wrong.append(f"a search for {words!r} finds {links[0]} first, not {wanted}")
        view.close()
        for width, pixels in WIDTHS.items():
            for scheme in ("light", "dark"):
                view = browser.new_page(viewport={"width": pixels, "height": 900}, color_scheme=scheme)
                found = watched(view, address)
                for page in pages:
                    view.goto(f"{address}{page}/", wait_until="load")
                    if (beyond := view.evaluate(TOO_WIDE)) > 0:
                        found.append(f"{beyond} pixels wider than the window")
                    if folder:
                        name = f"{'home' if page == '.' else page.replace('/', '-')}-{width}-{scheme}.png"
                        view.screenshot(path=Path(folder, name), full_page=True)
                    wrong += [f"{page} ({width}, {scheme}): {what}" for what in found]
                    found.clear()
                view.close()
    server.shutdown()
    print(*wrong, f"{len(pages)} pages, {len(wrong)} findings", sep="\n")
    return 1 if wrong or not pages else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
