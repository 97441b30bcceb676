"""Which endings say that memory ran out: only such a run, or one that hangs where the user asked for it, is run again.

A script that leaves with `sys.exit(1)` after it met an error of memory has decided for itself; so has whoever sent a
signal. A finding on why says nothing of how a run ended: a leak may be seen in a run that failed for its own reasons.
"""

from __future__ import annotations

from holter.finding import Verdict
from holter.record.events.agent import ExitCalled, UncaughtException
from holter.record.events.recorder import Ended, Exited, ProcessJoined
from holter.record.reader import Record

_FOR_MEMORY = ("oversize", "leak", "fragmentation", "resource")  # families of causes
_SHARED = "resource.shared-memory"  # a full /dev/shm ends a process with SIGBUS
_TYPES = ("MemoryError", "_ArrayMemoryError", "OutOfMemoryError", "ResourceExhaustedError")
_WORDS = (
    "out of memory",  # CUDA, ROCm, MPS
    "can't allocate memory",  # PyTorch on the CPU
    "cannot allocate memory",  # the kernel's own words
    "invalid buffer size",  # MPS, for a single tensor
    "resource_exhausted",  # XLA
    "cublas_status_alloc_failed",
    "std::bad_alloc",
    "out of shared memory",  # of data workers
)
_AT_ONCE = 30.0  # seconds from a process's last words to the end of the run, where a shell stands in between


def ran_out(verdict: Verdict, said_so: bool) -> bool:
    """Whether a run ended for lack of memory; `said_so`: by an exception that says it (see `said_in`)."""
    kind, first = verdict.ending.kind, next(iter(verdict.findings), None)
    if kind == "oom-killed":  # by the kernel's own counters
        return True
    if first is None or first.family not in _FOR_MEMORY or first.grade == "hypothesis":
        return False
    if kind == "killed":  # by a daemon that watches over memory, or by macOS: the curve says so
        return verdict.ending.signal == "SIGKILL"
    if kind == "crashed":
        return first.cause == _SHARED
    return kind == "exception" and said_so


def said_in(record: Record) -> bool:
    """Whether the command's own process ended with an uncaught exception that says that memory ran out."""
    last = [event for event in record.of(UncaughtException) if event.main]
    for command in record.of(ProcessJoined)[:1]:
        if command.python:  # what became of a child is the script's own to judge
            last = [event for event in last if event.pid == command.pid]
    if not last:
        return False
    final = max(last, key=lambda event: event.m)
    ends = [event.m for event in (*record.of(Exited), *record.of(Ended))]
    if ends and min(ends) - final.m > _AT_ONCE:
        return False
    if any(event.m >= final.m for event in record.of(ExitCalled)):
        return False
    return final.type in _TYPES or any(known in final.message.lower() for known in _WORDS)
