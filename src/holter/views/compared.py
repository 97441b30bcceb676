"""Two runs in text: what differs, what was changed, and what explains it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TextIO

from holter.finding import Finding, Verdict
from holter.units import duration, rate, share, size
from holter.views.plain import clean, encodable, fold, paint, wants_color

_INDENT = 11
_MOST_LINES = 12  # of one place in the source
_MOST_CHANGES = 20


class Measure(Protocol):
    """One figure of both runs."""

    @property
    def key(self) -> str: ...
    @property
    def label(self) -> str: ...
    @property
    def unit(self) -> str: ...
    @property
    def value(self) -> float: ...
    @property
    def against(self) -> float: ...
    @property
    def differs(self) -> bool: ...


class Change(Protocol):
    """One thing that was otherwise."""

    @property
    def kind(self) -> str: ...
    @property
    def what(self) -> str: ...
    @property
    def value(self) -> str: ...
    @property
    def against(self) -> str: ...
    @property
    def lines(self) -> tuple[str, ...]: ...


class Compared(Protocol):
    """One run against another, as the diagnosis has it."""

    @property
    def run(self) -> Verdict: ...
    @property
    def against(self) -> Verdict: ...
    @property
    def steps(self) -> tuple[int, int]: ...
    @property
    def measures(self) -> Sequence[Measure]: ...
    @property
    def changes(self) -> Sequence[Change]: ...
    @property
    def explanations(self) -> Sequence[Any]: ...
    @property
    def unknown(self) -> Sequence[str]: ...
    @property
    def differs(self) -> bool: ...
    @property
    def ended_otherwise(self) -> bool: ...
    @property
    def only_here(self) -> Sequence[Finding]: ...
    @property
    def only_there(self) -> Sequence[Finding]: ...


def write_comparison(found: Compared, stream: TextIO, *, width: int = 80) -> None:
    """Write the comparison; the run that was asked about stands after the arrow."""
    color = wants_color(stream)
    one, two = (clean(side.run.get("id") or "this run") for side in (found.run, found.against))
    head = f"{one} against {two}: {_headline(found)}"
    lines = [paint(line, "bold", color) for line in fold(head, width, "", "  ")]
    lines += _block("Ended", _endings(found, one, two), width, color)
    lines += _block("Differs", _figures([m for m in found.measures if m.differs or _part_of(m, found)]), width, color)
    lines += _block("Changed", _changed(found.changes), width, color)
    lines += _block("Why", [_explained(each) for each in found.explanations], width, color)
    lines += _block("Found", _findings(found, one, two), width, color)
    alike = [m.label for m in found.measures if not m.differs and not m.key.startswith("phase.")]
    lines += _block("Alike", [f"{', '.join(alike)}: no difference beyond noise"] if alike else [], width, color)
    lines += _block("Unknown", [clean(text) for text in found.unknown], width, color)
    stream.write(encodable("\n".join(lines) + "\n", stream))


def _headline(found: Compared) -> str:
    step = next((one for one in found.measures if one.key == "step"), None)
    if step is None:
        return "how fast they were can't be compared" if not found.differs else "they differ"
    sample = next((one for one in found.measures if one.key == "sample"), None)
    if sample is not None:  # of batches of another size a step is no measure
        pace = f"{rate(sample.value)} samples a second, it was {rate(sample.against)}"
        return f"{_times(sample.value, sample.against)}: {pace}" if sample.differs else f"as fast by the sample: {pace}"
    if step.differs:
        pace = f"{rate(1 / step.value)} steps a second, it was {rate(1 / step.against)}"
        return f"{_times(step.against, step.value)}: {pace}"
    others = [one.label for one in found.measures if one.differs]
    if others:
        return f"as fast; {', '.join(others)} {'differs' if len(others) == 1 else 'differ'}"
    if found.ended_otherwise:
        return "as fast, but they ended differently"
    return "nothing differs beyond noise"


def _times(pace: float, against: float) -> str:
    """Say a pace against another one."""
    faster = pace > against
    return f"{pace / against if faster else against / pace:.1f} times as {'fast' if faster else 'slow'}"


def _endings(found: Compared, one: str, two: str) -> list[str]:
    if not found.ended_otherwise:
        return []
    return [f"{name}: {clean(side.ending.claim)}" for name, side in ((one, found.run), (two, found.against))]


def _part_of(measure: Measure, found: Compared) -> bool:
    """The phases are shown whole where the pace differs: what stayed as it was says as much."""
    return measure.key.startswith("phase.") and any(one.key == "step" and one.differs for one in found.measures)


def _figures(measures: Sequence[Measure]) -> list[str]:
    rows = [
        (
            f"{'  ' if one.key.startswith('phase.') else ''}{one.label}",
            _amount(one, one.against),
            _amount(one, one.value),
        )
        for one in measures
    ]
    names = max((len(name) for name, _, _ in rows), default=0)
    before = max((len(against) for _, against, _ in rows), default=0)
    return [f"{name:<{names}}  {against:>{before}} → {value}" for name, against, value in rows]


def _amount(measure: Measure, value: float) -> str:
    words = {"seconds": duration, "bytes": size, "share": share, "rate": rate}
    return words[measure.unit](value) if measure.unit in words else f"{value:g}"


def _changed(changes: Sequence[Change]) -> list[str]:
    lines = []
    for change in changes[:_MOST_CHANGES]:
        if change.lines:
            lines.append(clean(change.what))
            lines += [f"  {clean(line)}" for line in change.lines[:_MOST_LINES]]
            more = len(change.lines) - _MOST_LINES
            lines += [f"  and {more} more lines"] if more > 0 else []
        else:
            lines.append(f"{clean(change.what)}: {clean(change.against) or 'none'} → {clean(change.value) or 'none'}")
    if len(changes) > _MOST_CHANGES:
        lines.append(f"and {len(changes) - _MOST_CHANGES} more (--json)")
    return lines or ["nothing that is recorded: source lines that Holter kept, arguments, versions, settings, machine"]


def _explained(explanation: Any) -> str:
    claim = clean(explanation.claim)
    said = claim[:1].upper() + claim[1:]
    return f"{said}. [{explanation.grade}]" if explanation.grade else f"{said}."


def _findings(found: Compared, one: str, two: str) -> Iterator[str]:
    for name, findings in ((one, found.only_here), (two, found.only_there)):
        for finding in findings[:3]:
            yield f"only in {name}: {clean(finding.claim)} [{clean(finding.cause)}]"


def _block(name: str, texts: Sequence[str] | Iterator[str], width: int, color: bool) -> list[str]:
    lines: list[str] = []
    for text in texts:
        lead = f"  {name:<{_INDENT - 2}}" if not lines else " " * _INDENT
        inset = len(text) - len(text.lstrip())
        columns = (
            "  " in text.strip() or inset > 0
        )  # figures and code keep their spaces, and are cut rather than folded
        folded = [(lead + text)[:width].rstrip()] if columns else fold(text, width, lead, " " * (_INDENT + 2))
        if not lines:
            folded[0] = f"  {paint(name, 'dim', color)}{folded[0][2 + len(name) :]}"
        elif inset and text.lstrip()[:1] in "+-":
            folded = [paint(row, "good" if text.lstrip()[0] == "+" else "gone", color) for row in folded]
        lines += folded
    return ["", *lines] if lines else []
