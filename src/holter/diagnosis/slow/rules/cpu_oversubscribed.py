"""More computing threads than cores.

What it sees: many more threads of the run that want to compute than there are cores, each of them waiting for a core
for most of the time, in processes that compute with several threads each (PyTorch's or TensorFlow's pools, OpenMP,
ranks that each take all cores), or in data workers of which each computes with several.
Why it matters: a parallel operation ends when its last thread does, and the last one has to wait for a core; steps
take several times as long as with a thread per core.
May be confused with: other programs that take the CPU (few threads of the run, each starved); data workers with one
thread each, which are slow for another reason.
How sure: supported when at any moment at least two and a half times as many threads as cores were ready to run, they
had less than half of the time they wanted, and the run asked for so many threads itself, or most of its data workers
were seen to compute with several. What the same run takes with
fewer threads was not measured, so it is never established.
Cure: as many threads as cores, divided among the processes; one for each data worker.
"""

from __future__ import annotations

import math
from statistics import median

from holter.diagnosis.core.evidence import first_in_sources, last_processes, loader_with_workers, roles
from holter.diagnosis.core.frames import culprit_on
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.slow.cpu_share import CpuShare, cpu_share_of
from holter.diagnosis.slow.step_times import anatomy_of
from holter.finding import Culprit, Cure, Ending, Evidence, Finding
from holter.record.events.agent import FrameworkSettings
from holter.record.events.timeline import Processes, StepWindow, Threads
from holter.source.lines import calls_of
from holter.units import count, share

CAUSE = "cpu.oversubscribed"
YIELDS_TO = ("thrash",)

_OBSERVED = 8.0
_TIMES = 2.5
_GOT = 0.5
_COMPUTES = 0.1  # of a core: a process that counts as one that computes
_BUSY = 0.3  # of a core that a thread had or waited for
_CALLS = ("set_num_threads", "set_intra_op_parallelism_threads", "set_inter_op_parallelism_threads")
_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")

_ONE_EACH = (
    Cure(
        "one thread for each worker: NumPy, SciPy and OpenCV take one for each core",
        "OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 holter run -- COMMAND",
        "equivalent",
    ),
    Cure(
        "or, for what PyTorch and OpenCV compute there, in a worker_init_fn",
        "torch.set_num_threads(1); cv2.setNumThreads(0)",
        "equivalent",
    ),
)


def examine(record: RecordLike, ending: Ending) -> Finding | None:  # noqa: ARG001 - the shape of a rule
    """Say how many threads share how many cores, and which line set their number."""
    found, anatomy = cpu_share_of(record), anatomy_of(record)
    if found is None or anatomy is None or found.seconds < _OBSERVED or anatomy.training < _OBSERVED:
        return None
    # A quota of half a core still lets one thread run at a time.
    cores = max(1, math.ceil(found.cores))
    set_to = max((event.intra_op or 0 for event in record.of(FrameworkSettings)), default=0)
    computing = _computing(record)
    ranks, demand = _ranks(record), found.had + found.waited
    # Workers with a thread each are many processes, but each of them is as it should be; a framework's pools hold
    # more threads than cores, but few of them want to run at one moment.
    asked_for = set_to * ranks >= 2 * cores
    threaded = demand >= 2 * _TIMES * cores and demand >= 3 * max(1, len(computing))
    if demand < _TIMES * cores or found.got >= _GOT:
        return None
    workers, each = _threads_of_workers(record)
    if not (asked_for or threaded) and not workers:
        return None
    waited = f"each waited for a core {share(1 - found.got)} of the time that it could have run"
    line = first_in_sources(record, _sets_threads)
    if workers:
        of_them = f"each of {count(workers)} data workers computes with {each} threads or more"
        claim = f"{of_them}, and there are {found.cores:g} cores: {waited}"
        line = line or culprit_on(loader_with_workers(record))
        return Finding(CAUSE, "supported", claim, _proof(record, found, set_to), line, _ONE_EACH)
    fair = max(1, cores // ranks)
    claim = f"{max(found.wanting, demand):.0f} threads of the run want to compute on {found.cores:g} cores: {waited}"
    return Finding(CAUSE, "supported", claim, _proof(record, found, set_to), line, _cures(line, fair))


def _threads_of_workers(record: RecordLike) -> tuple[int, int]:
    """Give how many data workers computed with several threads at once, and with how many at least; 0 unless most did.

    Only the busiest threads are listed: where there are more, each has at least so many.
    """
    workers = {pid for pid, role in roles(record).items() if role == "worker"}
    most: dict[int, list[int]] = {}
    for _, reading in record.readings(Threads):
        busy: dict[int, int] = {}
        for row in reading.rows:
            if row.pid in workers and (row.cpu or 0.0) + (row.wait or 0.0) >= _BUSY:
                busy[row.pid] = busy.get(row.pid, 0) + 1
        for pid, threads in busy.items():
            most.setdefault(pid, []).append(threads)
    usual = [int(median(threads)) for threads in most.values()]
    several = [threads for threads in usual if threads >= 2]
    return (len(several), min(several)) if len(several) >= 2 and len(several) > len(usual) / 2 else (0, 0)


def _computing(record: RecordLike) -> list[int]:
    anatomy = anatomy_of(record)
    lived = max(1.0, anatomy.end - anatomy.begin) if anatomy is not None else 1.0
    return [pid for row in last_processes(record)
            if (row.cpu_s or 0.0) >= _COMPUTES * lived and (pid := row.pid)]  # fmt: skip


def _ranks(record: RecordLike) -> int:
    stepped = {line.pid for line in record.of(StepWindow)}
    return len(stepped & {pid for pid, role in roles(record).items() if role == "trainer"}) or 1


def _proof(record: RecordLike, found: CpuShare, set_to: int) -> tuple[Evidence, ...]:
    proof = [Evidence("run queue", f"{found.waited:.1f} threads waited for a core on average, {found.had:.1f} ran")]
    if set_to:
        proof.append(Evidence("threads for one operation", f"{set_to}, on {found.cores:g} cores"))
    variables = record.facts.variables
    proof += [Evidence("environment", f"{name}={variables[name][:20]}") for name in _VARIABLES if name in variables]
    switches = [reading.ctx_involuntary for _, reading in record.readings(Processes)]
    known = [value for value in switches if value is not None]
    anatomy = anatomy_of(record)
    if len(known) >= 2 and anatomy is not None:
        per_second = (known[-1] - known[0]) / max(1.0, anatomy.end - anatomy.begin)
        proof.append(Evidence("taken off the CPU", f"{per_second:.0f} times a second (main threads)"))
    return (*proof, *(anatomy.evidence if anatomy is not None else ()))


def _sets_threads(lines: list[str]) -> int | None:
    """Find the line of the user's that sets the number of threads."""
    called = [line for line, _name in calls_of(lines, _CALLS)]
    for at, code in enumerate(lines, 1):
        if any(name in code for name in _VARIABLES) and "environ" in code and not code.strip().startswith("#"):
            called.append(at)
    return next(iter(called), None)


def _cures(culprit: Culprit | None, fair: int) -> tuple[Cure, ...]:
    if culprit is not None and "set_num_threads(" in culprit.code:
        how = f"-{culprit.code}\n+torch.set_num_threads({fair})"
    else:
        how = f"OMP_NUM_THREADS={fair} holter run -- COMMAND"
    return (
        Cure(
            f"{fair} thread{'s' if fair > 1 else ''} for each process, as many in all as there are cores",
            how,
            "equivalent",
        ),
    )
