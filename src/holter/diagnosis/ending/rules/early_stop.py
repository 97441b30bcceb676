"""Runs that ended with exit code 0 before their plan was done, one rule for each reason."""

from __future__ import annotations

from holter.diagnosis.core.evidence import first_in_sources
from holter.diagnosis.core.frames import short_path
from holter.diagnosis.core.rule import RecordLike, Rule
from holter.diagnosis.ending.input_error import InputError, input_error
from holter.diagnosis.ending.one_shot import read_once
from holter.diagnosis.ending.raised import culprit_frame
from holter.diagnosis.ending.shortfall import Shortfall, explained_exit, missing_steps, shortfall_of
from holter.diagnosis.ending.tracebacks import Raised
from holter.finding import Culprit, Cure, Ending, Evidence, Finding, Grade
from holter.record.events.agent import UncaughtException
from holter.source.lines import calls_of, culprit_at, handler_around, settings_of
from holter.units import count

_EXPLAIN_AN_ERROR = ("early-stop.input-exhausted", "disk-full", "resource", "oversize", "leak")


def input_exhausted(record: RecordLike, ending: Ending) -> Finding | None:
    """The input ran out before the planned steps were done.

    What it sees: exit code 0 and fewer steps than planned, with the framework's warning that the input ran out, or in
    a loop over `zip(range(steps), batches)` that has no other way out; or epochs that went by without a step, since a
    generator is empty after its first pass.
    Why it matters: the run looks finished and the model was trained on a fraction of the plan.
    May be confused with: early stopping on purpose; the same warning in a run that did all of its steps.
    How sure: established where the warning and the counts agree, or where the script shows what can be read only once.
    Cure: `.repeat()` on the dataset, or the true number of steps per epoch.
    """
    found = shortfall_of(record) if ending.kind == "stopped-early" else None
    if found is not None and found.dry:
        return _read_once(record, found)
    if found is not None and found.paired is not None:
        claim = f"the input ran out first, and the loop ends with it: {found.did}"
        again = Cure("begin the input anew where it ends, or plan as many steps as it has", "", "changed")
        steps = Evidence("steps", found.words)
        return Finding("early-stop.input-exhausted", "supported", claim, (steps,), found.paired, (again,))
    if found is None or not found.warning:
        return None
    evidence = (Evidence("steps", found.words), Evidence("warning", found.warning))
    cures = (Cure("dataset.repeat() before fit, or leave steps_per_epoch out so that it is counted", "", "equivalent"),)
    claim = f"the input ran out after {found.words}, and the framework only warned"
    line = first_in_sources(record, _asked_for)
    return Finding("early-stop.input-exhausted", "established", claim, evidence, line, cures)


def _read_once(record: RecordLike, found: Shortfall) -> Finding:
    """Input that was empty after its first pass, such as a generator: the later epochs trained on nothing."""
    culprit = first_in_sources(record, read_once)
    claim = f"the input can be read only once, and was empty from then on: {found.words}"
    cure = Cure("make the iterator anew in each epoch, or keep the data in a Dataset or a list", "", "changed")
    grade: Grade = "established" if culprit is not None else "supported"
    return Finding("early-stop.input-exhausted", grade, claim, (Evidence("steps", found.words),), culprit, (cure,))


def _asked_for(lines: list[str]) -> int | None:
    """Find the line that promises more steps than the input has, in a script with just one such line."""
    promised = [line for line, name in settings_of(lines, "steps_per_epoch") if name == "steps_per_epoch"]
    trained = [line for line, _ in calls_of(lines, ("fit",))]
    return next((found[0] for found in (promised, trained) if len(found) == 1), None)


def swallowed_error(record: RecordLike, ending: Ending) -> Finding | None:
    """An error was caught or lost, and the run ended with exit code 0.

    What it sees: exit code 0, fewer steps than planned, and a traceback that went by in the output or in the trainer;
    or an `except` for every error around a training loop that has no other way out; or an error that a generator or a
    reader thread caught without a word and ended with (Python 3.12 and later).
    Why it matters: scripts and schedulers take the run for a success.
    May be confused with: a handled error of no consequence in a run that did all of its steps.
    How sure: established when the trainer itself died of it; supported when it was only seen to go by.
    Cure: let it through: no bare `except`, `set -o pipefail` in a pipe.
    """
    found = shortfall_of(record) if ending.kind == "stopped-early" else None
    if found is not None and found.swallowed_at is not None:
        return _without_a_trace(found, found.swallowed_at)
    cut = input_error(record) if found is None and ending.kind == "completed" else None
    if cut is not None:
        return _of_one_pass(record, cut)
    if found is None or found.raised is None:
        return None
    root, frame = found.raised.root, culprit_frame(found.raised)
    at = f" at {frame.short}" if frame is not None else ""
    after = f" after {found.words}" if found.words else ""
    grade: Grade = "established" if found.raised.pid is not None else "supported"
    claim = f"an error{at} was raised{after}, but the command still ended with exit code 0: {root.headline}"
    evidence = [Evidence("error", root.headline, root.when)]
    if found.words:
        evidence.append(Evidence("steps", found.words))
    # The trainer itself died of it: then it was the shell around it that lost the exit code.
    died = any(event.pid == found.raised.pid for event in record.of(UncaughtException))
    caught = _swallowed_at(record, found.raised)
    where = f" at line {caught.line}" if caught is not None else ""
    cure = f"re-raise it{where} after logging, and catch only what you expect"
    if caught is not None and not died:
        evidence.append(Evidence("caught", f"{short_path(caught.file)}:{caught.line} {caught.code}"))
    if died:
        cure = "set -o pipefail in the shell, so that the error's exit code counts"
    cures = (Cure(cure),)
    return Finding("early-stop.swallowed-error", grade, claim, tuple(evidence), frame.culprit if frame else None, cures)


def _of_one_pass(record: RecordLike, cut: InputError) -> Finding:
    """An error ended the input of one pass, and the run went on with the next."""
    frame, caught = culprit_frame(cut.raised), _swallowed_at(record, cut.raised)
    claim = f"an error ended the input of one pass after step {count(cut.step)}, and the run went on without the rest"
    evidence = [Evidence("error", cut.raised.headline, cut.raised.when)]
    if caught is not None:
        evidence.append(Evidence("caught", f"{short_path(caught.file)}:{caught.line} {caught.code}"))
    cures = (Cure("catch the error around one sample and count what is left out, or let it through"),)
    culprit = frame.culprit if frame is not None else caught
    return Finding("early-stop.swallowed-error", "supported", claim, tuple(evidence), culprit, cures)


def _without_a_trace(found: Shortfall, handler: Culprit) -> Finding:
    """An error of which nothing was seen: the loop has no other way out, and an `except` around it catches all."""
    claim = (
        f"{found.did}, though only an error can end that loop early: line {handler.line} catches any, without a trace"
    )
    cure = Cure(f"log it at line {handler.line} with its traceback (logging.exception), and raise it again")
    steps = Evidence("steps", found.words)
    return Finding("early-stop.swallowed-error", "supported", claim, (steps,), handler, (cure,))


def _swallowed_at(record: RecordLike, raised: Raised) -> Culprit | None:
    """Find the `except` that the error ended in: the innermost around any of the user's lines that it came through."""
    for one in (raised.root, raised):
        for frame in reversed([frame for frame in one.frames if frame.user]):
            lines = record.source(frame.file)
            line = handler_around(lines, frame.line)
            if line is not None:
                return culprit_at(frame.file, lines, line)
    return None


def exit_called(record: RecordLike, ending: Ending) -> Finding | None:
    """The user's own code called for the exit before the plan was done.

    What it sees: exit code 0, fewer steps than planned, and the line that called sys.exit or os._exit.
    Why it matters: a guard such as "stop if the loss is bad" ends a night's run and nothing says so.
    May be confused with: the ordinary sys.exit(main()) at the end of a run that did all of its steps.
    How sure: supported: the line is known, whether it was meant is not; a hypothesis where a message goes ahead of it.
    Cure: that line: a message and a non-zero code.
    """
    if ending.kind not in ("stopped-early", "completed"):
        return None
    found, missing = shortfall_of(record), missing_steps(record)
    line = found.exit_line if found is not None else explained_exit(record)
    if line is None or not missing:
        return None
    grade: Grade = "supported" if found is not None else "hypothesis"
    claim = f"the script itself called exit at {line.short}, with exit code 0: {(found or Shortfall(missing)).did}"
    evidence = (Evidence("exit", f"{line.short} in {line.function or '?'}"),)
    cures = (Cure("if you did not want that: print the reason there, and exit with another code than 0"),)
    return Finding("early-stop.exit-called", grade, claim, evidence, line.culprit, cures)


RULES = (
    Rule.of("early-stop.input-exhausted", input_exhausted),
    Rule.of("early-stop.swallowed-error", swallowed_error, _EXPLAIN_AN_ERROR),
    Rule.of("early-stop.exit-called", exit_called, ("early-stop.input-exhausted", "early-stop.swallowed-error")),
)
