"""A closed terminal ended the run.

What it sees: the run, or a child of it, ended by SIGHUP; or a write to the terminal that failed because it was gone.
Why it matters: a dropped ssh connection or a closed window takes the training with it.
May be confused with: SIGTERM of a shutdown; a daemon told to reload, which does not end by it; a failing disk, whose
input/output errors are raised by other lines than those that print.
How sure: established where the signal says so; supported where printing failed.
Cure: tmux, nohup or setsid.
"""

from __future__ import annotations

import re

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.exits import exit_of, sent_signal
from holter.diagnosis.ending.raised import raised_at_end
from holter.finding import Cure, Ending, Evidence, Finding, Grade
from holter.record.events.recorder import Started

CAUSE = "external.hangup"

_GONE = "[Errno 5] Input/output error"
_PRINTS = re.compile(r"\bprint\(|\bstd(?:out|err)\b|\bflush\(|\btqdm\b|\blog(?:ger|ging)?\.|\bsecho\(|\becho\(|\bfit\(")
_CURES = (
    Cure("start it in tmux or screen"),
    Cure("nohup holter run -- COMMAND &", "the run then outlives the terminal"),
)


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Name the hang-up of the terminal."""
    exited = exit_of(record)
    if exited is None:
        return None
    if ending.kind == "exception":
        return _write_failed(record)
    if ending.kind != "killed":
        return None
    sent = sent_signal(record, exited)
    if exited.signal != "SIGHUP" and not (exited.signal is None and sent is not None and sent.name == "SIGHUP"):
        return None
    who = f", sent by {sent.who}" if sent is not None and sent.who else ""
    return _terminal_closed(f"SIGHUP{who}", "established", Evidence("signal", f"SIGHUP{who}", exited.t))


def _write_failed(record: RecordLike) -> Finding | None:
    """A process that is spared the signal meets the closed terminal when it next prints."""
    on_terminal = any("tty" in (e.stdout, e.stderr) for e in record.of(Started))
    raised = raised_at_end(record)
    if not on_terminal or raised is None or _GONE not in raised.root.message or raised.root.type != "OSError":
        return None
    frames = [frame for frame in raised.root.frames if frame.user]
    if not frames or not _PRINTS.search(frames[-1].code):
        return None
    words = f"printing at {frames[-1].short} failed: {_GONE}"
    return _terminal_closed(words, "supported", Evidence("exception", raised.root.headline, raised.when))


def _terminal_closed(how: str, grade: Grade, evidence: Evidence) -> Finding:
    claim = f"the terminal that the run was started from was closed ({how})"
    return Finding(CAUSE, grade, claim, (evidence,), None, _CURES)
