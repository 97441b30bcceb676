"""A time limit ended the run.

What it sees: a scheduler's own words in the output, a signal sent by one, timeout(1) around the command, SIGXCPU.
Why it matters: the run was healthy; it only needs a longer slot or a checkpoint to go on from.
May be confused with: a scheduler that ends a job for its memory, or cancels it on request: other words.
How sure: established by the words or by timeout's exit code; supported by the sender's name alone.
Cure: a longer limit, or checkpoint and resume.
"""

from __future__ import annotations

import re

from holter.diagnosis.core.progress import lasted
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.exits import exit_of, sent_signal, under_timeout
from holter.diagnosis.ending.tracebacks import last_line_with, printed_text
from holter.finding import Cure, Ending, Evidence, Finding, Grade
from holter.units import duration

CAUSE = "external.time-limit"

_WORDS = re.compile(r"DUE TO TIME LIMIT|job killed: walltime|TERM_RUNLIMIT|exceeded its (?:wall ?)?time limit")
_LIMITERS = ("timeout", "gtimeout")
_SCHEDULERS = ("slurmstepd", "slurmd", "pbs_mom", "sge_execd", "sge_shepherd", "sbatchd", "condor_starter")


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Name the limit's keeper and how long the run had been going."""
    exited = exit_of(record)
    if exited is None or ending.kind not in ("killed", "hung", "exception", "interrupted"):
        return None
    sent = sent_signal(record, exited)
    sender = sent.sender.rpartition("/")[2] if sent is not None else ""
    printed = last_line_with(_WORDS, printed_text(record))
    wrapped = under_timeout(record) and exited.code == 124
    took = lasted(record)
    after = f" after {duration(took)}" if took is not None else ""
    grade: Grade = "established"
    if printed:
        claim, proof = f"the scheduler's time limit ended the run{after}", printed
    elif wrapped or sender in _LIMITERS:
        claim, proof = f"timeout ended the run{after}", "exit code 124" if wrapped else f"signal from {sender}"
    elif exited.signal == "SIGXCPU":
        claim, proof = f"the limit of CPU time (ulimit -t) ended the run{after}", "SIGXCPU"
    elif sender in _SCHEDULERS:
        # The scheduler also ends jobs that are cancelled; only its words would say which.
        grade, claim, proof = "supported", f"the scheduler ended the run{after}", f"{exited.signal} from {sender}"
    else:
        return None
    cures = (Cure("ask for a longer limit, or write a checkpoint on SIGTERM and go on from it in the next slot"),)
    return Finding(CAUSE, grade, claim, (Evidence("time limit", proof, exited.t),), None, cures)
