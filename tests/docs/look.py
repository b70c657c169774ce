"""Open the pages of the built site in a browser: python tests/docs/look.py [SCREENSHOTS [PAGE ...]]

Needs playwright and a Chromium (`chromium` on the path), and `python3 dev.py docs` to have run. Each page is
opened in light and dark, wide and as narrow as a telephone. The status is 1 if a page logs an error, lacks a
file, asks another host for one, or is wider than the window. The pages are drawn into the folder SCREENSHOTS.
"""

from __future__ import annotations

import functools
import http.server
import shutil
import sys
import threading
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

SITE = Path(__file__).resolve().parents[2] / "site"
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
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
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
        browser.close()
    server.shutdown()
    print(*wrong, f"{len(pages)} pages, {len(wrong)} findings", sep="\n")
    return 1 if wrong or not pages else 0


def watched(view: Page, address: str) -> list[str]:
    """Return a list to which is added what a page logs as an error, lacks, or asks of another host."""
    found: list[str] = []
    ours = (address, "data:", "blob:")
    view.on("console", lambda each: each.type in ("error", "warning") and found.append(each.text))
    view.on("pageerror", lambda error: found.append(str(error)))
    view.on("request", lambda each: each.url.startswith(ours) or found.append(f"asks for {each.url}"))
    view.on("response", lambda each: each.status >= 400 and found.append(f"{each.status} for {each.url}"))
    return found


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
