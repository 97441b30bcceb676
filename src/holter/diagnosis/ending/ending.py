"""How a run ended: an observation with its proof, kept apart from why it did."""

from __future__ import annotations

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.exits import CRASHES, Exit, exit_of, sent_signal
from holter.diagnosis.ending.oom_killer import OomKill, explains, oom_kill_of
from holter.diagnosis.ending.raised import lost_a_worker, raised_at_end
from holter.diagnosis.ending.words import (
    crashed,
    failed,
    hung,
    killed,
    left_with_zero,
    oom_killed,
    running,
    say,
    sender_evidence,
    stopped_by_holter,
    without_exit,
)
from holter.diagnosis.hang.stalls import open_stall
from holter.finding import Ending
from holter.record.events.recorder import Detached
from holter.record.events.timeline import StepWindow

AT_ONCE = 15.0
_BY_USER = frozenset({"SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGKILL"})


def ending_of(record: RecordLike) -> Ending:
    """Say how a run ended, or that it is still on."""
    left, stall = exit_of(record), open_stall(record)
    if left is None and (record.live or record.of(Detached)):
        return hung(record, left) if stall is not None else running(record)
    if left is None:
        return without_exit(record)
    held = stopped_by_holter(record)
    kill = None if held else oom_kill_of(record, left)
    if kill is not None and _ended_by(record, kill, left):
        return oom_killed(record, kill, left)
    sent = sent_signal(record, left)
    by_signal = left.signal or (sent.name if sent and left.code else None)
    if held or (stall is not None and by_signal in _BY_USER):
        return hung(record, left)
    raised = raised_at_end(record)
    # The trainer outlived a worker and raised: that exception is how the run ended, the worker's signal is why.
    struck = left.signal if not (left.child and lost_a_worker(raised)) else None
    if struck in CRASHES:
        return crashed(record, left)
    if by_signal == "SIGINT" or (left.code and raised is not None and raised.name == "KeyboardInterrupt"):
        return say(record, "interrupted", "was interrupted (Ctrl-C, SIGINT)", left, sender_evidence(sent))
    if struck is not None:
        return killed(record, left, sent)
    if left.code:
        # A program may catch SIGTERM and leave in its own way; an error of its own has its own story.
        asked = sent is not None and raised is None
        return killed(record, left, sent) if asked else failed(record, left)
    return left_with_zero(record, left, sent)


def _ended_by(record: RecordLike, kill: OomKill, left: Exit) -> bool:
    if not explains(kill, left) and not (left.signal == "SIGKILL" and kill.pid == left.child_pid is not None):
        return False
    if left.signal == "SIGKILL":
        return True
    if left.code == 0:
        # The run outlived a helper; it did not outlive its trainer, whatever the script's last command returned,
        # unless another training came after it.
        after = (line for line in record.of(StepWindow) if line.m > kill.at and line.pid != kill.pid)
        return kill.role == "trainer" and not any(after)
    if left.code is None:
        return False
    # What a trainer says of a worker that is gone depends on where it met it: a lost worker, a reset connection, a
    # broken pipe. That it was a worker or a rank of this run, and that the run failed at once, is enough.
    at_once = left.m is not None and left.m - kill.at <= AT_ONCE and kill.role in ("worker", "trainer")
    return at_once or lost_a_worker(raised_at_end(record))
