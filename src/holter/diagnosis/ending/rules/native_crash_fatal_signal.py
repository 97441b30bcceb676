"""A crash in compiled code.

What it sees: the run, or a child of it, ended by SIGSEGV, SIGBUS, SIGABRT, SIGILL or SIGFPE.
Why it matters: Python prints no traceback then; the stack that the agent kept at that moment has the line.
May be confused with: a bus error for want of shared memory, which is told as that; an abort that reports want of
memory (`std::bad_alloc`).
How sure: established that it crashed there when a stack was captured; supported when only the signal is known.
Cure: the call on that line: its library's version, the shapes and types it is given. Where the crash came in Holter's
own code, a run without it, and a report.
"""

from __future__ import annotations

import re

from holter.diagnosis.core.frames import Frame, is_user_file
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.exits import CRASHES, child_death
from holter.diagnosis.ending.raised import culprit_frame, lost_a_worker, raised_at_end
from holter.diagnosis.ending.tracebacks import last_line_with, printed_text
from holter.diagnosis.hang.stalls import Stack, stacks_of
from holter.diagnosis.memory.exhaustion import exhaustion_of
from holter.finding import Cure, Ending, Evidence, Finding, Grade
from holter.record.events.recorder import KernelLine

CAUSE = "native-crash"
YIELDS_TO = ("resource", "disk-full", "oversize", "device-lost", "hang")

_FATAL = re.compile(r"^Fatal Python error: (?P<what>[^\n]{1,200})", re.MULTILINE)
_FRAME = re.compile(r'^  File "(?P<file>[^"\n]+)", line (?P<line>\d{1,9}) in (?P<function>[^\n]+)$', re.MULTILINE)
# What C libraries write before they abort.
_LAST_WORDS = re.compile(
    r"double free|free\(\): |malloc\(\): |munmap_chunk\(\)|corrupted (?:size|double|unsorted)|terminate called after|"
    r"\bAssertion .{1,200} failed|stack smashing detected|pure virtual method called"
)
# The agent's own frames; its wrappers around a call have a mark behind the file's name, and crash in what they call.
_OURS = re.compile(r"/holter/agent/[^#]*\.py$")
_OF_OURS = (
    Cure("run the command without Holter"),
    Cure("report this run, so that it is mended", "holter report --format md"),
)
_ILLEGAL = "this CPU lacks an instruction that a library was built for: install a build for this CPU"


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Name the signal and the innermost user line at that moment."""
    if ending.kind == "exception":
        return _in_a_worker(record, ending)
    if ending.kind != "crashed" or exhaustion_of(record, ending) is not None:
        return None
    evidence = [Evidence("signal", ending.signal or "unknown")]
    fatal = next(iter(_FATAL.finditer(printed_text(record))), None)
    if fatal is not None:
        evidence.append(Evidence("faulthandler", fatal["what"]))
    for event in record.of(KernelLine):
        if "segfault" in event.text or "trap" in event.text:
            evidence.append(Evidence("kernel log", event.text[:300]))
    stacks = stacks_of(record, ("fatal",))
    frames = _deepest(stacks) or _printed(printed_text(record))
    user = next((frame for frame in frames if frame.user), None)
    if frames and _OURS.search(frames[0].file):
        claim = f"{ending.signal} in Holter's own code, in {frames[0].function}() of {frames[0].short}"
        claim += ": this is a fault of Holter, not of the program"
        evidence += [Evidence("stack", f"{frame.short} in {frame.function}") for frame in frames[:8]]
        return Finding(CAUSE, "established", claim, tuple(evidence), None, _OF_OURS)
    evidence += [Evidence("stack", f"{frame.short} in {frame.function}") for frame in frames[:8]]
    grade: Grade = "established" if frames else "supported"
    where = f" at {user.short}" if user is not None else ""
    call = f", in {frames[0].function}() of {frames[0].short}" if frames and not frames[0].user else ""
    claim = f"{ending.signal} in compiled code{where}{call}"
    last = last_line_with(_LAST_WORDS, printed_text(record))
    if last:
        claim += f': "{last}"'
    if not frames:
        claim += "; no stack could be captured"
    hint = (
        _ILLEGAL
        if ending.signal == "SIGILL"
        else "check what that call is given (types, shapes), and its library's version"
    )
    cure = Cure(hint if user is not None or ending.signal == "SIGILL" else f"find the call; {hint}")
    return Finding(CAUSE, grade, claim, tuple(evidence), user.culprit if user else None, (cure,))


def _in_a_worker(record: RecordLike, ending: Ending) -> Finding | None:
    """Tell a data worker that crashed: the trainer outlived it, and raised where it waited for its batch."""
    raised, death = raised_at_end(record), child_death(record)
    if raised is None or not lost_a_worker(raised) or death is None or death[0] not in CRASHES:
        return None
    if death[0] == "SIGBUS" or exhaustion_of(record, ending) is not None:
        return None  # for want of shared memory, most often
    who = f"a data worker (pid {death[1]})" if death[1] else "a data worker"
    frame = culprit_frame(raised)
    at = f"; the trainer noticed at {frame.short}" if frame is not None else ""
    claim = f"{who} ended with {death[0]} in compiled code{at}"
    evidence = (Evidence("exception", raised.headline, raised.when),)
    cure = Cure("num_workers=0 for one run: the crash then comes in the trainer, with its line")
    return Finding(CAUSE, "established", claim, evidence, frame.culprit if frame else None, (cure,))


def _deepest(stacks: list[Stack]) -> tuple[Frame, ...]:
    return max((stack.frames for stack in stacks), key=len, default=())


def _printed(output: str) -> tuple[Frame, ...]:
    match = next(iter(_FATAL.finditer(output)), None)
    if match is None:
        return ()
    body = output[match.end() :]
    # Of several threads the one that was running is written under this heading.
    at = body.find("Current thread")
    body = body[max(at, 0) :].partition("\n\n")[0]
    return tuple(
        Frame(m["file"], int(m["line"]), m["function"], "", is_user_file(m["file"])) for m in _FRAME.finditer(body)
    )
