"""The verdict as text: how it ended, why, the proof, the line, the cure."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterable, Sequence
from typing import Protocol, TextIO

from holter.finding import Ending, Evidence, Finding, Verdict
from holter.units import count, duration, size
from holter.views.plain import KEEPS, clean, encodable, fold, hold, kept, paint, sparkline, wants_color

_INDENT = 9
_MARKS = {"completed": ("✓", "good"), "running": ("…", "wait")}
# Of these an ending alone says nothing; that nothing was found is worth a word.
_WANT_A_REASON = ("stopped-early", "killed", "crashed")
_MOST_EVIDENCE = 10
_MOST_OF_A_NOTE = 200  # letters
# From this share of the limit on, a healthy run's memory is told against it.
_WORTH_TELLING_SHARE = 0.5
# Where a cure could change what is learned, it says that it does not; elsewhere that goes without saying.
_TOUCH_THE_RESULT = (
    "leak",
    "oversize",
    "thrash",
    "fragmentation",
    "nan",
    "recompile",
    "overhead",
    "input-bound",
    "cpu",
)


_COMMAND = re.compile(r"^\s*(?:\w+=\S* )*holter (?:run|plan) ")


class Chart(Protocol):
    """One curve with its ends in words."""

    @property
    def label(self) -> str: ...
    @property
    def values(self) -> tuple[float, ...]: ...
    @property
    def low(self) -> str: ...
    @property
    def high(self) -> str: ...
    @property
    def limit(self) -> str: ...
    @property
    def top(self) -> float | None: ...


class Figures(Protocol):
    """The figures and curves to show beside a verdict."""

    @property
    def lasted(self) -> float | None: ...
    @property
    def steps(self) -> int | None: ...
    @property
    def epochs(self) -> int | None: ...
    @property
    def peak_memory(self) -> float | None: ...
    @property
    def memory_limit(self) -> float | None: ...
    @property
    def charts(self) -> Sequence[Chart]: ...
    @property
    def told(self) -> Sequence[str]: ...
    @property
    def damage(self) -> Sequence[str]: ...


def write_verdict(
    verdict: Verdict, shown: Figures, stream: TextIO, *, width: int = 80, color: bool | None = None
) -> None:
    """Write a verdict: one line for a healthy run, a page for any other."""
    tint = wants_color(stream) if color is None else color
    wide = max(40, min(width, 120))
    if verdict.healthy:
        lines = [healthy_line(verdict, shown, tint), *_block("Healed", _healed(verdict), wide, tint)[1:]]
        lines += _block("Note", _noted(verdict), wide, tint)[1:]
    else:
        lines = _page(verdict, shown, wide, tint)
    stream.write(encodable("\n".join(lines) + "\n", stream))


def command_of(verdict: Verdict, longest: int = 60) -> str:
    """Give the command as it was typed, cut in the middle where it is long."""
    command = verdict.run.get("command")
    words = [word for word in command if isinstance(word, str)] if isinstance(command, list) else [str(command or "")]
    name = words[0].rpartition("/")[2] if words and words[0] else ""
    said = clean(" ".join([name or "the run", *(shlex.quote(word) for word in words[1:])]))
    if len(said) > longest:
        # A long path is known by its last part; what is given to the script matters more than where it lies.
        short = [word.rpartition("/")[2] or word if word.startswith("/") else word for word in words[1:]]
        said = clean(" ".join([name or "the run", *(shlex.quote(word) for word in short)]))
    return said if len(said) <= longest else said[: longest - 12].rstrip() + " … " + said[-9:].lstrip()


def healthy_line(verdict: Verdict, shown: Figures, color: bool = False) -> str:
    """Say in one line that all is well, and what was done."""
    mark, style = _MARKS.get(verdict.ending.kind, ("✓", "good"))
    state, took = "completed" if verdict.ending.kind == "completed" else "is running", ""
    if verdict.looked_at:
        state = "was running when it was looked at"
    elif shown.lasted is not None:
        took = f" in {duration(shown.lasted)}" if state == "completed" else f", {duration(shown.lasted)} in"
    facts = []
    if shown.steps:
        facts.append(f"{count(shown.steps)} {'step' if shown.steps == 1 else 'steps'}")
    if shown.epochs:
        facts.append(f"{count(shown.epochs)} {'epoch' if shown.epochs == 1 else 'epochs'}")
    if shown.peak_memory:
        near = shown.memory_limit and shown.peak_memory > _WORTH_TELLING_SHARE * shown.memory_limit
        facts.append(f"peak {size(shown.peak_memory)}" + (f" of {size(shown.memory_limit or 0)}" if near else ""))
    said = f": {', '.join(facts)}" if facts else ""
    meant = _after(verdict.ending, "it stopped on purpose")
    if state != "completed" and ": " in verdict.ending.claim:
        # What it was at when Holter looked says more than any figure.
        said, meant = f": {clean(verdict.ending.claim).partition(': ')[2]}", ""
    run = clean(verdict.run.get("id") or "")
    more = f" ({run})" if run else ""
    return f"{paint(mark, style, color)} {command_of(verdict)} {state}{took}{said}{meant}{more}"


def _after(ending: Ending, words: str) -> str:
    at = ending.claim.find(words)
    return f"; {clean(ending.claim[at:])}" if at >= 0 else ""


def _page(verdict: Verdict, shown: Figures, width: int, color: bool) -> list[str]:
    worthless = verdict.ending.kind == "completed" and any(one.family == "nan" for one in verdict.findings)
    mark, style = ("✗", "bad") if worthless else _MARKS.get(verdict.ending.kind, ("✗", "bad"))
    claim = clean(verdict.ending.claim).removeprefix("The run ")
    head = fold(f"{mark} {command_of(verdict)} {claim}", width, "", "  ")
    lines = [paint(head[0][:1], style, color) + paint(head[0][1:], "bold", color)]
    lines += [paint(line, "bold", color) for line in head[1:]]
    first, others = (verdict.findings[0], verdict.findings[1:]) if verdict.findings else (None, ())
    if first is not None:
        lines += _block("Why", [_graded(first)], width, color)
    elif verdict.ending.kind in _WANT_A_REASON:
        lines += _block("Why", ["Not known: no error, signal or warning that explains it was seen."], width, color)
    said = claim + (f" {clean(first.claim)}" if first is not None else "")
    proof = [chart_line(chart) for chart in shown.charts]
    proof += _evidence([*verdict.ending.evidence, *(first.evidence if first else ())], said)
    lines += _block("Proof", proof, width, color)
    if first is not None:
        lines += _block("Line", _culprit(first, width - _INDENT), width, color)
        lines += _block("Cure", _cures(first), width, color)
    lines += _block("Healed", _healed(verdict), width, color)
    lines += _block("Tried", _tried(verdict), width, color)
    lines += _block("Also", [_also(finding) for finding in others], width, color)
    lines += _block("Soon", _forecast(first) if verdict.ending.kind == "running" else [], width, color)
    lines += _block("Told", [clean(text) for text in shown.told], width, color)
    lines += _block("Lost", [clean(text) for text in shown.damage[:3]], width, color)
    lines += _block("Note", _noted(verdict), width, color)
    run = clean(verdict.run.get("id") or "")
    lines += _block("More", [f"holter report {run} -o run.html"] if run else [], width, color)
    return lines


def _healed(verdict: Verdict) -> list[str]:
    """Say what was done to keep the run going, and what that does to the result."""
    lines = []
    for act in verdict.interventions:
        if act.get("done"):
            at = f"step {count(act['step'])}: " if act.get("step") else ""
            because = f": {clean(act['because'])}" if act.get("because") else ""
            keeps = KEEPS.get(str(act.get("keeps")), "")
            lines.append(f"{at}{clean(act.get('text') or act.get('act') or '')} ({keeps}{because})")
    return lines


def _noted(verdict: Verdict) -> list[str]:
    """Give what people wrote on the record, in one line: its tags, and its note as far as it goes."""
    note, tags = " ".join(clean(verdict.run.get("note") or "").split()), verdict.run.get("tags") or ()
    if len(note) > _MOST_OF_A_NOTE:
        note = f"{note[:_MOST_OF_A_NOTE].rstrip()}… (holter note {clean(verdict.run.get('id') or '')})"
    said = " ".join((f"[{', '.join(map(clean, tags))}]" if tags else "", note)).strip()
    return [said] if said else []


def _tried(verdict: Verdict) -> list[str]:
    return [
        f"{clean(act.get('act') or '')}: {clean(act.get('because') or '')}"
        for act in verdict.interventions
        if not act.get("done")
    ]


def _block(name: str, texts: Iterable[str], width: int, color: bool) -> list[str]:
    lines: list[str] = []
    for text in texts:
        lead = f"  {name:<{_INDENT - 2}}" if not lines else " " * _INDENT
        # Code is set in; where it is too long for the page, what follows is set in further than any code below it.
        inset = len(text) - len(text.lstrip())
        folded = fold(text, width, lead, " " * (_INDENT + (min(inset, 8) + 6 if inset else 0)))
        if inset and _COMMAND.search(text):
            folded = [lead + text]  # to be pasted: never torn
        if not lines:
            folded[0] = f"  {paint(name, 'dim', color)}{folded[0][2 + len(name) :]}"
        elif inset and text.lstrip()[:1] in ("+", "-"):
            folded = [paint(row, "good" if text.lstrip()[0] == "+" else "gone", color) for row in folded]
        lines += folded
    return ["", *lines] if lines else []


def _graded(finding: Finding) -> str:
    claim = clean(finding.claim)
    # A name of a file or a class keeps its own first letter.
    plain_word = claim.partition(" ")[0].isalpha()
    said = claim[:1].upper() + claim[1:] if plain_word else claim
    doubt = {"hypothesis": "Perhaps: ", "supported": "", "established": ""}[finding.grade]
    return f"{doubt}{said}. [{clean(finding.cause)}, {finding.grade}]"


def _also(finding: Finding) -> str:
    at = f" ({_short(clean(finding.culprit.file))}:{finding.culprit.line})" if finding.culprit else ""
    return _graded(finding) + at


def chart_line(chart: Chart) -> str:
    """Draw one curve with its ends and its limit."""
    limit = f" ── {chart.limit}" if chart.limit else ""
    return clean(f"{chart.label}   {chart.low} ") + sparkline(chart.values, chart.top) + clean(f" {chart.high}{limit}")


def _evidence(found: Sequence[Evidence], said: str = "") -> list[str]:
    """Give the proof in lines, without what the sentences above have said already."""
    lines: list[str] = []
    for one in found:
        if clean(one.value) in said:
            continue
        at = time.strftime(" at %H:%M:%S", time.localtime(one.when)) if one.when and 0 < one.when < 4e9 else ""
        line = f"{clean(one.what)}: {clean(one.value)}{at}"
        if line not in lines:
            lines.append(line)
    if len(lines) > _MOST_EVIDENCE:
        return [*lines[:_MOST_EVIDENCE], f"and {len(lines) - _MOST_EVIDENCE} more (--json)"]
    return lines


def _culprit(finding: Finding, room: int) -> list[str]:
    """Give the place and the code on it, side by side where there is room; code is cut rather than torn."""
    if finding.culprit is None:
        return []
    place, code = f"{_short(clean(finding.culprit.file))}:{finding.culprit.line}", clean(finding.culprit.code).strip()
    if len(place) + 4 + len(code) <= room:
        return [f"{place}    {code}".rstrip()]
    return [place, f"  {code if len(code) + 2 <= room else code[: room - 3].rstrip() + '…'}"]


def _short(path: str, longest: int = 36) -> str:
    parts = path.split("/")
    while len(parts) > 1 and len("/".join(parts)) > longest:
        parts = parts[1:]
    kept = "/".join(parts)
    return kept if kept == path else f"…/{kept}"


def _cures(finding: Finding) -> list[str]:
    lines = []
    for cure in finding.cures:
        goes_without_saying = cure.keeps == "exact" and finding.family not in _TOUCH_THE_RESULT
        keeps = "" if goes_without_saying else kept(cure.keeps, cure.how)
        lines.append(clean(cure.title) + (f"  {hold(f'({keeps})')}" if keeps else ""))
        lines += [f"  {clean(line)}" for line in cure.how.splitlines()]
    return lines


def _forecast(finding: Finding | None) -> list[str]:
    return [clean(finding.forecast.what)] if finding is not None and finding.forecast is not None else []
