"""Writes docs/verdicts.md, the real verdicts that the pages show, on one page: `make docs`."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parent
PAGE = DOCS / "verdicts.md"
PAGES = (
    "jobs/it-was-killed.md", "jobs/it-leaks.md", "jobs/it-hangs.md", "jobs/it-is-slow.md", "jobs/nan.md",
    "jobs/after-the-fact.md", "tour.md",
)  # fmt: skip
# An indented block that begins as a verdict does.
_BLOCK = re.compile(r"^    [✗✓] .*\n(?:(?: {4}.*)?\n)+", re.MULTILINE)

TOP = """# Real verdicts

What Holter said of real runs, each as it stood on the terminal; made from the pages that explain them by `make docs`.
How often it is right, on some 170 small sick and healthy scripts, is on [the scoreboard](scoreboard.md).
"""


def page() -> str:
    """One heading for each page, with its verdicts."""
    parts = [TOP]
    for name in PAGES:
        text = (DOCS / name).read_text()
        blocks = [block for block in _BLOCK.findall(text) if "  Why " in block]
        if blocks:
            title = text.partition("\n")[0].removeprefix("# ")
            parts.append(f"## [{title}]({name})\n")
            parts += ["\n".join(line.rstrip() for line in block.rstrip().split("\n")) + "\n" for block in blocks]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"{PAGE.name}: {PAGE.stat().st_size:,} bytes")
