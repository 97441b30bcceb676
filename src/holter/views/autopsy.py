"""What an autopsy found, as text: how the run ended, then each opinion with what speaks for and against it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, TextIO

from holter.views.plain import KEEPS, clean, encodable, fold, kept, paint, wants_color

_INDENT = 11
_MARKS = {"completed": ("✓", "good"), "running": ("…", "wait"), "unknown": ("?", "wait")}


def write_autopsy(found: Mapping[str, Any], stream: TextIO, *, width: int = 80) -> None:
    """Write all of it."""
    wide, color = max(40, min(width, 120)), wants_color(stream)
    ending = found["ending"]
    mark, style = _MARKS.get(ending["kind"], ("✗", "bad"))
    claim = clean(ending["claim"])
    head = fold(
        f"{mark} {claim[:1].upper() + claim[1:] if claim.partition(' ')[0].isalpha() else claim}", wide, "", "  "
    )
    lines = [paint(head[0][:1], style, color) + paint(head[0][1:], "bold", color)]
    lines += [paint(line, "bold", color) for line in head[1:]]
    lines += _block("Log", (_evidence(one) for one in ending["evidence"]), wide)
    for number, finding in enumerate(found["findings"]):
        lines += _opinion("Why" if number == 0 else "Or" if finding["grade"] == "hypothesis" else "Also", finding, wide)
    lines += _block("Unseen", (clean(one) for one in found["unseen"]), wide)
    stream.write(encodable("\n".join(lines) + "\n", stream))


def _opinion(label: str, finding: Mapping[str, Any], width: int) -> list[str]:
    claim = clean(finding["claim"])
    said = claim[:1].upper() + claim[1:] if claim.partition(" ")[0].isalpha() else claim
    perhaps = "Perhaps: " if finding["grade"] == "hypothesis" else ""
    lines = _block(label, [f"{perhaps}{said}. [{clean(finding['cause'])}, {finding['grade']}]"], width)
    proof = [text for one in finding["evidence"] if (text := _evidence(one)).partition(": ")[2] not in said]
    lines += _block("For", proof, width)[1:]
    lines += _block("Against", (clean(one) for one in finding["against"]), width)[1:]
    culprit = finding["culprit"]
    if culprit:
        lines += _block("Line", [f"{clean(culprit['file'])}:{culprit['line']}    {clean(culprit['code'])}"], width)[1:]
    lines += _block("Cure", _cures(finding["cures"]), width)[1:]
    lines += _block("Settle", [clean(finding["settle"])] if finding["settle"] else [], width)[1:]
    return lines


def _cures(cures: list[Mapping[str, Any]]) -> Iterator[str]:
    for cure in cures:
        keeps = kept(cure["keeps"], cure["how"])
        how = clean(cure["how"])
        yield clean(cure["title"]) + (f" ({KEEPS[cure['keeps']]})" if keeps else "") + (f": {how}" if how else "")


def _evidence(one: Mapping[str, Any]) -> str:
    when = one["when"]
    at = time.strftime(" (%d %b %H:%M:%S)", time.localtime(when)) if when and 0 < when < 4e9 else ""
    return f"{clean(one['what'])}: {clean(one['value'])}{at}"


def _block(label: str, texts: Any, width: int) -> list[str]:
    """A label and its texts, after an empty line; nothing without texts."""
    lines: list[str] = []
    for text in texts:
        lines += fold(text, width, f"  {label:<{_INDENT - 2}}" if not lines else " " * _INDENT, " " * (_INDENT + 2))
    return ["", *lines] if lines else []
