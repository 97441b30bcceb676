"""From an attempt's record and verdict to the next attempt: how far it came, and what is told of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from holter.finding import Verdict
from holter.record.events.agent import Declined, Intervention, StateSaved
from holter.record.events.recorder import SignalReceived
from holter.record.events.timeline import StepWindow
from holter.record.reader import Record
from holter.remedies.ledger import Ledger, Position
from holter.remedies.memory_ending import said_in
from holter.remedies.policy import Ruling, rule_on

_WISHES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGXCPU")


@dataclass
class Restarts:
    """All attempts of one run; asked after each."""

    resume_args: bool = False  # the user has said how the command resumes
    ledger: Ledger = field(default_factory=Ledger)
    states: bool = False  # a state to go on from was written, by this attempt or one before it

    @property
    def resumes(self) -> bool:
        return self.states or self.resume_args

    def after(self, record: Record, verdict: Verdict) -> Ruling:
        """Enter an attempt in the ledger, and say what follows."""
        self.states = self.states or bool(record.of(StateSaved))
        self.ledger.ended(position_of(record, verdict, self.ledger))
        if any(event.signal in _WISHES for event in record.of(SignalReceived)):
            return Ruling()  # the user or a scheduler wanted the run to end, whatever ended it then
        if any(event.act == "heal" for event in record.of(Declined)):
            return Ruling()  # one of several ranks: it was said that the run is only watched
        ruling = rule_on(
            verdict, self.ledger, resumes=self.resumes, said_so=said_in(record), saved=_wrote_checkpoints(record)
        )
        if ruling.remedy is not None:
            self.ledger.changes.append(ruling.remedy)
        return ruling


def position_of(record: Record, verdict: Verdict, ledger: Ledger) -> Position:
    """How far an attempt came: its own steps, and those that it says it has passed over."""
    own, epoch = verdict.ending.at_step or 0, verdict.ending.at_epoch or 0
    resumed = [event for event in record.of(Intervention) if event.act == "resume"]
    if resumed:  # by each of its loops or fits
        return Position(sum(event.passed or 0 for event in resumed) + own, epoch)
    if (record.facts.attempt or 1) == 1:
        return Position(own, epoch)
    # The script went on by itself, from where is not known: a checkpoint that it has written since is progress.
    return Position(saved=ledger.furthest.saved + (1 if _wrote_checkpoints(record) else 0))


def _wrote_checkpoints(record: Record) -> bool:
    return any((line.checkpoint or 0.0) > 0 for line in record.of(StepWindow))


def restart_fields(ruling: Ruling, verdict: Verdict, *, resumes: bool) -> dict[str, Any]:
    """The words of a restart, for the record and for the user."""
    assert ruling.remedy is not None
    claim = verdict.ending.claim.removeprefix("The run ")
    if verdict.ending.kind == "exception":
        claim = claim.partition(": ")[0]  # without the exception's own words
    begins = "" if resumes else "; it starts from the beginning, because there is no saved state"
    return {
        "act": "restart",
        "keeps": ruling.remedy.keeps,
        "because": ruling.remedy.because,
        "cause": ruling.cause,
        "change": ruling.remedy.name,
        "text": f"{verdict.run.get('id')} {claim}. Started again for {ruling.cause}: {ruling.remedy.text}{begins}",
    }
