"""From what a dead run left behind to how it ended and why, as far as that can be known.

The log is laid before the doctor's own rules as the output of a record that has nothing else: what they read from an
output alone they say here as well, and nothing of it is written twice.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from holter.autopsy.kernel_words import KernelWords, kernel_words
from holter.autopsy.left_behind import Kill, add_the_end, how_it_ended, kill_of, raised_at_end_of, record_of
from holter.autopsy.log_file import Log, read_log
from holter.autopsy.log_words import (
    loss_gone,
    progress_in,
    says_nan,
    signal_words,
    thread_that_died,
)
from holter.autopsy.opinions import (
    OUT_OF_MEMORY,
    Clues,
    Opinion,
    as_hypothesis,
    hang_of_the_script,
    killed_for_memory,
    memory_causes,
    nan_opinions,
    script_causes,
    silent_end,
)
from holter.autopsy.script_looks import Script, look_at_script
from holter.diagnosis.core.doctor import diagnose
from holter.diagnosis.core.examined import examined
from holter.diagnosis.core.rule import find_rules
from holter.diagnosis.ending.exits import PEER_LOST
from holter.diagnosis.ending.raised import culprit_of, lost_a_worker, message_of, raised_at_end
from holter.diagnosis.ending.shortfall import exhausted_warning
from holter.diagnosis.ending.tracebacks import Raised, warnings_printed
from holter.diagnosis.memory.exhaustion import says_memory_ran_out
from holter.errors import UsageError
from holter.finding import Culprit, Cure, Ending, Evidence, Finding
from holter.record.events.recorder import KernelLine
from holter.record.reader import Record
from holter.units import size

SCHEMA = 1
_ON_ENDINGS = ("user-error", "disk-full", "resource", "native-crash", "external", "device-lost")
_MAX_GUESSES = 4
# What an output proves by its own words; all else that a rule concludes from it alone is a hypothesis.
_PROVEN = ("user-error", "disk-full", "resource", "native-crash", "external.time-limit", "device-lost")
_NO_SPACE = re.compile(r"No space left on device|\[Errno (?:28|122)\]|Disk quota exceeded")


@dataclass(frozen=True)
class Autopsy:
    """How it ended, the opinions on why, and what could not be seen."""

    log: dict[str, Any]
    script: str
    ending: Ending | None  # None where nothing tells how it ended
    claim: str
    evidence: tuple[Evidence, ...]
    opinions: tuple[Opinion, ...]
    unseen: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        ending = asdict(self.ending) if self.ending is not None else {"kind": "unknown", "exit_code": None}
        return {
            "schema": SCHEMA,
            "log": self.log,
            "script": self.script,
            "ending": {**ending, "claim": self.claim, "evidence": [asdict(one) for one in self.evidence]},
            "findings": [opinion.as_json() for opinion in self.opinions],
            "unseen": list(self.unseen),
        }


def autopsy(log_path: str, script_path: str | None = None, kernel: KernelWords | None = None) -> Autopsy:
    """Examine a log, and the script that wrote it where it is known; `kernel` is for words that were kept elsewhere."""
    log = read_log(log_path)
    kernel = kernel_words(log.written) if kernel is None else kernel
    raised = raised_at_end_of(log)
    script = _script_of(script_path, raised)
    record = record_of(log, raised)
    kill = kill_of(log, kernel, raised)
    add_the_end(record, log, kernel, raised, kill)
    ending = how_it_ended(record, log, kill)
    loss = loss_gone(f"{log.head}\n{log.text}" if log.head else log.text)
    clues = Clues(
        ending, progress_in(log.text), log.name, _settle(script), _kernel_silent(log, kernel, kill), loss, script,
        _stale(log, script), culprit_of(raised),
    )  # fmt: skip
    opinions = _in_order(_opinions(clues, record, raised, kill))
    warned = warnings_printed(record) if ending is None or ending.kind != "completed" else ()
    return Autopsy(
        log={"path": log.path, "size": log.size, "left_out": log.left_out, "written": log.written},
        script=script.path if script is not None else "",
        ending=ending,
        claim=_claim(log, ending, clues),
        evidence=(*(ending.evidence if ending is not None else ()), *_last_line(log), *warned),
        opinions=opinions,
        unseen=tuple(_unseen(log, kernel, script)),
    )


def _script_of(path: str | None, raised: Raised | None) -> Script | None:
    """The script that was named, else the first file of the user's in the traceback, where it still lies there."""
    if path is not None:
        return look_at_script(path)
    frames = (frame.file for one in (raised, raised.root) for frame in one.frames if frame.user) if raised else ()
    for file in frames:
        if os.path.isfile(file):
            try:
                return look_at_script(file)
            except UsageError:
                return None
    return None


def _opinions(clues: Clues, record: Record, raised: Raised | None, kill: Kill | None) -> Iterator[Opinion]:
    """Facts as they are found, each followed by what may have led there."""
    ending, message = clues.ending, message_of(raised)
    refused = says_memory_ran_out(message) and not _NO_SPACE.search(message)  # TensorFlow has one error for both
    if kill is not None:
        yield killed_for_memory(kill.line, kill.proof, clues, kill.grade, kill.against)
        yield from memory_causes(clues)
    elif refused:
        yield _refused(clues, raised)
        yield from memory_causes(clues)
    elif lost_a_worker(raised):
        yield from _lost_worker(clues, record, raised)
    elif raised is not None and (thread := thread_that_died(record.output)):
        yield _dead_thread(clues, raised, thread)
    elif says_nan(message) and clues.loss is None:
        claim = f"the script itself says that numbers went wrong: {raised.headline if raised else ''}"
        yield Opinion(Finding("nan.unexplained", "established", claim, (), clues.shown_line), (), clues.settle)
        yield from script_causes(clues, ("nan",))
    yield from nan_opinions(clues)
    if ending is not None and ending.kind in ("killed", "interrupted") and ending.signal != "SIGKILL":
        yield from hang_of_the_script(clues)  # whoever ends a run by hand has often waited for it in vain
    if ending is not None and kill is None and not refused and not lost_a_worker(raised):
        drop = ("user-error",) if says_nan(message) else ()
        yield from _by_the_rules(clues, record, drop)
    if ending is not None and ending.signal == "SIGKILL" and kill is None:
        yield from _bare_kill(clues, record)
    short = clues.progress.fell_short
    if ending is None or ending.kind == "completed":
        yield from _input_ended(clues, record)
    if ending is None and raised is None:
        yield from _crash_of_that_moment(clues, record)
    asked_to_stop = ending is not None and ending.kind in ("killed", "interrupted") and ending.signal != "SIGKILL"
    if (ending is None or asked_to_stop) and clues.loss is None and not lost_a_worker(raised):
        yield from silent_end(clues)
    elif ending is not None and ending.kind == "completed" and short:
        yield from script_causes(clues, ("early-stop",))


def _by_the_rules(clues: Clues, record: Record, drop: tuple[str, ...]) -> Iterator[Opinion]:
    """What the doctor's rules on endings read from an output; what its words do not prove becomes a hypothesis."""
    rules = tuple(rule for rule in find_rules() if rule.cause.startswith(_ON_ENDINGS) and rule.cause not in drop)
    ending = clues.ending or Ending("killed", "")
    found = diagnose(examined(record), ending, rules)[0]
    explained = any(one.family in ("disk-full", "resource", "device-lost") for one in found)
    found = tuple(sorted(found, key=lambda one: one.cause == "user-error"))  # what explains an error comes before it
    for finding in found:
        proven = finding.cause.startswith(_PROVEN)
        against: tuple[str, ...] = (clues.stale,) if clues.stale and finding.culprit is not None else ()
        if finding.cause == "device-lost" and finding.grade == "established":
            finding = replace(finding, grade="supported")
            against = (*against, "the kernel's line does not say which run used the GPU")
        if finding.cause == "user-error" and explained:
            finding = as_hypothesis(finding)
            against = (*against, "the error may only be how the other cause showed itself")
        if finding.cause == "user-error" and PEER_LOST.search(message_of(raised_at_end(record))):
            finding = as_hypothesis(finding)
            against = ("the error is that of a rank that waited: look for the one that failed first",)
        settled = finding.grade == "established"
        yield Opinion(finding if proven else as_hypothesis(finding), against, "" if settled else clues.settle)


def _refused(clues: Clues, raised: Raised | None) -> Opinion:
    """An exception that says by itself that memory ran out."""
    headline = raised.root.headline if raised is not None else ""
    at = f" (at {clues.shown_line.file.rpartition('/')[2]}:{clues.shown_line.line})" if clues.shown_line else ""
    evidence = (Evidence("exception", headline),)
    cures = (Cure("see what fits, before the next run", clues.settle.replace("holter run", "holter plan")),)
    finding = Finding(
        OUT_OF_MEMORY, "established", f"memory ran out: {headline}{at}", evidence, clues.shown_line, cures
    )
    return Opinion(finding, (), clues.settle)


def _lost_worker(clues: Clues, record: Record, raised: Raised | None) -> Iterator[Opinion]:
    """A data worker that a signal ended: memory, or shared memory."""
    headline = raised.headline if raised is not None else ""
    if "Bus error" in message_of(raised):
        yield from _by_the_rules(clues, record, ("user-error",))
        shm = _disk("/dev/shm")
        claim = "/dev/shm may have been too small for the batches of the workers"
        claim += f": it has {size(shm[1])} in all" if shm else ""
        cures = (
            Cure("give the container more: docker run --shm-size=8g"),
            Cure("or use fewer workers", "", "equivalent"),
        )
        evidence = (Evidence("exception", headline),)
        finding = Finding("resource.shared-memory", "hypothesis", claim, evidence, clues.shown_line, cures)
        yield Opinion(finding, ("a memory-mapped file that was cut off ends in the same signal",), clues.settle)
        return
    if "Terminated" in headline or "exited unexpectedly" in headline:
        yield from silent_end(clues)  # it was asked to leave, or left by itself: who ends a run ends its workers too
        return
    claim = f"a data worker was killed, which the kernel does when memory runs out: {headline}"
    finding = Finding(OUT_OF_MEMORY, "hypothesis", claim, (Evidence("exception", headline),), clues.shown_line)
    yield Opinion(finding, (f"nothing shows who killed it{'; ' + clues.kernel_silent if clues.kernel_silent else ''}",),
                  clues.settle)  # fmt: skip
    yield from memory_causes(clues)


def _dead_thread(clues: Clues, raised: Raised, thread: str) -> Opinion:
    """A thread's exception ends the thread and not the program: whatever waits for it then waits for ever."""
    claim = f"the run may have waited for ever for {thread}, which had died of {raised.root.headline}"
    cures = (Cure("catch the error in the thread and hand it on, or give what waits for it a timeout"),)
    evidence = (Evidence("exception in a thread", raised.root.headline),)
    finding = Finding("hang", "hypothesis", claim, evidence, clues.shown_line, cures)
    settle = clues.settle.replace("holter run ", "holter run --on-hang stop ")
    return Opinion(finding, ("the log does not say that anything waited for this thread",), settle)


def _crash_of_that_moment(clues: Clues, record: Record) -> Iterator[Opinion]:
    """The kernel's word on a Python that crashed when the log broke off: a crash leaves none in the log itself."""
    for event in [event for event in record.of(KernelLine) if event.kind in ("segfault", "trap")][-1:]:
        claim = f"it may have crashed in compiled code: the kernel told so of {event.victim} (pid {event.pid})"
        cures = (Cure("let Python print where it stands when it crashes: PYTHONFAULTHANDLER=1"),)
        evidence = (Evidence("kernel log", event.text[:300], event.t),)
        finding = Finding("native-crash", "hypothesis", claim, evidence, None, cures)
        yield Opinion(finding, (f"{clues.log_name} names no process: it may have been another Python",), clues.settle)


def _bare_kill(clues: Clues, record: Record) -> Iterator[Opinion]:
    """SIGKILL in the log's own words, and no line of the kernel's that goes with it."""
    words = signal_words(record.output)
    line = words[1] if words is not None else ""
    told = any(word in line for word in ("OOMKilled", "oom_kill", "oom-kill"))
    claim = f"memory ran out, says what started the run: {line}" if told else (
        "the kernel may have killed it for want of memory, which is the usual reason for this word")  # fmt: skip
    against = () if told else (clues.kernel_silent or "the kernel's log could not be read, so nothing shows a kill",)
    finding = Finding(OUT_OF_MEMORY, "supported" if told else "hypothesis", claim, (Evidence("log", line),))
    yield Opinion(finding, against, clues.settle)
    yield from memory_causes(clues)


def _input_ended(clues: Clues, record: Record) -> Iterator[Opinion]:
    """The framework's own words that there was no more input."""
    warning = exhausted_warning(record)
    if warning:
        claim = f'the input may have ended before the training did: "{warning}"'
        cures = (Cure("repeat the dataset, or ask for as many steps as it has: .repeat(), steps_per_epoch"),)
        finding = Finding("early-stop.input-exhausted", "hypothesis", claim, (Evidence("log", warning),), None, cures)
        yield Opinion(finding, ("a validation that ran out of data prints the same words",), clues.settle)


def _in_order(opinions: Iterable[Opinion]) -> tuple[Opinion, ...]:
    """What is sure before what is a guess, each cause and line once, and few guesses."""
    kept: dict[tuple[str, Culprit | None], Opinion] = {}
    for opinion in opinions:
        kept.setdefault((opinion.finding.cause, opinion.finding.culprit), opinion)
    sure = [one for one in kept.values() if one.finding.grade != "hypothesis"]
    guesses = [one for one in kept.values() if one.finding.grade == "hypothesis"]
    return (*sure, *guesses[:_MAX_GUESSES])


def _settle(script: Script | None) -> str:
    """The command that records the next run."""
    if script is None or script.path.endswith(".ipynb"):
        return "holter run -- COMMAND"
    path = os.path.relpath(script.path)
    return f"holter run -- python {shlex.quote(path if not path.startswith('..') else script.path)}"


def _kernel_silent(log: Log, kernel: KernelWords, kill: Kill | None) -> str:
    return "the kernel's log has no kill of that time" if kill is None and kernel.saw(log.written) else ""


def _stale(log: Log, script: Script | None) -> str:
    changed = script is not None and log.written is not None and script.changed > log.written
    return "the script was changed after the log was written: its lines may not be those that ran" if changed else ""


def _claim(log: Log, ending: Ending | None, clues: Clues) -> str:
    reached = f" at {clues.progress.words}" if clues.progress.words else ""
    if log.size == 0:
        return f"{log.name} is empty: nothing in it tells how the run ended"
    if ending is None:
        return f"{log.name} breaks off{reached}: nothing in it tells how the run ended"
    claim = ending.claim.removeprefix("The run ")
    if ending.kind == "running":
        return claim
    return f"the run {claim}{reached}" if ending.kind != "completed" else f"the run seems to have completed{reached}"


def _last_line(log: Log) -> Iterator[Evidence]:
    line = next((line.strip() for line in reversed(log.text[-20_000:].split("\n")) if line.strip()), "")
    if line:
        yield Evidence("last line", line[:200])


def _unseen(log: Log, kernel: KernelWords, script: Script | None) -> Iterator[str]:
    """What could not be looked at, so that nobody takes silence for an answer."""
    if log.left_out:
        yield f"{size(log.left_out)} in the middle of {log.name} were not read: only its ends and its marks are"
    if log.written is None:
        yield "when the log was written is not known, so the kernel's log can't be held against it"
    elif not kernel.readable:
        yield f"the kernel's log: {kernel.because}"
    elif not kernel.saw(log.written):
        yield "the kernel's log reaches not back to the end of this log (a reboot, or lines written over)"
    if script is None:
        yield "the script: name it, and its known traps are looked for too (holter autopsy LOG SCRIPT)"
    elif script.unread:
        yield f"the script: {script.unread}"
    for path in (os.path.dirname(os.path.abspath(log.path)) if log.path != "-" else "", "/dev/shm"):
        room = _disk(path) if path else None
        if room is not None and room[1] and room[0] < 0.02 * room[1]:
            yield f"{path} is nearly full now: {size(room[0])} of {size(room[1])} are free"


def _disk(path: str) -> tuple[int, int] | None:
    try:
        found = shutil.disk_usage(path)
    except OSError:
        return None
    return found.free, found.total
