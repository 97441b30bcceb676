"""`# holter: ignore` comments: on a line, or for the whole file."""

from __future__ import annotations

import io
import re
import tokenize
from dataclasses import dataclass, field

_COMMENT = re.compile(r"#\s*holter:\s*(ignore-file|ignore)(?:\[([^\]]*)\])?", re.I)


@dataclass
class Ignores:
    """Which codes are not wanted, by line (0: the whole file); an empty set means all of them."""

    lines: dict[int, set[str]] = field(default_factory=dict)

    def cover(self, code: str, name: str, first: int, last: int) -> bool:
        """Whether a finding is ignored by a comment on any line of its statement, or for the file."""
        for line in (0, *range(first, last + 1)):
            codes = self.lines.get(line)
            if codes is not None and (not codes or matches(code, name, codes)):
                return True
        return False


def matches(code: str, name: str, selectors: set[str] | frozenset[str]) -> bool:
    """Whether a code, the beginning of one, a name, or ALL is among some selectors."""
    return any(one == "ALL" or one.lower() == name or code.startswith(one.upper()) for one in selectors)


def ignores_in(text: str) -> Ignores:
    """Find the comments of a file; a string that looks like one is none."""
    found = Ignores()
    if "holter:" not in text.lower():
        return found
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError, IndentationError):
        return found
    for token in tokens:
        if token.type != tokenize.COMMENT:
            continue
        match = _COMMENT.search(token.string)
        if match is None:
            continue
        line = 0 if match[1].lower() == "ignore-file" else token.start[0]
        codes = {one.strip() for one in (match[2] or "").split(",") if one.strip()}
        kept = found.lines.get(line)
        found.lines[line] = codes if kept is None else (set() if not kept or not codes else kept | codes)
    return found
