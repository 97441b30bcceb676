"""What a dead run left behind, laid out as a record: its log as the output, the exception and the kernel's lines as
events. The doctor's rules read it as they read any other.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from typing import Any

from holter.autopsy.kernel_words import KernelWords
from holter.autopsy.log_file import Log
from holter.autopsy.log_words import ends_in_traceback, pids_in, progress_in, says_done, signal_words, thread_that_died
from holter.diagnosis.ending.ending import ending_of
from holter.diagnosis.ending.raised import lost_a_worker
from holter.diagnosis.ending.tracebacks import Raised, parse_tracebacks
from holter.finding import Ending, Grade
from holter.record.reader import Record
from holter.record.sources import read_source
from holter.units import duration

# What launchers and wrappers raise about a process of theirs that failed first.
_LAUNCHERS_OWN = (
    "ChildFailedError",
    "ProcessRaisedException",
    "ProcessExitedException",
    "CalledProcessError",
    "SignalException",
)
_MAX_RAISED = 50
_MAX_MESSAGE_LETTERS = 4000
_SAME_MOMENT_S = 60.0
_CLOCKS_S = 5.0
_INTERPRETER = re.compile(r"^(?:python|pt_main_thread|pt_data_worker|torchrun|ray::)")
_SLURM_JOB = re.compile(r"/job_(\d+)\b")
_TIME_LIMIT = re.compile(r"DUE TO TIME LIMIT|job killed: walltime|TERM_RUNLIMIT")
_MAX_SOURCES = 40


def raised_at_end_of(log: Log) -> Raised | None:
    """The exception that the log ends with: the last one of the user's own code, not what a launcher says of it."""
    if not ends_in_traceback(log.text):
        return None
    found = [one for one in parse_tracebacks(log.text)[-_MAX_RAISED:] if one.name not in _LAUNCHERS_OWN]
    own = [one for one in found if any(frame.user for part in (one, one.root) for frame in part.frames)]
    chosen = own[-1] if own else found[-1] if found else None
    return replace(chosen, message=_whole_message(chosen.message, log.text)) if chosen is not None else None


def _whole_message(first: str, text: str) -> str:
    """A message of several lines to its end: the reason is often not in its first."""
    at = text.rfind(first) if first else -1
    rest = text[at + len(first) :][:_MAX_MESSAGE_LETTERS].split("Traceback (most recent")[0] if at >= 0 else ""
    return first + rest.rstrip()


def record_of(log: Log, raised: Raised | None) -> Record:
    """The log as the output of a record; of the scripts that its traceback names the lines that lie there now."""
    record = Record({"schema": 1, "command": []}, output=log.text)
    if raised is None:
        return record
    chain: list[Raised] = []
    one = raised.cause
    while one is not None and len(chain) < _MAX_RAISED:
        chain.append(one)
        one = one.cause
    record.events.append({"k": "exception", **_moment(log), "main": True, **_row(raised), "chain": [*map(_row, chain)]})
    files = dict.fromkeys(frame.file for part in (raised, *chain) for frame in part.frames if frame.user)
    for file in list(files)[:_MAX_SOURCES]:
        text = read_source(file)
        if text is not None:
            record.sources[file] = text.split("\n")
    return record


def _moment(log: Log) -> dict[str, float]:
    return {"m": log.written or 0.0, "t": log.written or 0.0}


def _row(raised: Raised) -> dict[str, Any]:
    rows = [asdict(frame) for frame in raised.frames]
    return {"type": raised.type, "message": raised.message, "frames": rows}


@dataclass(frozen=True)
class Kill:
    """The kernel's line about a kill, how it is known to be this run's, and how sure that is."""

    line: dict[str, Any]
    proof: str
    grade: Grade
    against: tuple[str, ...] = ()


def kill_of(log: Log, kernel: KernelWords, raised: Raised | None) -> Kill | None:
    """An OOM kill of this run: by the number of the process, else as the only one of a Python at that very moment."""
    kills = {line["pid"]: line for line in kernel.around(log.written) if line.get("oom") and line.get("pid")}
    named = pids_in(f"{log.head}\n{log.text}") if kills else set()
    for pid, line in kills.items():
        if pid in named:
            return Kill(line, f"{log.name} names process {pid} too", "established")
        job = _SLURM_JOB.search(line.get("memcg", ""))
        if job is not None and re.search(rf"(?<!\d){job[1]}(?!\d)", log.name):
            return Kill(line, f"the kernel names job {job[1]}, as {log.name} does", "established")
    if log.written is None or log.writers or (raised is not None and not lost_a_worker(raised)):
        return None
    near = [
        line
        for line in kills.values()
        if -_CLOCKS_S <= line["t"] - log.written <= _SAME_MOMENT_S and _INTERPRETER.match(line.get("victim", ""))
    ]
    if not near or says_done(log.text) or progress_in(log.text).reached_its_plan:
        return None
    written = log.written
    line = min(near, key=lambda one: abs(one["t"] - written))
    apart = duration(abs(line["t"] - written))
    proof = f"{log.name} was last written {apart} {'before' if line['t'] >= written else 'after'} the kill"
    against = f"{log.name} does not name process {line['pid']}: it may have been another Python's"
    others = f"; {len(near)} Pythons were killed around then" if len(near) > 1 else ""
    return Kill(line, proof, "hypothesis", (against + others,))


def add_the_end(record: Record, log: Log, kernel: KernelWords, raised: Raised | None, kill: Kill | None) -> None:
    """Add to the record what tells of the end: a kill, the kernel's words about hardware, a signal, an exit code."""
    for line in kernel.around(log.written):
        at_its_end = log.written is not None and -_CLOCKS_S <= line["t"] - log.written <= _SAME_MOMENT_S
        crash = line["kind"] in ("segfault", "trap") and at_its_end and _INTERPRETER.match(line.get("victim", ""))
        if line["kind"] in ("xid", "io", "hardware") or crash:
            record.events.append({"k": "kernel", "m": line["t"], **line})
    words = signal_words(log.text)
    if kill is not None and kill.grade != "hypothesis" and raised is None:
        fields: dict[str, Any] = {"exit_code": None, "signal": "SIGKILL"}
    elif raised is not None and not thread_that_died(log.text):
        fields = {"exit_code": 1, "signal": None}
    elif words is not None:
        fields = {"exit_code": None, "signal": words[0]}
    elif _TIME_LIMIT.search(log.text[-20_000:]):
        fields = {"exit_code": None, "signal": "SIGTERM"}
    elif says_done(log.text) or progress_in(log.text).reached_its_plan:
        fields = {"exit_code": 0, "signal": None}
    else:
        return
    record.events.append({"k": "exited", **_moment(log), **fields})


def how_it_ended(record: Record, log: Log, kill: Kill | None) -> Ending | None:
    """How it ended, where anything tells; None where the log breaks off without a word."""
    if log.writers:
        return Ending("running", f"{log.name} is still open: process {log.writers[0]} may be writing to it")
    if not any(event["k"] == "exited" for event in record.events):
        return None
    if kill is not None and kill.grade != "hypothesis":
        return Ending("oom-killed", "The run was killed by the kernel: out of memory", signal="SIGKILL")
    return ending_of(record)
