"""Text for a terminal: safe to print, folded by words, and within what the stream can encode."""

from __future__ import annotations

import os
import re
import textwrap
import unicodedata
from collections.abc import Sequence
from typing import TextIO

KEEPS = {"exact": "keeps the result exactly", "equivalent": "equivalent result", "changed": "changes the result"}
_BARS = "▁▂▃▄▅▆▇█"
_ASCII_BARS = "_.:-=+*#"
_ASCII = str.maketrans(
    {"✓": "ok", "✗": "X", "…": "...", "→": "->", "─": "-", "µ": "u", "±": "+-", "’": "'", "‘": "'", "“": '"', "”": '"'}
    | dict(zip(_BARS, _ASCII_BARS, strict=True))
)
# A number and its unit, and a count with its whole, stay together on a line.
_UNBROKEN = re.compile(
    r"(?<=\d) (?=(?:bytes|[KMGT]B|µs|ms|s|min|h|d|%)(?!\w))|(?<=\bstep) (?=\d)|(?<=\bepoch) (?=\d)|(?<=\bpid) (?=\d)"
)
# Folding knows only ordinary spaces, so this one holds.
_GLUE = "\u00a0"


def clean(words: object) -> str:
    """Make any text harmless on a terminal: no control characters, no marks that turn the line around."""
    text = words if isinstance(words, str) else str(words)
    return "".join(
        " " if ch in "\n\t\r" else "�" if unicodedata.category(ch) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp") else ch
        for ch in text
    )


def sparkline(values: Sequence[float], top: float | None = None) -> str:
    """Draw values as bars between the least of them (or zero) and the top."""
    if not values:
        return ""
    high = max(top or 0.0, *values) if len(values) > 1 or top else values[0]
    low = min(0.0, *values) if len(values) > 1 else 0.0
    span = high - low
    return "".join(_BARS[min(7, int(8 * (value - low) / span)) if span > 0 else 0] for value in values)


def hold(words: str) -> str:
    """Keep words together on one line when they are folded."""
    return words.replace(" ", _GLUE)


def fold(words: str, width: int, first: str = "", rest: str = "") -> list[str]:
    """Fold a text by words, never between a number and its unit; only a word wider than the page is broken."""
    kept = _UNBROKEN.sub(_GLUE, words)
    lines = textwrap.wrap(
        kept,
        max(20, width),
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=True,
        break_on_hyphens=False,
    )
    return [line.replace(_GLUE, " ") for line in lines] or [first.rstrip()]


def kept(keeps: str, how: str) -> str:
    """Say what a cure does to the result; "exactly" only of a change of lines: what words come to is not known."""
    shown = keeps != "exact" or any(line.startswith(("-", "+")) for line in how.splitlines())
    return KEEPS.get(keeps, "") if shown else ""


def encodable(text: str, stream: TextIO) -> str:
    """Give the text as the stream can write it: signs and bars have plain forms, the rest becomes '?'."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
        return text
    except LookupError:
        encoding = "ascii"
    except UnicodeEncodeError:
        pass
    return text.translate(_ASCII).encode(encoding, "replace").decode(encoding)


def wants_color(stream: TextIO, *, may_be_forced: bool = False) -> bool:
    """Tell whether colour is welcome: on a terminal unless NO_COLOR or TERM says no, or where FORCE_COLOR may say yes.

    That is set for whole jobs and notebooks, and what is said beside a training's own output stays plain in a pipe.
    """
    if os.environ.get("NO_COLOR"):
        return False
    if may_be_forced and os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    if os.environ.get("TERM") == "dumb":
        return False
    try:
        return stream.isatty()
    except (AttributeError, ValueError):
        return False


def paint(text: str, style: str, color: bool) -> str:
    """Set a text in a style where colour is on."""
    codes = {"bold": "1", "dim": "2", "good": "32", "bad": "1;31", "wait": "33", "gone": "31"}
    return f"\x1b[{codes[style]}m{text}\x1b[0m" if color and text else text
