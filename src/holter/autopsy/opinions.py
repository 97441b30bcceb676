"""What speaks for and against each cause, from a log, the kernel's words and a script: facts first, then hypotheses.

A fact is what a text proves by itself: an exception, a kill in the kernel's log, a loss that is NaN. What led there is
a hypothesis, whatever speaks for it: nobody measured the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from holter.autopsy.log_words import LogProgress, LossGone
from holter.autopsy.script_looks import Script
from holter.finding import Culprit, Cure, Ending, Evidence, Finding
from holter.units import size

MEMORY = ("leak", "oversize", "fragmentation")
# The fact alone: which of the causes it was is told apart, in hypotheses.
OUT_OF_MEMORY = "out-of-memory"

_LESS = (
    Cure("a smaller batch with gradient accumulation", "", "equivalent"),
    Cure("see what fits, before the next run", "holter plan -- COMMAND"),
)


@dataclass(frozen=True)
class Opinion:
    """A finding, what speaks against it, and the command that would settle it (empty where nothing is left open)."""

    finding: Finding
    against: tuple[str, ...] = ()
    settle: str = ""

    def as_json(self) -> dict[str, Any]:
        command = self.settle.partition(" -- ")[2] or "COMMAND"
        cures = tuple(replace(cure, how=cure.how.replace("COMMAND", command)) for cure in self.finding.cures)
        finding = replace(self.finding, cures=cures)
        return {**asdict(finding), "against": list(self.against), "settle": self.settle}


class Clues(NamedTuple):
    """What was found, before anyone says what it means."""

    ending: Ending | None
    progress: LogProgress
    log_name: str
    settle: str  # `holter run -- python train.py`
    kernel_silent: str = ""  # what the kernel's silence says; empty where it could not be read
    loss: LossGone | None = None
    script: Script | None = None
    stale: str = ""  # why the script's lines may not be those that ran
    shown_line: Culprit | None = None  # of a traceback


def memory_causes(clues: Clues) -> Iterator[Opinion]:
    """Why memory ran out: the script's traps, and what the progress before it suggests."""
    from_script = list(script_causes(clues, MEMORY))
    # Leaks need time: after many steps alike, what is kept comes before what is large.
    likely = "leak" if clues.progress.far else "oversize"
    yield from (one for one in from_script if one.finding.family == likely)
    if clues.progress.far:
        yield from (one for one in from_script if one.finding.family != likely)
        yield _by_progress(clues)
    else:
        yield _by_progress(clues)
        yield from (one for one in from_script if one.finding.family != likely)


def _by_progress(clues: Clues) -> Opinion:
    reached = clues.progress.words or f"{clues.progress.lines} lines of progress"
    if clues.progress.far:
        claim = (
            f"memory may have grown over the run: it came to {reached} before it ran out, and steps that are alike "
            "need the same memory each"
        )
        against = (
            "one larger batch, a validation, a checkpoint or another program would look the same in a log",
            "no reading of the run's memory was kept",
        )
        cures = (Cure("look for what is kept from step to step: losses with their graph, outputs, models"),)
        finding = Finding("leak", "hypothesis", claim, (Evidence("progress", reached),), None, cures)
        return Opinion(finding, against, clues.settle)
    said = f"only {reached} is in {clues.log_name}" if clues.progress.lines else f"{clues.log_name} tells of no step"
    claim = f"the data, the model or the first steps may need more memory than there is: {said}"
    unsaid = ("Python keeps up to 8 KB of what is printed back when it writes to a file, and a kill loses it: more "
               "steps may have been done (PYTHONUNBUFFERED=1 prints at once)",)  # fmt: skip
    finding = Finding("oversize", "hypothesis", claim, (Evidence("progress", said),), clues.shown_line, _LESS)
    return Opinion(finding, unsaid, clues.settle)


def nan_opinions(clues: Clues) -> Iterator[Opinion]:
    """A loss that is no number is a fact; why is not."""
    loss = clues.loss
    if loss is None:
        return
    from_to = f" after {loss.before}" if loss.before else ""
    claim = f"{loss.name} became {loss.value}{from_to}, and no number came after it"
    fact = Finding("nan.unexplained", "established", claim, (Evidence("log", loss.line),))
    yield Opinion(fact, (), clues.settle)
    yield from script_causes(clues, ("nan",))
    rising = _value(loss.before) > 1e4
    if rising:
        claim = f"the learning rate may be too large: {loss.name} stood at {loss.before} before it became {loss.value}"
        finding = Finding("nan.learning-rate", "hypothesis", claim, (Evidence("log", loss.line),), None,
                          (Cure("a smaller learning rate, or clipped gradients", "", "changed"),))  # fmt: skip
        yield Opinion(finding, ("a single bad sample can do the same",), clues.settle)


def _value(text: str) -> float:
    try:
        return abs(float(text))
    except ValueError:
        return 0.0


def script_causes(clues: Clues, families: tuple[str, ...]) -> Iterator[Opinion]:
    """The script's traps that end in such an illness, as `holter check` sees them."""
    script = clues.script
    for problem in script.problems if script is not None else ():
        cause = problem.cause or ""
        if cause.partition(".")[0] not in families or problem.cell is not None:
            continue
        evidence = (Evidence("check", f"{problem.code} {problem.name} at line {problem.line}"),)
        culprit = Culprit(problem.file, problem.line, "", problem.source)
        finding = Finding(cause, "hypothesis", problem.claim, evidence, culprit, problem.cures)
        against = ["the line is there; that it ended this run was not seen"]
        against += [clues.stale] if clues.stale else []
        yield Opinion(finding, tuple(against), clues.settle)


def hang_of_the_script(clues: Clues) -> Iterator[Opinion]:
    """Where a script can wait for ever: its traps, and the line that waits for others."""
    yield from script_causes(clues, ("hang",))
    at = f" at {clues.progress.words}" if clues.progress.words else ""
    for culprit in (clues.script.waits if clues.script is not None else ())[:1]:
        claim = f"it may have waited for ever{at}: this line waits for another process, thread or rank"
        cures = (Cure("give the wait a timeout, so that the run says so instead"),)
        finding = Finding("hang", "hypothesis", claim, (), culprit, cures)
        against = ("the log does not say whether the run stood still",)
        yield Opinion(finding, against, clues.settle.replace("holter run ", "holter run --on-hang stop "))


def silent_end(clues: Clues) -> Iterator[Opinion]:
    """A log that breaks off: it was ended from outside, it waited for ever, or it left without a word."""
    script, reached = clues.script, clues.progress.words
    at = f" at {reached}" if reached else ""
    broke_off = Evidence("log", f"its last line tells of no error{at}")
    against = ("the log does not say whether the run stood still, was killed or left by itself",)
    for cause, why, culprit in script.leaves if script is not None else ():
        claim = f"it may have left early{at}: {why}"
        finding = Finding(cause, "hypothesis", claim, (broke_off,), culprit, (Cure("print why before it leaves"),))
        yield Opinion(finding, (*against, *([clues.stale] if clues.stale else [])), clues.settle)
    yield from hang_of_the_script(clues)
    yield from (one for one in script_causes(clues, (*MEMORY, "disk-full", "early-stop")))
    told = f"; {clues.kernel_silent}" if clues.kernel_silent else ""
    claim = f"someone or something may have ended it with a signal{at}: {clues.log_name} breaks off with no error{told}"
    finding = Finding("external.signal", "hypothesis", claim, (broke_off,), None,
                      (Cure("ask who may end processes here: a scheduler, a watchdog"),))  # fmt: skip
    yield Opinion(finding, against, clues.settle)
    if not clues.kernel_silent:
        claim = f"the kernel may have killed it for want of memory{at}: that leaves no word in a log"
        finding = Finding(OUT_OF_MEMORY, "hypothesis", claim, (broke_off,), None, _LESS)
        yield Opinion(finding, ("the kernel's log could not be read, so nothing shows a kill",), clues.settle)


def killed_for_memory(line: dict[str, Any], proof: str, clues: Clues, grade: Any, against: tuple[str, ...]) -> Opinion:
    """The kernel's own line about the kill."""
    held = f", which held {size(line['anon_rss'])}" if line.get("anon_rss") else ""
    where = "at its container's memory limit" if "MEMCG" in line.get("constraint", "") else "since the machine was full"
    claim = f"the kernel killed {line.get('victim', 'a process')} (pid {line['pid']}){held}, {where}"
    evidence = (Evidence("kernel log", line["text"][:300], line["t"]), Evidence("it is this run's", proof))
    return Opinion(Finding(OUT_OF_MEMORY, grade, claim, evidence, None, _LESS), against, clues.settle)


def as_hypothesis(finding: Finding) -> Finding:
    """The same, graded as what was not measured."""
    return replace(finding, grade="hypothesis")
