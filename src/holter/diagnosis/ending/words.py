"""The words for each way of ending: the fact, where in the run, and what goes with it."""

from __future__ import annotations

from collections.abc import Sequence

from holter.diagnosis.core.frames import short_path
from holter.diagnosis.core.progress import place, progress_of
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.exits import Exit, Sent
from holter.diagnosis.ending.oom_killer import OomKill, oom_evidence
from holter.diagnosis.ending.raised import culprit_frame, lost_a_worker, raised_at_end
from holter.diagnosis.ending.shortfall import deliberate_stop, shortfall_of
from holter.diagnosis.ending.tracebacks import printed_text
from holter.diagnosis.hang.stalls import open_stall, stacks_of, stalled_for, waits_in
from holter.diagnosis.memory.memory import memory_curve
from holter.finding import Ending, EndingKind, Evidence
from holter.record.events.agent import ExitCalled
from holter.record.events.recorder import Detached, Ended, Exited, Stall, StartFailed, Stopping
from holter.units import duration


def oom_killed(record: RecordLike, kill: OomKill, exited: Exit) -> Ending:
    """Tell an OOM kill, and whether the trainer or a worker was the victim."""
    worker = kill.role == "worker" or lost_a_worker(raised_at_end(record))
    evidence = list(oom_evidence(record, kill))
    if not worker:
        return make_ending(record, "oom-killed", "was killed by the kernel: out of memory", exited, evidence)
    raised = raised_at_end(record)
    after = f"; the trainer then raised {raised.name}" if raised is not None else ""
    if raised is not None:
        evidence.append(Evidence("what followed", raised.headline, raised.when))
    who = kill.who if kill.role else kill.who.replace("a process of the run", "a data worker")
    more = f"the kernel killed {who}{after}"
    return make_ending(record, "oom-killed", "lost a data worker: out of memory", exited, evidence, more)


def stopped_by_holter(record: RecordLike) -> bool:
    """Tell whether Holter itself ended the run for a hang."""
    return any("hang" in event.reason for event in record.of(Stopping))


def hung(record: RecordLike, exited: Exit | None) -> Ending:
    """Tell a hang: for how long, and what it waits in."""
    stall = open_stall(record) or (record.of(Stall) or [Stall()])[-1]
    took = stalled_for(record, stall)
    if record.facts.attached is not None:
        watched = (
            f"did not move in the {duration(took)} that Holter watched it" if took is not None else "does not move"
        )
        return make_ending(record, "hung", watched, exited, more=waits_in(record, stall))
    more = "no progress" + (f" for {duration(took)}" if took is not None else "") + f"; {waits_in(record, stall)}"
    if exited is not None:
        more += (
            "; Holter stopped it" if stopped_by_holter(record) else f"; it was ended with {exited.signal or 'a signal'}"
        )
    return make_ending(record, "hung", "hung" if exited else "hangs", exited, more=more)


def running(record: RecordLike) -> Ending:
    """Tell a run that is on; of a process that Holter only looked at, also what it was at."""
    looks = record.of(Detached)
    if record.facts.attached is None or not looks:
        return make_ending(record, "running", "is running", None)
    cpu = looks[-1].cpu or 0.0
    busy = f"{cpu:.1f} of a core busy" if cpu < 1 else f"{cpu:.1f} cores busy"
    stack = next((stack for stack in stacks_of(record, ("attach",)) if stack.frames), None)
    at = (stack.user_frames or stack.frames)[0] if stack is not None else None
    seen = f", last seen at {at.place} in {at.function}" if at is not None else ""
    return make_ending(record, "running", "was running when it was looked at", None, more=busy + seen)


def crashed(record: RecordLike, exited: Exit) -> Ending:
    """Tell a crash in compiled code."""
    core = any(event.core for event in (*record.of(Ended), *record.of(Exited)))
    words = f"crashed in compiled code with {exited.signal}" + (" (core dumped)" if core else "")
    return make_ending(record, "crashed", words + _through(exited), exited)


def killed(record: RecordLike, left: Exit, sent: Sent | None) -> Ending:
    """Tell a kill by a signal as just that, with the memory at that time for a SIGKILL."""
    name = left.signal or (sent.name if sent else "a signal")
    words = f"was killed with {name}{_through(left)}"
    if sent is not None and sent.who:
        words += f", sent by {sent.who}"
    curve = memory_curve(record)
    more = curve.against if name == "SIGKILL" and curve is not None else ""
    return make_ending(record, "killed", words, left, sender_evidence(sent), more)


def failed(record: RecordLike, exited: Exit) -> Ending:
    """Tell a non-zero exit by its exception, else by its code."""
    raised = raised_at_end(record)
    if raised is None:
        words = f"ended with exit code {exited.code} and no traceback"
        for event in record.of(ExitCalled):
            if event.file:
                at = f"{short_path(event.file)}:{event.line or 0}"
                words = f"ended with exit code {exited.code}, called at {at}"
        output = last_words(record)
        return make_ending(record, "exception", words, exited, [Evidence("last output", output)] if output else ())
    frame = culprit_frame(raised)
    words = f"ended with {raised.name}" + (f" at {frame.short}" if frame is not None else "")
    began = raised.root.name
    return make_ending(
        record, "exception", words, exited, more=f"it began with {began}" if began != raised.name else ""
    )


def exited_with_zero(record: RecordLike, exited: Exit, sent: Sent | None) -> Ending:
    """Tell exit code 0: completed, stopped early, or asked to stop."""
    found = shortfall_of(record)
    if found is None:
        meant, short = deliberate_stop(record), progress_of(record)
        early = bool(short.planned and (short.step or 0) < short.planned)
        more = f"it stopped on purpose: {meant}" if meant and early else ""
        return make_ending(record, "completed", "completed", exited, more=more)
    if sent is not None and found.raised is None and not found.warning:
        kind: EndingKind = "interrupted" if sent.name == "SIGINT" else "killed"
        who = f", sent by {sent.who}" if sent.who else ""
        words = f"was asked to stop with {sent.name}{who} and left in order with exit code 0"
        return make_ending(record, kind, words, exited, sender_evidence(sent))
    more = found.did
    if found.warning:
        more += f', after a warning: "{found.warning}"'
    elif found.raised is not None:
        more += f", after an error: {found.raised.name}"
    elif found.exit_line is not None:
        more += f", and exit was called at {found.exit_line.short}"
    return make_ending(record, "stopped-early", "stopped early with exit code 0", exited, more=more)


def without_exit(record: RecordLike) -> Ending:
    """Tell a run of which no exit was seen."""
    for event in record.of(StartFailed):
        error = event.error or f"errno {event.errno}"
        return make_ending(record, "exception", "could not be started", None, more=error)
    for ended in record.of(Ended):
        words = ended.because or "how it ended is not known"
        return make_ending(record, "killed", "is over", None, more=words)
    curve = memory_curve(record)
    more = f"{curve.against} at the last reading" if curve is not None else ""
    words = "ended at the same time as its recorder, and nothing saw how (the machine or the container went down?)"
    return make_ending(record, "killed", words, None, more=more)


def last_words(record: RecordLike) -> str:
    """Give the last line of the output: often the only word on why a program left."""
    lines = [line.strip() for line in printed_text(record)[-4000:].splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""


def _through(exited: Exit) -> str:
    if not exited.child or (exited.child_pid is None and exited.code == 124):
        return ""
    who = f"a child (pid {exited.child_pid})" if exited.child_pid else "a child"
    return f" in {who}, by exit code {exited.code}" if exited.code and exited.code >= 124 else f" in {who}"


def sender_evidence(sent: Sent | None) -> list[Evidence]:
    """Give the proof of who sent a signal."""
    return [Evidence("signal", f"{sent.name} from {sent.who or 'an unknown sender'}", sent.when)] if sent else []


def make_ending(
    record: RecordLike,
    kind: EndingKind,
    words: str,
    exited: Exit | None,
    evidence: Sequence[Evidence] = (),
    more: str = "",
) -> Ending:
    where = progress_of(record)
    claim = f"The run {words}{place(record, done=kind == 'completed')}" + (f": {more}" if more else "")
    if record.recorder_lost and exited is not None:
        claim += "; the recorder was lost on the way"
    return Ending(
        kind=kind,
        claim=claim,
        exit_code=exited.code if exited else None,
        signal=exited.signal if exited else None,
        at_step=where.step,
        at_epoch=where.epoch,
        evidence=tuple(evidence),
    )
