"""An error that ended the input: a generator or a reader thread caught it without a word, and gave nothing more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holter.diagnosis.core.examined import once
from holter.diagnosis.core.progress import progress_of
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.raised import raised_from
from holter.diagnosis.ending.tracebacks import Raised
from holter.record.events.agent import CaughtError
from holter.source.lines import calls_of, function_around, silent_end_of_input

# What a thread has read ahead when it meets the error is still trained on.
_READ_AHEAD_STEPS = 64
# How Python says that there is no more to read: many a loop is meant to end so.
_END_OF_DATA = ("IndexError", "EOFError", "Empty", "ShutDown", "QueueShutDown", "CancelledError", "BrokenPipeError")
_GIVES = ("put", "put_nowait", "append", "appendleft", "extend", "send", "send_bytes", "set_result")


@dataclass(frozen=True)
class InputError:
    """The error, the step that the training had come to, and whether that was the end of it."""

    raised: Raised
    step: int
    last: bool


@once
def input_error(record: RecordLike) -> InputError | None:
    """Give the error that ended the training's input; of one pass of several only where it is the only such."""
    found = progress_of(record)
    done = found.step or 0
    if not done or (found.planned and done >= found.planned):
        return None
    repeated = {_place(event) for event in record.of(CaughtError) if (event.count or 0) > 1}
    for event in _that_ended(record):
        step = event.step or 0
        if event.type in _END_OF_DATA or _place(event) in repeated or not step:
            continue
        if event.thread and not _gives(record.source(event.caught.file), event.caught.line or 0):
            continue  # a thread that sends or watches ends with the training, and not the other way round
        last = done - step <= (_READ_AHEAD_STEPS if event.thread else 1)
        if last or not event.thread:
            return InputError(raised_from(event), step, last)
    return None


def errors_that_ended(record: RecordLike) -> list[Raised]:
    """Give the errors that threads of the user's own caught without a word and ended with, the last one first."""
    return [raised_from(event) for event in _that_ended(record) if event.thread]


def _that_ended(record: RecordLike) -> list[CaughtError]:
    caught = record.of(CaughtError)[::-1]
    return [one for one in caught if silent_end_of_input(record.source(one.caught.file), one.caught.line or 0)]


def _gives(lines: Sequence[str], line: int) -> bool:
    """Tell whether the function that a line stands in hands something on: to a queue, a pipe, a list."""
    name = function_around(lines, line)
    return any(function_around(lines, at) == name for at, _ in calls_of(lines, _GIVES))


def _place(event: CaughtError) -> tuple[str, int | None]:
    return event.caught.file, event.caught.line
