"""Open files that ran out.

What it sees: "Too many open files" (EMFILE) in the exception or the output, and the count against its limit.
Why it matters: each tensor that a worker sends can hold a descriptor; the limit is often 1,024.
May be confused with: the machine-wide table being full (ENFILE), which has its own words.
How sure: established when the error says so.
Cure: a higher limit, the file_system sharing strategy, or closing what is opened in a loop.
"""

from __future__ import annotations

import re

from holter.diagnosis.core.evidence import latest
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.raised import culprit_of, message_of, raised_at_end
from holter.diagnosis.ending.tracebacks import printed_text
from holter.finding import Cure, Ending, Evidence, Finding, Grade
from holter.record.events.timeline import Processes, ResourceLimits
from holter.units import count

CAUSE = "resource.file-descriptors"

_MANY = re.compile(r"Too many open files(?! in system)|\[Errno 24\]|received 0 items of ancdata|\bEMFILE\b")


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Name the limit of open files and how many the fullest process held."""
    if ending.kind not in ("exception", "crashed", "stopped-early"):
        return None
    raised = raised_at_end(record)
    said, late = message_of(raised), printed_text(record)[-20000:]
    limit = latest(record, ResourceLimits, lambda r: r.nofile is not None).nofile
    most, pid, name = _fullest(record)
    full = limit is not None and most >= 0.9 * limit
    in_error = _MANY.search(said)
    if not in_error and not (_MANY.search(late) and full):
        return None
    grade: Grade = "established" if in_error else "supported"
    claim = "the process ran out of open files"
    evidence = []
    if most and limit and full:
        who = f"pid {pid} {name}".strip()
        claim += f": {who} held {count(most)} of {count(limit)}"
        evidence.append(Evidence("open files", f"{count(most)} of {count(limit)} at the last readings"))
    elif limit:
        # The files were opened too fast to be counted; only the limit is known for sure.
        claim += f": its limit (ulimit -n) is {count(limit)}"
        evidence.append(Evidence("limit", f"{count(limit)} open files"))
    if raised is not None and in_error:
        evidence.append(Evidence("exception", raised.headline, raised.when))
    culprit = culprit_of(raised) if in_error else None
    more = max(65536, 4 * (limit or 1024))
    sharing = Cure("torch.multiprocessing.set_sharing_strategy('file_system')", "workers then send no descriptors")
    closing = Cure("close what the loop opens: with open(...) as f")
    workers = "ancdata" in said or "multiprocessing" in said or "worker" in said.lower()
    cures = (sharing if workers else closing, Cure(f"or a higher limit: ulimit -n {more} before the run"))
    return Finding(CAUSE, grade, claim, tuple(evidence), culprit, cures)


def _fullest(record: RecordLike) -> tuple[int, int | None, str]:
    best: tuple[int, int | None, str] = (0, None, "")
    for _, reading in record.readings(Processes)[-60:]:
        for row in reading.rows:
            fds = row.fds or 0
            if fds > best[0]:
                best = (fds, row.pid, row.name)
    return best
