"""The verdict as Markdown, for an issue: what happened, the proof, and the facts that a maintainer asks for first."""

from __future__ import annotations

import re
from typing import Any

from holter.views.plain import KEEPS, kept

# What Markdown or HTML would read as its own.
_SIGNS = re.compile(r"([\\*_{}\[\]<>#|~])")
_OUTPUT_LINES = 40


def markdown_of(document: dict[str, Any]) -> str:
    """Write a run's document as a page for an issue tracker."""
    ending, run = document["ending"], document["run"]
    lines = [f"### {plain(ending['claim'])}", "", _fenced(run["words"], "sh"), ""]
    figures = " · ".join(_figure(one) for one in document["figures"])
    lines += [figures, ""] if figures else []
    for finding in document["findings"]:
        lines += _finding(finding)
    if document["evidence"]:
        lines += ["**How it ended**", "", *_evidence(document["evidence"]), ""]
    if document["interventions"]:
        lines += ["**Healing**", "", *(_act(act) for act in document["interventions"]), ""]
    if document["told"]:
        lines += ["**Reported while it ran**", "", *(f"- {plain(sentence)}" for sentence in document["told"]), ""]
    lines += ["**Environment**", "", "| | |", "|---|---|"]
    lines += [f"| {plain(name)} | {plain(value)} |" for name, value in document["environment"]]
    lines += ["", *_folded("Stacks", _stacks(document["stacks"]))]
    lines += _folded("End of the output", "\n".join(document["output"][-_OUTPUT_LINES:]))
    if document["damage"]:
        lost = [f"- {plain(text)}" for text in document["damage"][:5]]
        lines += ["Parts of the record could not be read:", "", *lost, ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def plain(words: object) -> str:
    """Text that stays text in Markdown; names in backticks stay names."""
    text = " ".join(str(words).split())
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return _SIGNS.sub(r"\\\1", text.replace("`", "'"))
    escaped = (part if n % 2 else _SIGNS.sub(r"\\\1", part) for n, part in enumerate(parts))
    # A mention would call someone into the issue.
    return re.sub(r"@(?=\w)", "@\u200b", "`".join(escaped))


def _finding(finding: dict[str, Any]) -> list[str]:
    perhaps = "Perhaps: " if finding["grade"] == "hypothesis" else ""
    claim = finding["claim"][:1].upper() + finding["claim"][1:]
    lines = [f"**{perhaps}{plain(claim)}** (`{finding['cause']}`, {finding['grade']})", ""]
    lines += [*_evidence(finding["evidence"]), ""] if finding["evidence"] else []
    culprit = finding["culprit"]
    if culprit:
        lines += [f"`{_bare(culprit['file'])}:{culprit['line']}`", "", _fenced(culprit["code"], "python"), ""]
    for cure in finding["cures"]:
        keeps = kept(cure["keeps"], cure["how"])
        lines += [f"Cure: {plain(cure['title'])}{f' ({keeps})' if keeps else ''}", ""]
        lines += [_fenced(cure["how"], "diff"), ""] if cure["how"] else []
    return lines


def _evidence(found: list[dict[str, Any]]) -> list[str]:
    return [f"- {plain(one['what'])}: {plain(one['value'])}{_at(one)}" for one in found]


def _at(one: dict[str, Any]) -> str:
    time, step = one.get("time"), one.get("step")
    words = [f"{time:.0f} s in"] if time is not None else []
    return f" ({', '.join([*words, *([f'step {step:,}'] if step else [])])})" if words else ""


def _figure(one: dict[str, str]) -> str:
    of = f" ({plain(one['of'])})" if one["key"] == "step" else f" of {plain(one['of'])}"
    return f"{one['label']} **{plain(one['value'])}**{of if one['of'] else ''}"


def _act(act: dict[str, Any]) -> str:
    at = f"step {act['step']:,}: " if act["step"] else ""
    if act["done"]:
        return f"- {at}{plain(act['text'] or act['act'])} ({KEEPS.get(act['keeps'] or '', '')})"
    return f"- {at}{plain(act['act'])} could not be done: {plain(act['because'])}"


def _stacks(stacks: list[dict[str, Any]]) -> str:
    lines = []
    for stack in stacks[:3]:
        for thread in stack["threads"][:4]:
            lines.append(f"{stack['role'] or 'process'} {stack['pid']}, {thread['name']} ({stack['reason']})")
            lines += [f"  {frame['file']}:{frame['line']} {frame['function']}" for frame in thread["frames"][:16]]
    return "\n".join(lines)


def _folded(title: str, text: str) -> list[str]:
    if not text:
        return []
    return ["<details>", f"<summary>{title}</summary>", "", _fenced(text), "", "</details>", ""]


def _fenced(text: str, language: str = "") -> str:
    """A block of code; its fence is longer than any in the text."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _bare(text: str) -> str:
    return " ".join(text.replace("`", "'").split())
