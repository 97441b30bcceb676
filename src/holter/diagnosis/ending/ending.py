"""How a run ended: an observation with its proof, kept apart from why it did."""

from __future__ import annotations

from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.exits import CRASHES, Exit, exit_of, sent_signal
from holter.diagnosis.ending.oom_killer import OomKill, explains, oom_kill_of
from holter.diagnosis.ending.raised import lost_a_worker, raised_at_end
from holter.diagnosis.ending.words import (
    crashed,
    exited_with_zero,
    failed,
    hung,
    killed,
    make_ending,
    oom_killed,
    running,
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
    exited, stall = exit_of(record), open_stall(record)
    if exited is None and (record.live or record.of(Detached)):
        return hung(record, exited) if stall is not None else running(record)
    if exited is None:
        return without_exit(record)
    held = stopped_by_holter(record)
    kill = None if held else oom_kill_of(record, exited)
    if kill is not None and _ended_by(record, kill, exited):
        return oom_killed(record, kill, exited)
    sent = sent_signal(record, exited)
    by_signal = exited.signal or (sent.name if sent and exited.code else None)
    if held or (stall is not None and by_signal in _BY_USER):
        return hung(record, exited)
    raised = raised_at_end(record)
    # The trainer outlived a worker and raised: that exception is how the run ended, the worker's signal is why.
    struck = exited.signal if not (exited.child and lost_a_worker(raised)) else None
    if struck in CRASHES:
        return crashed(record, exited)
    if by_signal == "SIGINT" or (exited.code and raised is not None and raised.name == "KeyboardInterrupt"):
        return make_ending(record, "interrupted", "was interrupted (Ctrl-C, SIGINT)", exited, sender_evidence(sent))
    if struck is not None:
        return killed(record, exited, sent)
    if exited.code:
        # A program may catch SIGTERM and leave in its own way; an error of its own has its own story.
        asked = sent is not None and raised is None
        return killed(record, exited, sent) if asked else failed(record, exited)
    return exited_with_zero(record, exited, sent)


def _ended_by(record: RecordLike, kill: OomKill, exited: Exit) -> bool:
    if not explains(kill, exited) and not (exited.signal == "SIGKILL" and kill.pid == exited.child_pid is not None):
        return False
    if exited.signal == "SIGKILL":
        return True
    if exited.code == 0:
        # The run outlived a helper; it did not outlive its trainer, whatever the script's last command returned,
        # unless another training came after it.
        after = (line for line in record.of(StepWindow) if line.m > kill.at and line.pid != kill.pid)
        return kill.role == "trainer" and not any(after)
    if exited.code is None:
        return False
    # What a trainer says of a worker that is gone depends on where it met it: a lost worker, a reset connection, a
    # broken pipe. That it was a worker or a rank of this run, and that the run failed at once, is enough.
    at_once = exited.m is not None and exited.m - kill.at <= AT_ONCE and kill.role in ("worker", "trainer")
    return at_once or lost_a_worker(raised_at_end(record))
