"""The exception that ended the run, from the agent's event or else from the output."""

from __future__ import annotations

import re

from holter.diagnosis.core.evidence import roles
from holter.diagnosis.core.examined import once
from holter.diagnosis.core.frames import Frame, frames_of, last_user_frame
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.exits import PEER_LOST, ended_at
from holter.diagnosis.ending.tracebacks import Raised, as_traceback, parse_tracebacks, printed_tracebacks
from holter.finding import Culprit
from holter.record.events.agent import CaughtError, StepError, UncaughtException

_WORKER_LOST = re.compile(
    r"DataLoader worker .{0,60}(?:is killed by signal|exited unexpectedly)|BrokenProcessPool|"
    r"process pool was terminated abruptly"
)
# How long before the end an uncaught exception may lie and still be what ended the run: a launcher takes
# up to half a minute to bring its other ranks down.
_BEFORE_END = 90.0


@once
def raised_in(record: RecordLike, end: float | None) -> Raised | None:
    """Give the exception that ended the run, with the chain it came from."""
    # Several processes write their last words at once: the order of the lines is not that of the errors.
    # That torchrun was sent a signal is no error of anyone's.
    events = [event for event in record.of(UncaughtException) if event.type not in ("", "SignalException")]
    events.sort(key=lambda event: event.m)
    near = [event for event in events if end is None or event.m >= end - _BEFORE_END]
    role_of = roles(record)
    trainers = [event for event in near if role_of.get(event.pid or 0) == "trainer"]
    # The first rank that raised is the cause, the others fail for want of it: those whose peer was gone, above all,
    # and the launcher that ends the rest.
    main = [event for event in trainers or near if event.main is not False]
    main = [event for event in main if not _is_a_consequence(event)] or main
    printed = [one for one in printed_tracebacks(record) if one.name != "SignalException"]
    if not main:
        return printed[-1] if printed else None
    event = main[0]
    found = raised_from(event)
    same = [one for one in printed if one.name == found.name and one.cause is not None]
    if found.cause is None and same:
        return Raised(found.type, found.message, found.frames, same[-1].cause, found.pid, found.when)
    return found


def _is_a_consequence(event: UncaughtException) -> bool:
    if event.type in ("ChildFailedError", "ProcessRaisedException", "ProcessExitedException"):
        return True
    return bool(PEER_LOST.search(f"{event.type}: {event.message}"))


def raised_at_end(record: RecordLike) -> Raised | None:
    """Give the exception that the run ended with; of one that is on, the one that it last met."""
    return raised_in(record, ended_at(record))


def raised_from(event: UncaughtException | StepError | CaughtError) -> Raised:
    """Read an exception from an event that describes one."""
    cause: Raised | None = None
    # The chain is written nearest cause first, its root last.
    for link in event.chain[::-1] if isinstance(event, UncaughtException) else ():
        cause = Raised(link.type, link.message, tuple(frames_of(link.frames)), cause)
    message = event.message
    inner = parse_tracebacks(as_traceback(message) if message.startswith("in user code:") else message)
    if inner and cause is None:
        cause = inner[-1]
    return Raised(event.type, message, tuple(frames_of(event.frames)), cause, event.pid, event.t)


def culprit_frame(raised: Raised) -> Frame | None:
    """Give the user's line to blame: that of the root of the chain, else of what was raised last."""
    for one in (raised.root, raised):
        frame = last_user_frame(one.frames)
        if frame is not None:
            return frame
    return None


def culprit_of(raised: Raised | None) -> Culprit | None:
    """Give the same line as a finding has it; None without an exception, or a line of the user's in it."""
    frame = culprit_frame(raised) if raised is not None else None
    return frame.culprit if frame is not None else None


def message_of(raised: Raised | None) -> str:
    """Give types and messages of a whole chain as one text to search in."""
    words: list[str] = []
    one = raised
    while one is not None and len(words) < 50:
        words.append(f"{one.type}: {one.message}")
        one = one.cause
    return "\n".join(words)


def lost_a_worker(raised: Raised | None) -> bool:
    """Tell whether an exception only reports that a worker process of the trainer's is gone."""
    return bool(_WORKER_LOST.search(message_of(raised)))
