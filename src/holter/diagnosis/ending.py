"""How a run ended: an observation with its proof, kept apart from why it did."""

from __future__ import annotations

import re
from collections.abc import Sequence

from holter.diagnosis.exits import CRASHES, Exit, exit_of
from holter.diagnosis.fields import text, whole
from holter.diagnosis.frames import short_path
from holter.diagnosis.memory import memory_curve
from holter.diagnosis.oom import OomKill, explains, oom_evidence, oom_kill_of
from holter.diagnosis.progress import place, progress_of
from holter.diagnosis.raised import culprit_frame, message_of, raised_in
from holter.diagnosis.rule import RecordLike
from holter.diagnosis.senders import Sent, sent_signal
from holter.diagnosis.shortfall import deliberate_stop, shortfall_of
from holter.diagnosis.stalls import open_stall, stalled_for, threshold, waits_in
from holter.finding import Ending, EndingKind, Evidence
from holter.units import duration

_WORKER_LOST = re.compile(
    r"DataLoader worker .{0,60}(?:is killed by signal|exited unexpectedly)|BrokenProcessPool|"
    r"process pool was terminated abruptly|died with <Signals\.SIGKILL|terminated with signal SIGKILL"
)
_BY_USER = frozenset({"SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGKILL"})


def ending_of(record: RecordLike) -> Ending:
    """Say how a run ended, or that it is still on."""
    left, stall = exit_of(record), open_stall(record)
    if left is None and (record.live or record.events_of("detached")):
        return _hung(record, left) if stall is not None else _say(record, "running", "is running", left)
    if left is None:
        return _without_exit(record)
    held = _stopped_by_holter(record)
    kill = None if held else oom_kill_of(record, left)
    if kill is not None and _ended_by(record, kill, left):
        return _oom_killed(record, kill, left)
    sent = sent_signal(record, left)
    by_signal = left.signal or (sent.name if sent and left.code else None)
    if held or (stall is not None and by_signal in _BY_USER):
        return _hung(record, left)
    if left.signal in CRASHES and not _worker_only(record, left):
        return _crashed(record, left)
    raised = raised_in(record, left.m)
    if by_signal == "SIGINT" or (left.code and raised is not None and raised.name == "KeyboardInterrupt"):
        return _say(record, "interrupted", "was interrupted (Ctrl-C, SIGINT)", left, _sender(sent))
    if left.signal is not None and not _worker_only(record, left):
        return _killed(record, left, sent)
    if left.code:
        # A program may catch SIGTERM and leave in its own way; an error of its own has its own story.
        asked = sent is not None and raised is None
        return _killed(record, left, sent) if asked else _failed(record, left)
    return _zero(record, left, sent)


def _ended_by(record: RecordLike, kill: OomKill, left: Exit) -> bool:
    if not explains(kill, left) and not (left.signal == "SIGKILL" and kill.pid == left.child_pid is not None):
        return False
    if left.signal == "SIGKILL":
        return True
    if left.code == 0:
        # The run outlived a worker; it did not outlive its trainer, whatever a pipe's last command returned.
        return kill.role == "trainer" and bool(shortfall_words(record))
    return left.code is not None and bool(_WORKER_LOST.search(message_of(raised_in(record, left.m))))


def shortfall_words(record: RecordLike) -> str:
    """Say what is missing of the plan when the run did not mean to stop."""
    found = shortfall_of(record)
    return found.words if found is not None else ""


def _worker_only(record: RecordLike, left: Exit) -> bool:
    # The trainer lived on and raised: that exception is how the run ended, the worker's signal is why.
    return left.child and bool(_WORKER_LOST.search(message_of(raised_in(record, left.m))))


def _oom_killed(record: RecordLike, kill: OomKill, left: Exit) -> Ending:
    worker = kill.role == "worker" or _worker_only(record, left)
    evidence = list(oom_evidence(record, kill))
    if not worker:
        return _say(record, "oom-killed", "was killed by the kernel for want of memory", left, evidence)
    raised = raised_in(record, left.m)
    after = f"; the trainer then raised {raised.name}" if raised is not None else ""
    if raised is not None:
        evidence.append(Evidence("what followed", raised.headline, raised.when))
    who = kill.who if kill.role else kill.who.replace("a process of the run", "a data worker")
    claim = f"ended because the kernel killed {who}, for want of memory{after}"
    return _say(record, "oom-killed", claim, left, evidence)


def _stopped_by_holter(record: RecordLike) -> bool:
    return any("hang" in text(event, "reason") for event in record.events_of("stopping"))


def _hung(record: RecordLike, left: Exit | None) -> Ending:
    stall = open_stall(record) or (record.events_of("stall") or [{}])[-1]
    took, limit = stalled_for(record, stall, left.m if left else None), threshold(stall)
    more = "no sign of progress" + (f" for {duration(took)}" if took is not None else "")
    more += f" ({limit}); {waits_in(record, stall)}" if limit else f"; {waits_in(record, stall)}"
    if left is not None:
        more += (
            "; Holter stopped it" if _stopped_by_holter(record) else f"; it was ended with {left.signal or 'a signal'}"
        )
    return _say(record, "hung", "hung" if left else "hangs", left, more=more)


def _crashed(record: RecordLike, left: Exit) -> Ending:
    core = any(event.get("core") is True for kind in ("end", "exited") for event in record.events_of(kind))
    words = f"crashed in compiled code with {left.signal}" + (" (core dumped)" if core else "")
    return _say(record, "crashed", words + _through(left), left)


def _killed(record: RecordLike, left: Exit, sent: Sent | None) -> Ending:
    name = left.signal or (sent.name if sent else "a signal")
    words = f"was killed with {name}{_through(left)}"
    if sent is not None and sent.who:
        words += f", sent by {sent.who}"
    curve = memory_curve(record)
    more = curve.against if name == "SIGKILL" and curve is not None else ""
    return _say(record, "killed", words, left, _sender(sent), more)


def _failed(record: RecordLike, left: Exit) -> Ending:
    raised = raised_in(record, left.m)
    if raised is None:
        words = f"ended with exit code {left.code} and no traceback"
        for event in record.events_of("exit-called"):
            if text(event, "file"):
                at = f"{short_path(text(event, 'file'))}:{whole(event, 'line') or 0}"
                words = f"ended with exit code {left.code}, called for at {at}"
        return _say(record, "exception", words, left)
    frame, root = culprit_frame(raised), raised.root
    more = raised.headline + (f", at {frame.short}" if frame is not None else "")
    more += f" (it began with {root.headline})" if root.headline != raised.headline else ""
    return _say(record, "exception", "ended with an exception", left, more=more)


def _zero(record: RecordLike, left: Exit, sent: Sent | None) -> Ending:
    found = shortfall_of(record)
    if found is None:
        meant, short = deliberate_stop(record), progress_of(record)
        early = bool(short.planned and (short.step or 0) < short.planned)
        more = f"it stopped on purpose: {meant}" if meant and early else ""
        return _say(record, "completed", "completed", left, more=more)
    if sent is not None and found.raised is None and not found.warning:
        kind: EndingKind = "interrupted" if sent.name == "SIGINT" else "killed"
        who = f", sent by {sent.who}" if sent.who else ""
        words = f"was asked to stop with {sent.name}{who} and left in order with exit code 0"
        return _say(record, kind, words, left, _sender(sent))
    more = found.words + " were done" if found.words else "the trainer died"
    if found.warning:
        more += f', and a warning went by: "{found.warning}"'
    elif found.raised is not None:
        more += f", and an error went by: {found.raised.headline}"
    elif found.exit_line is not None:
        more += f", and exit was called at {found.exit_line.short}"
    return _say(record, "stopped-early", "stopped early with exit code 0", left, more=more)


def _without_exit(record: RecordLike) -> Ending:
    for event in record.events_of("failed"):
        error = text(event, "error") or f"errno {whole(event, 'errno')}"
        return _say(record, "exception", "could not be started", None, more=error)
    for event in record.events_of("end"):
        words = text(event, "because") or "how it ended is not known"
        return _say(record, "killed", "is over", None, more=words)
    curve = memory_curve(record)
    more = f"{curve.against} at the last reading" if curve is not None else ""
    words = "ended at the same time as its recorder, and nothing saw how (the machine or the container went down?)"
    return _say(record, "killed", words, None, more=more)


def _through(left: Exit) -> str:
    if not left.child:
        return ""
    who = f"a child (pid {left.child_pid})" if left.child_pid else "a child"
    return f" in {who}, by exit code {left.code}" if left.code and left.code > 128 else f" in {who}"


def _sender(sent: Sent | None) -> list[Evidence]:
    return [Evidence("signal", f"{sent.name} from {sent.who or 'an unknown sender'}", sent.when)] if sent else []


def _say(
    record: RecordLike,
    kind: EndingKind,
    words: str,
    left: Exit | None,
    evidence: Sequence[Evidence] = (),
    more: str = "",
) -> Ending:
    where = progress_of(record)
    claim = f"The run {words}{place(record)}" + (f": {more}" if more else "")
    if record.recorder_lost and left is not None:
        claim += "; the recorder was lost on the way"
    return Ending(
        kind=kind,
        claim=claim,
        exit_code=left.code if left else None,
        signal=left.signal if left else None,
        at_step=where.step,
        at_epoch=where.epoch,
        evidence=tuple(evidence),
    )
