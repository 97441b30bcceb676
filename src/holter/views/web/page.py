"""The pages as bytes: served in chunks, or as one file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib.resources import files
from typing import Any

_LIBRARY = ("uPlot.iife.min.js", "uPlot.min.css")
_ONLY_SERVED = ("main.js", "runs.js", "compare.js", "server.js", "labels.js", "dialog.js")
_TYPES = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}
_HEAD = (
    '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    '<meta name="referrer" content="no-referrer">\n'
)


@cache
def page_files() -> dict[str, bytes]:
    """Every file of the pages by its name; the chart library's are absent where the build could not have it."""
    here = files("holter.views.web")
    own = [entry for entry in (here / "page").iterdir() if entry.name.endswith(tuple(_TYPES))]
    found = {entry.name: entry.read_bytes() for entry in own}
    for name in _LIBRARY:
        file = here / "uplot" / name
        if file.is_file():
            # Wherever a copy goes, a saved report too, its licence goes along.
            licence = b"/*! uPlot\n" + (here / "uplot" / "LICENSE").read_bytes() + b"*/\n"
            found[name] = licence + file.read_bytes()
    return found


def has_charts() -> bool:
    return all(name in page_files() for name in _LIBRARY)


def content_type(name: str) -> str:
    return _TYPES[name.rpartition(".")[2]]


_IMPORTS = '{"imports": {"holter/": "/page/"}}'


@cache
def served_page() -> bytes:
    """The one page of the server; what it shows is by its address."""
    library = [name for name in _LIBRARY if name in page_files()]
    sheets = [*(name for name in library if name.endswith(".css")), "style.css"]
    links = "".join(f'<link rel="stylesheet" href="/page/{name}">\n' for name in sheets)
    chart = "".join(f'<script src="/page/{name}"></script>\n' for name in library if name.endswith(".js"))
    return (
        f'{_HEAD}<title>Holter</title>\n<link rel="icon" href="data:,">\n{links}'
        f'<script type="importmap">{_IMPORTS}</script>\n{chart}'
        '<script type="module" src="/page/main.js"></script>\n</head>\n<body></body>\n</html>\n'
    ).encode()


def policy() -> str:
    """What the served page may do: load its own parts and talk to its own server, nothing else."""
    return (
        f"default-src 'none'; script-src 'self' '{_hash(_IMPORTS)}'; style-src 'self'; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def report_page(document: dict[str, Any]) -> bytes:
    """One run in one file: the same code and the same charts, and no way to the network."""
    found = page_files()
    others = (*_LIBRARY, *_ONLY_SERVED)
    modules = {name: found[name] for name in sorted(found) if name.endswith(".js") and name not in others}
    imports = json.dumps({"imports": {f"holter/{name}": _as_data(raw) for name, raw in modules.items()}})
    start = 'import "holter/report.js";'
    chart = found.get("uPlot.iife.min.js", b"").decode()
    styles = b"\n".join(found[name] for name in ("uPlot.min.css", "style.css") if name in found).decode()
    scripts = " ".join(f"'{_hash(text)}'" for text in (imports, start, chart) if text)
    rules = (
        f"default-src 'none'; script-src {scripts} data:; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    title = _text(f"{document['run']['id']} · Holter")
    return (
        f'{_HEAD}<meta http-equiv="Content-Security-Policy" content="{rules}">\n<title>{title}</title>\n'
        f'<link rel="icon" href="data:,">\n<style>{styles}</style>\n<script type="importmap">{imports}</script>\n'
        + (f"<script>{chart}</script>\n" if chart else "")
        + f'</head>\n<body>\n<script type="application/json" id="document">{_inert(document)}</script>\n'
        f'<script type="module">{start}</script>\n</body>\n</html>\n'
    ).encode()


def _inert(document: dict[str, Any]) -> str:
    """JSON in which no text can end the element it stands in."""
    text = json.dumps(document, separators=(",", ":"), default=str, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _text(words: str) -> str:
    return words.replace("&", "&amp;").replace("<", "&lt;")


def _as_data(raw: bytes) -> str:
    return "data:text/javascript;base64," + base64.b64encode(raw).decode()


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
