"""For the site: links to files outside of docs/ become plain text, since no address of the repository is known.

With `repo_url` in mkdocs.yml they lead there instead.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"(?<!!)\[([^\]\n]+)\]\((\.\./[^)\s]*)\)")


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Called by MkDocs for each page."""
    return without_outside_links(markdown, page.file.src_uri, config.repo_url or "")


def without_outside_links(markdown: str, page: str, repository: str) -> str:
    """The page with its links to files outside of docs/ turned to the repository, or taken away."""

    def turned(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link[2]))
        if path.startswith("docs/"):
            return link[0]
        return f"[{link[1]}]({repository.rstrip('/')}/blob/main/{path})" if repository else link[1]

    return _LINK.sub(turned, markdown)
