"""Processes or threads that ran out.

What it sees: "can't start new thread" or EAGAIN from a fork, and the counts against the pids limit.
Why it matters: workers times threads of their libraries reach a container's pids limit without a plain word.
May be confused with: EAGAIN of a non-blocking socket ("Resource temporarily unavailable" with no fork), want of
memory (ENOMEM has other words).
How sure: established when the error says so and a count stands at its limit; supported on the error alone.
Cure: fewer workers, fewer threads per worker, or a higher limit.
"""

from __future__ import annotations

import re

from holter.diagnosis.core.evidence import latest
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.raised import culprit_of, message_of, raised_at_end
from holter.diagnosis.ending.tracebacks import Raised, printed_text
from holter.finding import Cure, Ending, Evidence, Finding, Grade
from holter.record.events.agent import Made
from holter.record.events.timeline import Cgroup, Processes, ResourceLimits
from holter.units import count

CAUSE = "resource.processes"

_THREAD = re.compile(
    r"can't start new thread|pthread_create failed|fork: (?:retry: )?Resource temporarily unavailable|"
    r"libgomp: Thread creation failed|std::system_error[^\n]{0,80}Resource temporarily unavailable"
)
_AGAIN = re.compile(r"BlockingIOError.{0,20}\[Errno 11\]|\[Errno 11\] Resource temporarily unavailable")
_FORKS = ("fork", "_launch", "_fork_exec", "_execute_child", "spawn", "start")


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Name the limit of processes and threads, and how many there were."""
    if ending.kind not in ("exception", "crashed", "stopped-early"):
        return None
    raised = raised_at_end(record)
    said, late = message_of(raised), printed_text(record)[-20000:]
    in_error = _THREAD.search(said) or (_AGAIN.search(said) and _in_fork(raised))
    used, limit = _count(record)
    full = limit is not None and used is not None and used >= 0.9 * limit
    if not in_error and not (_THREAD.search(late) and (full or ending.kind == "crashed")):
        return None
    grade: Grade = "established" if in_error and full else "supported"
    claim = "no further thread or process could be started"
    evidence = []
    if used and limit and full:
        claim += f": {count(used)} of {count(limit)} were in use"
        evidence.append(Evidence("processes and threads", f"{count(used)} of {count(limit)}"))
    elif limit:
        # They were started too fast to be counted; only the limit is known for sure.
        claim += f": the limit is {count(limit)}"
        evidence.append(Evidence("limit", f"{count(limit)} processes and threads"))
    elif used:
        claim += f": the run had {count(used)}"
        evidence.append(Evidence("threads of the run", count(used)))
    if raised is not None and in_error:
        evidence.append(Evidence("exception", raised.headline, raised.when))
    culprit = culprit_of(raised) if in_error else None
    workers = any((made.num_workers or 0) > 0 for made in record.of(Made))
    fewer = "fewer DataLoader workers, and OMP_NUM_THREADS=1 for each of them"
    if not workers:
        fewer = "start fewer: end each before the next, or hand the work to a pool, ThreadPoolExecutor(max_workers=8)"
    cures = (
        Cure(fewer, "", "equivalent"),
        Cure("a higher limit: docker run --pids-limit=-1, or ulimit -u", "", "exact"),
    )
    return Finding(CAUSE, grade, claim, tuple(evidence), culprit, cures)


def _in_fork(raised: Raised | None) -> bool:
    return raised is not None and any(frame.name in _FORKS for frame in raised.root.frames[-6:])


def _count(record: RecordLike) -> tuple[int | None, int | None]:
    group = latest(record, Cgroup, lambda r: r.pids_limit is not None)
    limits = [(group.pids, group.pids_limit)]
    tree = latest(record, Processes, lambda r: (r.threads or 0) > 0)
    soft = latest(record, ResourceLimits, lambda r: r.nproc is not None).nproc
    limits.append((tree.threads, soft))
    known = [(used, limit) for used, limit in limits if used and limit]
    if known:
        return max(known, key=lambda pair: pair[0] / pair[1])
    return tree.threads, None
