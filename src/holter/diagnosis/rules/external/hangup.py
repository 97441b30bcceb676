"""A closed terminal ended the run.

What it sees: the run, or a child of it, ended by SIGHUP.
Why it matters: a dropped ssh connection or a closed window takes the training with it.
May be confused with: SIGTERM of a shutdown; a daemon told to reload, which does not end by it.
How sure: established, since the signal says so.
Cure: tmux, nohup or setsid.
"""

from __future__ import annotations

from holter.diagnosis.exits import exit_of
from holter.diagnosis.rule import RecordLike
from holter.diagnosis.senders import sent_signal
from holter.finding import Cure, Ending, Evidence, Finding

CAUSE = "external.hangup"


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Name the hang-up of the terminal."""
    left = exit_of(record)
    if ending.kind != "killed" or left is None:
        return None
    sent = sent_signal(record, left)
    if left.signal != "SIGHUP" and not (left.signal is None and sent is not None and sent.name == "SIGHUP"):
        return None
    who = f", sent by {sent.who}" if sent is not None and sent.who else ""
    claim = f"the terminal that the run was started from was closed (SIGHUP{who})"
    cures = (
        Cure("start it in tmux or screen", "", "exact"),
        Cure("nohup holter run -- COMMAND &", "the run then outlives the terminal", "exact"),
    )
    return Finding(CAUSE, "established", claim, (Evidence("signal", f"SIGHUP{who}", left.t),), None, cures)
