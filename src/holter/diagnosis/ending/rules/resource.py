"""Limits other than memory that ran out."""

from __future__ import annotations

import re

from holter.diagnosis.core.evidence import latest, loader_with_workers
from holter.diagnosis.core.frames import culprit_on
from holter.diagnosis.core.rule import RecordLike, Rule
from holter.diagnosis.ending.raised import culprit_of, message_of, raised_at_end
from holter.diagnosis.ending.tracebacks import Raised, printed_text
from holter.finding import Cure, Ending, Evidence, Finding, Grade
from holter.record.events.agent import Made
from holter.record.events.timeline import Cgroup, Processes, ResourceLimits, SharedMemory
from holter.units import count, share, size

_TOO_MANY_FILES = re.compile(r"Too many open files(?! in system)|\[Errno 24\]|received 0 items of ancdata|\bEMFILE\b")
_THREAD = re.compile(
    r"can't start new thread|pthread_create failed|fork: (?:retry: )?Resource temporarily unavailable|"
    r"libgomp: Thread creation failed|std::system_error[^\n]{0,80}Resource temporarily unavailable"
)
_NO_PROCESS = re.compile(r"BlockingIOError.{0,20}\[Errno 11\]|\[Errno 11\] Resource temporarily unavailable")
_FORKS = ("fork", "_launch", "_fork_exec", "_execute_child", "spawn", "start")
_NAMED = re.compile(
    r"insufficient shared memory|unable to (?:open|write to|allocate) (?:shared memory|file </torch_)|"
    r"(?:No space left on device|\[Errno 28\])[^\n]{0,200}/dev/shm|/dev/shm[^\n]{0,200}No space left|"
    r"torch_shm[^\n]{0,120}(?:No space left|\(28\))|unable to mmap \d+ bytes from file </torch_"
)
_BUS = re.compile(r"DataLoader worker .{0,60}killed by signal: Bus error")


def file_descriptors(record: RecordLike, ending: Ending) -> Finding | None:
    """Open files that ran out.

    What it sees: "Too many open files" (EMFILE) in the exception or the output, and the count against its limit.
    Why it matters: each tensor that a worker sends can hold a descriptor; the limit is often 1,024.
    May be confused with: the machine-wide table being full (ENFILE), which has its own words.
    How sure: established when the error says so.
    Cure: a higher limit, the file_system sharing strategy, or closing what is opened in a loop.
    """
    if ending.kind not in ("exception", "crashed", "stopped-early"):
        return None
    raised = raised_at_end(record)
    message, late = message_of(raised), printed_text(record)[-20000:]
    limit = latest(record, ResourceLimits, lambda r: r.nofile is not None).nofile
    most, pid, name = _fullest(record)
    full = limit is not None and most >= 0.9 * limit
    in_error = _TOO_MANY_FILES.search(message)
    if not in_error and not (_TOO_MANY_FILES.search(late) and full):
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
    workers = "ancdata" in message or "multiprocessing" in message or "worker" in message.lower()
    cures = (sharing if workers else closing, Cure(f"or a higher limit: ulimit -n {more} before the run"))
    return Finding("resource.file-descriptors", grade, claim, tuple(evidence), culprit, cures)


def _fullest(record: RecordLike) -> tuple[int, int | None, str]:
    best: tuple[int, int | None, str] = (0, None, "")
    for _, reading in record.readings(Processes)[-60:]:
        for row in reading.rows:
            fds = row.fds or 0
            if fds > best[0]:
                best = (fds, row.pid, row.name)
    return best


def processes(record: RecordLike, ending: Ending) -> Finding | None:
    """Processes or threads that ran out.

    What it sees: "can't start new thread" or EAGAIN from a fork, and the counts against the pids limit.
    Why it matters: workers times threads of their libraries reach a container's pids limit without a plain word.
    May be confused with: EAGAIN of a non-blocking socket ("Resource temporarily unavailable" with no fork), want of
    memory (ENOMEM has other words).
    How sure: established when the error says so and a count stands at its limit; supported on the error alone.
    Cure: fewer workers, fewer threads per worker, or a higher limit.
    """
    if ending.kind not in ("exception", "crashed", "stopped-early"):
        return None
    raised = raised_at_end(record)
    message, late = message_of(raised), printed_text(record)[-20000:]
    in_error = _THREAD.search(message) or (_NO_PROCESS.search(message) and _in_fork(raised))
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
        Cure("a higher limit: docker run --pids-limit=-1, or ulimit -u"),
    )
    return Finding("resource.processes", grade, claim, tuple(evidence), culprit, cures)


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


def shared_memory(record: RecordLike, ending: Ending) -> Finding | None:
    """Shared memory (/dev/shm) that ran out.

    What it sees: a bus error in a data worker, or an error that names shared memory, and how full /dev/shm was.
    Why it matters: containers give /dev/shm 64 MB; batches of workers travel through it, and the error names neither.
    May be confused with: a bus error from a truncated memory-mapped file, with room left in /dev/shm; a full disk.
    How sure: established when the error names shared memory; supported for a bus error in a worker with /dev/shm full.
    Cure: a larger /dev/shm, fewer workers, or the file_system sharing strategy.
    """
    # A trainer whose worker died of it may wait for that worker for ever, until someone ends it.
    if ending.kind not in ("exception", "crashed", "stopped-early", "hung", "killed", "interrupted"):
        return None
    raised = raised_at_end(record)
    message = message_of(raised)
    late = printed_text(record)[-20000:]
    named = _NAMED.search(message) or _NAMED.search(late)
    bus = _BUS.search(message) or _BUS.search(late)
    total, least = _shm_total_and_least_free(record)
    full = total is not None and least is not None and least < max(0.1 * total, 8e6)
    crashed = ending.kind == "crashed" and ending.signal == "SIGBUS"
    if not named and not (full and (bus or crashed)):
        return None
    if named and "Too many open files" in message + late:
        return None
    grade: Grade = "established" if named else "supported"
    claim = "shared memory (/dev/shm) ran out" + (f": it has {size(total)} in all" if total else "")
    evidence = []
    if total and least is not None and full:
        claim = f"/dev/shm ran out: at least {share(1 - least / total)} of its {size(total)} was in use"
        evidence.append(Evidence("/dev/shm", f"{size(least)} of {size(total)} free at the least"))
    if raised is not None and (named or bus):
        evidence.append(Evidence("exception", raised.headline, raised.when))
    elif bus or crashed:
        evidence.append(Evidence("signal", "SIGBUS, as when a page of shared memory cannot be had"))
    # Where no traceback leads to a line: the loader's, whose batches travel through shared memory.
    culprit = (culprit_of(raised) if named or bus else None) or culprit_on(loader_with_workers(record))
    cures = (
        Cure("give the container more: docker run --shm-size=8g (or --ipc=host)"),
        Cure("or need less: fewer workers, or a smaller prefetch_factor, in the DataLoader", "", "equivalent"),
    )
    return Finding("resource.shared-memory", grade, claim, tuple(evidence), culprit, cures)


def _shm_total_and_least_free(record: RecordLike) -> tuple[float | None, float | None]:
    readings = [(r.total, r.free) for _, r in record.readings(SharedMemory)]
    known = [(total, free) for total, free in readings if total and free is not None]
    if not known:
        return None, None
    # A worker's pages are freed with it: the least of the last minute counts, not what was left at the end.
    return known[-1][0], min(free for _, free in known[-600:])


RULES = (
    Rule.of("resource.file-descriptors", file_descriptors),
    Rule.of("resource.processes", processes),
    Rule.of("resource.shared-memory", shared_memory),
)
