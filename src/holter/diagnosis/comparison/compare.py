"""Two runs: what differs beyond noise, what was changed, and which of the changes explains the difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from holter.diagnosis.comparison.changes import COMPUTE, DATA, MEMORY, Change, changes_of, sets_what
from holter.diagnosis.comparison.measures import Measure, measures_of, steps_done
from holter.diagnosis.core.doctor import verdict
from holter.diagnosis.core.examined import examined
from holter.diagnosis.core.rule import RecordLike
from holter.finding import Finding, Grade, Verdict
from holter.units import duration, rate, share, size

_MAIN_PART = 0.25  # of the difference, from which a phase has a word of its own
_PHASES = {
    "data": (DATA, "waiting for data"),
    "forward": (COMPUTE, "the forward pass"),
    "backward": (COMPUTE, "the backward pass"),
    "optimizer": (COMPUTE, "the optimizer"),
    "other": (COMPUTE, "the rest of a step"),
    "validation": (COMPUTE, "validation"),
    "checkpoint": (COMPUTE, "saving checkpoints"),
    "compile": (COMPUTE, "compiling"),
}


@dataclass(frozen=True)
class Explanation:
    """Why a measure differs: a sentence, how sure it is, and the changes it names, by their place in the list."""

    of: str
    grade: Grade | None  # None where nothing in the records explains it
    claim: str
    changes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """One run against another."""

    run: Verdict
    against: Verdict
    steps: tuple[int, int]
    measures: tuple[Measure, ...]
    changes: tuple[Change, ...]
    explanations: tuple[Explanation, ...]
    unknown: tuple[str, ...] = ()

    @property
    def differs(self) -> bool:
        return any(one.differs for one in self.measures) or self.ended_otherwise

    @property
    def ended_otherwise(self) -> bool:
        return self.run.ending.kind != self.against.ending.kind

    @property
    def only_here(self) -> tuple[Finding, ...]:
        """The findings of this run that the other does not have, by their cause."""
        return _without(self.run.findings, self.against.findings)

    @property
    def only_there(self) -> tuple[Finding, ...]:
        return _without(self.against.findings, self.run.findings)

    def as_json(self) -> dict[str, Any]:
        sides = {"run": self.run, "against": self.against}
        said = {
            name: {
                "id": one.run.get("id"),
                "name": one.run.get("name"),
                "ending": one.ending.kind,
                "steps": steps,
                "findings": [finding.cause for finding in one.findings],
            }
            for (name, one), steps in zip(sides.items(), self.steps, strict=True)
        }
        return {
            "schema": 1,
            **said,
            "differs": self.differs,
            "measures": [asdict(one) for one in self.measures],
            "changes": [asdict(one) for one in self.changes],
            "explanations": [asdict(one) for one in self.explanations],
            "unknown": list(self.unknown),
        }


def compare(record: RecordLike, other: RecordLike) -> Comparison:
    """Lay two records side by side; a pure function of both."""
    one, two = examined(record), examined(other)
    measures, unknown = measures_of(one, two)
    changes = changes_of(one, two)
    return Comparison(
        verdict(one), verdict(two), (steps_done(one), steps_done(two)), tuple(measures), tuple(changes),
        tuple(_explanations(measures, changes)), tuple(unknown),
    )  # fmt: skip


def _without(findings: Sequence[Finding], others: Sequence[Finding]) -> tuple[Finding, ...]:
    causes = {finding.cause for finding in others}
    return tuple(one for one in findings if one.cause not in causes and one.grade != "hypothesis")


def _explanations(measures: Sequence[Measure], changes: Sequence[Change]) -> list[Explanation]:
    known = {one.key: one for one in measures}
    found = []
    step = known.get("step")
    phases = [one for one in measures if one.key.startswith("phase.") and one.differs]
    if (step is not None and step.differs) or phases:
        found += _of_the_pace(known, phases, changes)
    for key in ("memory", "device"):
        peak = known.get(key)
        if peak is not None and peak.differs:
            more = f"{peak.label} is {size(abs(peak.rise))} {'higher' if peak.rise > 0 else 'lower'}"
            found.append(_by(key, more, MEMORY, changes, also="batch"))
    return found


def _of_the_pace(known: dict[str, Measure], phases: Sequence[Measure], changes: Sequence[Change]) -> list[Explanation]:
    sample = known.get("sample")
    batch = [at for at, one in enumerate(changes) if one.kind == "batch"]
    if batch and sample is not None:
        change, step = changes[batch[0]], known["step"]
        # A larger batch makes a step longer and a sample no slower; where it is slower, something else is at work.
        if not sample.differs or (sample.rise > 0) == (step.rise > 0):
            claim = (
                f"a batch has {change.value} samples instead of {change.against}: {_step_words(step)}, "
                f"and it is {rate(sample.value)} samples a second, it was {rate(sample.against)}"
            )
            return [Explanation("step", "supported", claim, tuple(batch))]
    cpu = known.get("cpu")
    if cpu is not None and cpu.differs and (cpu.rise < 0) == (known["step"].rise > 0):
        claim = (
            f"its threads got {share(cpu.value)} of the CPU time they wanted, against {share(cpu.against)}: "
            "other work on the machine, or more threads than cores"
        )
        threads = tuple(at for at, one in enumerate(changes) if one.kind in ("threads", "machine") and one.specific)
        return [Explanation("step", "hypothesis" if threads else "supported", claim, threads)]
    total = known["step"].rise or 1e-12
    # What a step does not tell by phases is told by itself.
    main = [one for one in phases if one.rise / total >= _MAIN_PART] or phases[:1]
    if not main:
        return [_by("step", _step_words(known["step"]), COMPUTE, changes)]
    groups: dict[str, list[Measure]] = {}
    for one in main:
        groups.setdefault(_PHASES[one.label][0], []).append(one)
    return [_by(parts[0].key, _phase_words(parts, total), on, changes) for on, parts in groups.items()]


def _step_words(step: Measure) -> str:
    return f"a step takes {duration(step.value)} instead of {duration(step.against)}"


def _phase_words(parts: Sequence[Measure], total: float) -> str:
    names = " and ".join(_PHASES[one.label][1] for one in parts)
    value, against = sum(one.value for one in parts), sum(one.against for one in parts)
    part = min(1.0, (value - against) / total)
    return f"{names}: {duration(value)} a step instead of {duration(against)}, {share(part)} of the difference"


def _by(key: str, fact: str, on: str, changes: Sequence[Change], also: str = "") -> Explanation:
    """The fact with what bears on it: what acts by itself first, then the lines, then what may bring anything about."""
    bearing = [(at, one) for at, one in enumerate(changes) if on in one.bears_on or (also and one.kind == also)]
    specific = [at for at, one in bearing if one.specific]
    lines = [at for at, one in bearing if one.kind in ("source", "model") and not (specific and sets_what(one))]
    rest = [at for at, one in bearing if at not in specific and one.kind not in ("source", "model")]
    chosen = [*specific, *lines] or rest
    if not chosen:
        return Explanation(key, None, f"{fact}; nothing that the records hold explains it")
    named = [_words(changes[at]) for at in chosen[:3]]
    if len(chosen) == 1:
        only = "the only change that bears on it" if len(bearing) == 1 else "the change that bears on it most directly"
        return Explanation(key, "supported", f"{fact}; {named[0]} is {only}", tuple(chosen))
    more = f" or {len(chosen) - 3} more" if len(chosen) > 3 else ""
    return Explanation(key, "hypothesis", f"{fact}; one of these or several: {', '.join(named)}{more}", tuple(chosen))


def _words(change: Change) -> str:
    if change.kind == "source":
        return f"the change at {change.what}"
    return f"{change.what} ({change.against} → {change.value})"
