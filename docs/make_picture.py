"""Turns what a terminal was sent into a picture: `some command | python docs/make_picture.py TITLE > picture.svg`."""

from __future__ import annotations

import re
import sys
from html import escape

COLORS = {"31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "34": "#79c0ff", "36": "#76e3ea", "2": "#8b949e"}
WIDTH, LINE, LEFT, TOP = 8.43, 18, 18, 52


def spans(line: str) -> str:
    """One line with its colours as SVG text."""
    made, style = [], ""
    for piece in re.split(r"(\x1b\[[0-9;]*m)", line):
        code = re.fullmatch(r"\x1b\[([0-9;]*)m", piece)
        if code is None:
            made.append(f"<tspan{style}>{escape(piece)}</tspan>" if piece else "")
            continue
        parts = code.group(1).split(";")
        color = next((COLORS[part] for part in parts if part in COLORS), "")
        style = (f' fill="{color}"' if color else "") + (' font-weight="bold"' if "1" in parts else "")
    return "".join(made)


def picture(title: str, text: str) -> str:
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in text.rstrip("\n").split("\n")]
    wide = max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in lines)
    width, height = int(wide * WIDTH + 2 * LEFT), TOP + LINE * len(lines) + 10
    rows = "\n".join(
        f'<text x="{LEFT}" y="{TOP + LINE * number}" xml:space="preserve">{spans(line)}</text>'
        for number, line in enumerate(lines)
    )
    dots = "".join(f'<circle cx="{18 + 18 * n}" cy="18" r="5" fill="#484f58"/>' for n in range(3))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">\n'
        f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>\n{dots}\n'
        f'<text x="{width / 2}" y="22" text-anchor="middle" fill="#8b949e" font-family="sans-serif" font-size="13">'
        f"{escape(title)}</text>\n"
        '<g fill="#e6edf3" font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace" '
        f'font-size="14">\n{rows}\n</g>\n</svg>\n'
    )


if __name__ == "__main__":
    sys.stdout.write(picture(sys.argv[1], sys.stdin.read()))
