"""Exit code 0 with fewer steps than planned: was it meant, and what went by."""

from __future__ import annotations

import re
from dataclasses import dataclass
from statistics import median

from holter.diagnosis.core.evidence import first_in_sources, roles, user_files
from holter.diagnosis.core.examined import once
from holter.diagnosis.core.frames import Frame, is_user_file
from holter.diagnosis.core.progress import progress_of
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.input_error import input_error
from holter.diagnosis.ending.one_shot import as_long_as_its_input, read_once, swallowing_handler
from holter.diagnosis.ending.raised import raised_from, raised_in
from holter.diagnosis.ending.tracebacks import Raised, last_line_with, printed_text, printed_tracebacks
from holter.finding import Culprit
from holter.record.events.agent import (
    EarlyStop,
    EpochBegins,
    ExitCalled,
    FitEnd,
    IdlePasses,
    StepError,
    UncaughtException,
)
from holter.record.events.timeline import StepWindow
from holter.source.lines import told_before
from holter.units import count

_EXHAUSTED = re.compile(r"[Ii]nput ran out of data|ran out of data; interrupting training")
_DELIBERATE = re.compile(
    r"\bEpoch \d+: early stopping|Signaling Trainer to stop|`?Trainer\.fit`? stopped: `|"
    r"\bEarlyStopping\b[^\n]{0,200}(?:stop|trigger)|[Ee]arly stopping (?:triggered|at epoch|after)|"
    r"Invalid loss, terminating training|Reached timelimit"
)
# Plans that were read off the script's own loops promise nothing: a loop may be left with `break` on purpose.
_GUESSED = ("loop", "loader", "len", "range", "tqdm", "track", "guess")

# How a script ends that has done all it meant to.
_ORDINARY = re.compile(r"exit\(\s*(?:\w+\.)*\w*main\w*\(")


@dataclass(frozen=True)
class Shortfall:
    """What is missing of the plan, in words, and what is known of the reason."""

    words: str
    warning: str = ""
    raised: Raised | None = None
    exit_line: Frame | None = None
    dry: bool = False  # the input gave something in one pass only
    paired: Culprit | None = None  # the loop that ends with its input
    swallowed_at: Culprit | None = None  # the `except` around a loop that only an error can leave

    @property
    def did(self) -> str:
        """Say how far it came, as a sentence."""
        if not self.words:
            return "the trainer died"
        if self.dry:
            return f"it made {self.words}"
        return f"it came to {self.words}" if self.words.startswith("epoch") else f"{self.words} were done"


def missing_steps(record: RecordLike) -> str:
    """Say how much of the plan was not done, or nothing when the plan was kept or is not known."""
    fits = record.of(FitEnd)
    for event in fits:
        missing = _missing_of_fit(event)
        if missing:
            return missing
    found = progress_of(record)
    if fits and fits[-1].m >= (found.last_step_m or 0.0):
        # The framework itself says that its training returned: there is no plan left to fall short of.
        return ""
    if found.planned and found.step is not None:
        # One step an epoch may go missing in the rounding of a last, partial accumulation; where an error left the
        # step that came next, none did.
        spare = 0 if _error_after(record, found.step) else max(1, found.epochs or 1)
        if found.planned - found.step > spare:
            return f"{count(found.step)} of {count(found.planned)} steps"
        return ""
    if found.epochs and found.epoch and found.epoch < found.epochs and not found.planned:
        return f"epoch {count(found.epoch)} of {count(found.epochs)}"
    return ""


def _missing_of_fit(event: FitEnd) -> str:
    if event.stopped:
        return ""
    done, planned = event.steps, event.steps_planned
    epochs, wanted = event.epochs, event.epochs_planned
    if done is not None and planned:
        return f"{count(done)} of {count(planned)} steps" if planned - done > max(1, wanted or 1) else ""
    return f"{count(epochs)} of {count(wanted)} epochs" if epochs is not None and wanted and epochs < wanted else ""


@once
def deliberate_stop(record: RecordLike) -> str:
    """Give the words with which a framework or a callback said that it stops on purpose."""
    for event in record.of(EarlyStop)[-1:]:
        monitor = event.monitor
        went_by = f", going by {monitor}" if monitor else ""
        return f"{event.by or 'a callback'} ended the training{went_by}"
    explained = explained_exit(record)
    if explained is not None:
        return f"exit was called at {explained.short}, after a message"
    return last_line_with(_DELIBERATE, printed_text(record))


def exhausted_warning(record: RecordLike) -> str:
    """Give the warning that the input ran out, from the output."""
    return _sentence(last_line_with(_EXHAUSTED, printed_text(record)))


def _sentence(text: str) -> str:
    # What comes before is the file that warned, what comes after is advice.
    found = re.search(r"(?:Your )?[Ii]nput ran out of data[^.\n]{0,80}", text)
    return found.group(0) if found else text.strip()[:120]


def swallowed_error(record: RecordLike) -> Raised | None:
    """Give an error that went by although the command ended with exit code 0."""
    role_of = roles(record)
    for event in record.of(UncaughtException):
        if role_of.get(event.pid or 0) == "trainer" and event.main is not False:
            return raised_in(record, None)
    caught = _error_after(record, progress_of(record).step or 0)
    if caught is not None:
        return raised_from(caught)
    printed = [one for one in printed_tracebacks(record) if one.name not in ("KeyboardInterrupt", "SystemExit")]
    return printed[-1] if printed else None


def _error_after(record: RecordLike, done: int) -> StepError | None:
    """Give an error that left a step and was caught further out, with no step after it."""
    return next((event for event in record.of(StepError)[::-1] if (event.step or 0) > done), None)


def exit_line(record: RecordLike) -> Frame | None:
    """Give the user's own line that called for the exit."""
    for event in reversed(record.of(ExitCalled)):
        file = event.file
        if file and is_user_file(file):
            code = event.code.strip()
            if _ORDINARY.search(code) or not _amid_steps(record, event.m):
                return None
            return Frame(file, event.line or 0, event.function, code, True)
    return None


def explained_exit(record: RecordLike) -> Frame | None:
    """Give the line that called for the exit in a branch that first printed or logged why, with no error before it."""
    line = exit_line(record)
    if line is None or swallowed_error(record) is not None:
        return None
    return line if told_before(record.source(line.file), line.line) else None


def _amid_steps(record: RecordLike, m: float) -> bool:
    # An exit at the end of the script comes after the last step by what saving and evaluating take.
    windows = record.of(StepWindow)
    if not windows:
        return True
    took = [total / n for line in windows if (total := line.sum) and (n := line.n)]
    return m - windows[-1].m <= max(2.0, 3 * median(took or [0.0]))


@once
def shortfall_of(record: RecordLike) -> Shortfall | None:
    """Tell a run that stopped early without meaning to from one that did all, or stopped on purpose."""
    died = _trainer_died(record)
    missing = missing_steps(record)
    if died is not None:
        return Shortfall(missing, raised=died)
    dry = "" if record.of(EarlyStop) else _dry(record)
    if dry:
        return Shortfall(dry, dry=True)
    cut = input_error(record)
    if cut is not None and cut.last and not deliberate_stop(record):
        return Shortfall(missing or f"{count(progress_of(record).step or 0)} steps", raised=cut.raised)
    if not missing or record.recorder_lost:
        return None
    warning = exhausted_warning(record)
    # Keras says the same words of a validation; what a callback has ended was ended by that.
    if deliberate_stop(record) and (not warning or record.of(EarlyStop)):
        return None
    error, line = swallowed_error(record), exit_line(record)
    source = progress_of(record).source.lower()
    guessed = any(word in source for word in _GUESSED)
    paired = first_in_sources(record, as_long_as_its_input) if guessed and not error and not line else None
    if not guessed or ((warning or error or line) and paired is None):
        return Shortfall(missing, warning, error, line)
    swallowed = first_in_sources(record, swallowing_handler) if _epochs_missing(record) else None
    known = paired is not None or swallowed is not None
    return Shortfall(missing, paired=paired, swallowed_at=swallowed) if known else None


def _epochs_missing(record: RecordLike) -> bool:
    """Tell whether whole epochs are missing, or steps of a loop that counts them itself: the length of a loader may be
    less than it says, and of all alike."""
    found = progress_of(record)
    if not found.epochs:
        return bool(found.planned and found.step and found.step < found.planned)
    return bool(found.epoch and found.epoch < found.epochs)


def _dry(record: RecordLike) -> str:
    """Say that all steps were made in the first pass, where later ones found nothing left to read."""
    found = progress_of(record)
    if not found.step:
        return ""
    begun = [(event.epoch or 0, event.step) for event in record.of(EpochBegins)]
    empty = [epoch for epoch, step in begun if step == found.step]
    # The last pass of a run that is over may well have begun; several that began without a step were empty.
    if len(empty) >= 2 and min(empty) > 1:
        return f"{count(found.step)} steps, none of them after epoch {min(empty) - 1} of {max(empty)}"
    for event in record.of(IdlePasses):
        if event.step == found.step:
            of = f" of {count(found.epochs)}" if found.epochs else ""
            return f"{count(found.step)} steps, none of them after epoch {count(event.epoch or 1)}{of}"
    if len(begun) > 1 or found.epochs == 1:
        return ""
    if any(read_once(record.source(file)) for file in user_files(record)):
        of = f" of {count(found.epochs)} epochs" if found.epochs else " pass"
        return f"{count(found.step)} steps, all of them in the first{of}"
    return ""


def _trainer_died(record: RecordLike) -> Raised | None:
    # `train.py | tee log` ends with tee's exit code: the trainer's own error must not be lost in the pipe.
    role_of = roles(record)
    for event in record.of(UncaughtException):
        trainer = role_of.get(event.pid or 0) == "trainer" and event.main is True
        if trainer and event.type not in ("SystemExit", "KeyboardInterrupt", ""):
            return raised_in(record, None)
    return None
