"""The scores as a table for a terminal and as a page."""

from __future__ import annotations

import platform
import statistics
from collections.abc import Callable, Iterable, Sequence
from datetime import date

from tests.score.judge import Score
from tests.score.patient import find
from tests.score.stay import Stay

COLUMNS = ("patient", "truth", "said", "grade", "family", "detail", "line", "ending", "verdict", "forecast", "alarm")


def _mark(right: bool | None) -> str:
    return "–" if right is None else "yes" if right else "NO"


def _forecast(score: Score) -> str:
    if score.lead_s is None:
        return "none" if score.patient.grows else "–"
    at = "" if score.forecast_at is None else f" at {score.forecast_at:.0%}"
    off = "" if score.forecast_error is None else f", off by {score.forecast_error:.0%}"
    return f"{score.lead_s:.0f} s before{at}{off}"


def row(score: Score) -> list[str]:
    """One patient's cells, in the order of COLUMNS."""
    patient = score.patient
    name = patient.name + (f" (aside, {patient.aside})" if patient.aside else "")
    if score.skipped:
        return [name, patient.cause or "healthy", f"skipped: {score.skipped}", *([""] * 8)]
    return [
        name,
        patient.cause or "healthy",
        score.said or "nothing",
        score.grade or "–",
        _mark(score.family_right),
        _mark(score.detail_right),
        _mark(score.culprit_right),
        score.ending if score.ending_right else f"{score.ending}, not {'/'.join(patient.endings)}",
        "–" if score.verdict_s is None else f"{score.verdict_s:.1f} s",
        _forecast(score),
        "; ".join(score.alarms) or "–",
    ]


def _share(scores: Iterable[Score], asked: Callable[[Score], bool | None]) -> str:
    answers = [answer for answer in map(asked, scores) if answer is not None]
    return f"{sum(answers)} of {len(answers)}" if answers else "–"


def totals(scores: Sequence[Score]) -> list[list[str]]:
    """Sums for the known ones, those kept aside, all, and each family."""
    done = [score for score in scores if not score.skipped]
    groups = [
        ("all", done),
        ("known", [score for score in done if not score.patient.aside]),
    ]
    rounds = sorted({score.patient.aside for score in done if score.patient.aside})
    groups += [(f"aside, {n}", [score for score in done if score.patient.aside == n]) for n in rounds]
    families = sorted({score.patient.family for score in done})
    groups += [(family, [score for score in done if score.patient.family == family]) for family in families]
    lines = []
    for name, members in groups:
        sick = [score for score in members if score.patient.cause]
        lines.append(
            [
                name,
                _share(sick, lambda score: score.family_right),
                _share(sick, lambda score: score.detail_right),
                _share(sick, lambda score: score.culprit_right),
                _share(members, lambda score: score.ending_right),
                _share(sick, lambda score: score.forecast_right),
                _share(members, lambda score: bool(score.alarms) if score.patient.cause is None else None),
            ]
        )
    return lines


TOTALS = ("", "family right", "detail right", "line right", "ending right", "forecast right", "false alarms")


def as_text(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table in columns."""
    widths = [max(len(cell) for cell in column) for column in zip(columns, *lines, strict=True)]
    widths = [min(width, 44) for width in widths]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in (columns, *lines)
    )


def bare_row(stay: Stay) -> list[str]:
    """What a bare run showed: does the script really do what its sidecar says?"""
    patient = stay.patient
    wanted = ["completed" if kind == "stopped-early" else kind for kind in patient.endings]
    if stay.skipped:
        return [patient.name, patient.cause or "healthy", f"skipped: {stay.skipped}", "", "", "", ""]
    curve = stay.curve[:: max(1, len(stay.curve) // 8)]
    return [
        patient.name,
        patient.cause or "healthy",
        stay.ending,
        _mark(stay.ending in wanted),
        f"{stay.seconds:.0f} s ({stay.cpu_s:.0f} s CPU)",
        f"{stay.peak / 1e6:.0f} MB" + (f" of {patient.memory_mb}" if patient.memory_mb else ""),
        " ".join(f"{value / 1e6:.0f}" for value in curve),
    ]


BARE = ("patient", "truth", "ended", "as told", "took", "peak", "memory over time, MB")


def as_page(scores: Sequence[Score], today: date, *, kept: bool = False) -> str:
    """The scoreboard as Markdown."""
    done = [score for score in scores if not score.skipped]
    verdicts = [score.verdict_s for score in done if score.verdict_s is not None]
    on_gpu = ", those for a GPU on one" if any(score.patient.gpu for score in done) else ", CPU only"
    machine = f"{platform.system()} on {platform.machine()}{on_gpu}, Python {platform.python_version()}"
    how = "Judged, from records of several runs of that day and before, on" if kept else "Run on"
    middle = f"{statistics.median(verdicts):.1f} s" if verdicts else "not known"
    parts = [
        "# The scoreboard",
        "Made by `make score WRITE=1`; do not edit. Each patient is a small training script under `tests/patients/`,"
        " sick or healthy, with the truth in a file beside it. It is run under `holter run` within real limits (memory,"
        " swap, disk, processes), and what `holter why` says is compared with the truth. Those marked *aside* were set"
        " apart before any of them was run under Holter, in two rounds: the second was written when the first had been"
        " used to mend what it showed. What they scored the first time, before what they showed was"
        " mended, stands in [benchmarks](benchmarks.md).",
        f"{how} {today.day} {today:%B %Y} on {machine}: {len(done)} of {len(find())} patients,"
        f" {len(scores) - len(done)} skipped. The verdict took {middle} in the middle.",
        "A line is right within two lines of the true one. A forecast is right when it was said before half of the"
        " steps were done and named the last step within 20 %. A false alarm is a finding"
        " above `hypothesis`, or a forecast, on a healthy run.",
        _markdown(TOTALS, totals(scores)),
        "## Each patient",
        _markdown(COLUMNS, [row(score) for score in scores]),
    ]
    return "\n\n".join(parts) + "\n"


def _markdown(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [columns, ["---"] * len(columns), *lines]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in rows)
