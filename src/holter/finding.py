"""The one shape of all that Holter tells a user."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Grade = Literal["established", "supported", "hypothesis"]
Keeps = Literal["exact", "equivalent", "changed"]
EndingKind = Literal[
    "completed",
    "exception",
    "oom-killed",
    "killed",
    "crashed",
    "hung",
    "stopped-early",
    "interrupted",
    "running",
]

GRADE_ORDER: dict[str, int] = {"established": 0, "supported": 1, "hypothesis": 2}


@dataclass(frozen=True)
class Evidence:
    """One observation: what was read, its value in words, and when (wall-clock seconds)."""

    what: str
    value: str
    when: float | None = None


@dataclass(frozen=True)
class Culprit:
    """The user's line."""

    file: str
    line: int
    function: str = ""
    code: str = ""


@dataclass(frozen=True)
class Cure:
    """What to change, and what the change does to the result."""

    title: str
    how: str = ""
    keeps: Keeps = "exact"


@dataclass(frozen=True)
class Forecast:
    """What is still to come: when (wall-clock seconds, with its bounds) and how sure."""

    what: str
    when: float
    earliest: float
    latest: float


@dataclass(frozen=True)
class Finding:
    """A cause with its evidence, the line, the cures and, for what is to come, the forecast."""

    cause: str
    grade: Grade
    claim: str
    evidence: tuple[Evidence, ...] = ()
    culprit: Culprit | None = None
    cures: tuple[Cure, ...] = ()
    forecast: Forecast | None = None
    rank: int | None = None  # of a job of several ranks: the one to blame
    host: str = ""  # and where it ran

    @property
    def family(self) -> str:
        return self.cause.partition(".")[0]


@dataclass(frozen=True)
class Ending:
    """How a run ended: an observation, kept apart from why it did."""

    kind: EndingKind
    claim: str
    exit_code: int | None = None
    signal: str | None = None
    at_step: int | None = None
    at_epoch: int | None = None
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """All that is said about one run; what the views show and `--json` prints."""

    run: dict[str, Any]
    ending: Ending
    healthy: bool
    findings: tuple[Finding, ...] = ()
    interventions: tuple[dict[str, Any], ...] = field(default=())
    # Rules that could not be asked, and why: their silence is no word on the run.
    failed_rules: tuple[str, ...] = ()

    @property
    def looked_at(self) -> bool:
        """Tell whether `holter attach` left it running: what became of it nobody knows."""
        return self.ending.kind == "running" and self.run.get("ended") is not None

    def as_json(self) -> dict[str, Any]:
        return {"schema": 2, **asdict(self)}
