"""Looks at every link and picture of the built site: `make site`. What leads nowhere is printed, with exit code 1."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

SITE = Path(__file__).resolve().parents[1] / "build" / "site"


class _Page(HTMLParser):
    """The links of a page, and the names in it that can be linked to."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.names: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
            elif name in ("id", "name") and value:
                self.names.add(value)


def lost_links(site: Path) -> list[str]:
    """Links to files or names of the site that are not there, and every file that another server is asked for."""
    pages = {path: _Page() for path in site.rglob("*.html")}
    for path, page in pages.items():
        page.feed(path.read_text(encoding="utf-8"))
    lost = []
    for path, page in pages.items():
        if path.name == "404.html":
            continue  # it stands at any address, so its links are those of the server's root
        for link in page.links:
            address, name = urldefrag(link)
            if urlsplit(address).scheme:
                continue
            target = (path.parent / unquote(urlsplit(address).path)).resolve() if address else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists() or (name and target in pages and unquote(name) not in pages[target].names):
                lost.append(f"{path.relative_to(site)}: {link}")
    return sorted(set(lost))


if __name__ == "__main__":
    found = lost_links(Path(sys.argv[1]) if len(sys.argv) > 1 else SITE)
    print("\n".join(found) or "every link leads somewhere")
    sys.exit(1 if found else 0)
