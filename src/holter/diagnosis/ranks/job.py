"""Which ranks a record holds, and which of them a process or a finding belongs to."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from holter.diagnosis.core.evidence import last_processes
from holter.diagnosis.core.examined import once
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.exits import child_death, exit_of
from holter.diagnosis.ending.oom_killer import oom_kill_of
from holter.diagnosis.ending.raised import raised_at_end
from holter.diagnosis.hang.stalls import open_stall, stacks_of
from holter.diagnosis.nonfinite.nonfinite import nonfinite_of
from holter.finding import Ending, Finding
from holter.record.events.agent import AgentHello, ExitCalled, NoSpace
from holter.record.events.ranks import RankCame, RankJoined
from holter.record.events.recorder import ProcessJoined
from holter.record.events.rows import Job

_OF_NO_RANK = ("straggler", "cpu", "input-bound", "overhead", "recompile", "thrash")
_SEVERAL = re.compile(r"^(?:straggler|hang\.collective)")


@once
def rank_numbers(record: RecordLike) -> dict[int, int]:
    """Give the rank of each process that is one, as its launcher or PyTorch numbered it."""
    found: dict[int, int] = {}
    for hello in record.of(AgentHello):
        number = _number(hello.rank)
        if hello.pid is not None and number is not None and hello.role != "worker":
            found[hello.pid] = number
    came: list[RankCame | RankJoined] = [*record.of(RankCame), *record.of(RankJoined)]
    for event in came:
        if event.pid is not None and event.rank is not None:
            found[event.pid] = event.rank
    return found


@once
def world_of(record: RecordLike) -> int:
    """Give how many ranks the job has; 1 where none are known."""
    joined = [event.world or 0 for event in record.of(RankJoined)]
    said = [event.world or 0 for event in record.of(RankCame)] + [event.world or 0 for event in record.of(AgentHello)]
    return max(1, *joined) if any(joined) else max([1, *said, record.facts.job.world or 0])


@once
def job_of(record: RecordLike) -> Job:
    """Give what the launcher said of the job: to Holter itself, else to one of its processes."""
    known = [event.job for event in record.of(AgentHello) if event.job.key]
    return known[-1] if known else record.facts.job


@once
def rank_of(record: RecordLike, pid: int | None) -> int | None:
    """Give the rank that a process is, or whose child it is."""
    numbers, seen = rank_numbers(record), set[int]()
    parents = {event.pid: event.ppid for event in record.of(ProcessJoined)}
    parents |= {event.pid: event.ppid for event in record.of(AgentHello)}
    parents |= {row.pid: row.ppid for row in last_processes(record) if row.ppid}
    while pid is not None and pid not in seen:
        if pid in numbers:
            return numbers[pid]
        seen.add(pid)
        pid = parents.get(pid)
    return None


def with_ranks(record: RecordLike, ending: Ending, findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Say of each finding which rank it is about, where the job has several and the facts tell."""
    if world_of(record) < 2:
        return tuple(findings)
    host = record.facts.host
    numbered = []
    for finding in findings:
        rank = finding.rank if finding.rank is not None else rank_of(record, _process(record, ending, finding))
        if rank is None and len(set(rank_numbers(record).values())) == 1 and not _SEVERAL.match(finding.cause):
            rank = next(iter(rank_numbers(record).values()))  # a Holter for each rank: there is but one in its record
        numbered.append(replace(finding, rank=rank, host=finding.host or (host if rank is not None else "")))
    return tuple(numbered)


def _process(record: RecordLike, ending: Ending, finding: Finding) -> int | None:
    """Give the process that a finding is about."""
    family, exited = finding.family, exit_of(record)
    if finding.cause == "hang.collective" or family in _OF_NO_RANK:
        return None  # they say themselves whom they mean, or are about the machine
    if family == "nan":
        seen = nonfinite_of(record)
        return seen.event.pid if seen is not None else None
    if family == "hang":
        stall = open_stall(record)
        return stall.pid if stall is not None else None
    if family == "disk-full":
        full = record.of(NoSpace)
        raised = raised_at_end(record)
        return raised.pid if raised is not None else full[-1].pid if full else None
    if ending.kind == "oom-killed":
        kill = oom_kill_of(record, exited)
        return kill.pid if kill is not None else None
    raised = raised_at_end(record)
    if ending.kind == "exception" and raised is not None and raised.pid:
        return _spawned_child(record, raised.message) or raised.pid
    if family in ("native-crash", "external", "oversize", "resource"):
        fatal = [stack.pid for stack in stacks_of(record, ("fatal",))]
        death = child_death(record)
        if exited is not None and exited.child_pid:
            return exited.child_pid
        return death[1] if death is not None else fatal[0] if len(fatal) == 1 else None
    if family == "early-stop":
        called = record.of(ExitCalled)
        return called[-1].pid if called else None
    return None


def _spawned_child(record: RecordLike, message: str) -> int | None:
    """Give the process that torch.multiprocessing speaks of: it numbers those that it has spawned, in their order."""
    which = re.search(r"-- Process (\d{1,4}) terminated", message)
    came = sorted({event.pid for event in record.of(RankCame) if event.pid})
    return came[int(which[1])] if which is not None and int(which[1]) < len(came) else None


def _number(value: str | int | None) -> int | None:
    if isinstance(value, str):
        return int(value) if value.isdigit() and len(value) < 7 else None
    return value


def ranks_in_words(ranks: Sequence[int | str]) -> str:
    """Name some ranks in a sentence: `rank 1`, `ranks 0, 2 and 3`."""
    shown = [str(rank) for rank in ranks[:6]]
    if len(ranks) == 1:
        return f"rank {shown[0]}"
    if len(ranks) > 6:
        return f"ranks {', '.join(shown)} and {len(ranks) - 6} more"
    return f"ranks {', '.join(shown[:-1])} and {shown[-1]}" if shown else "no rank"


def ranks_of_the_other_node(record: RecordLike) -> tuple[int, ...]:
    """Give the ranks that torchrun starts on the other one of two nodes; none where that is not in its command."""
    found = dict[str, int]()
    words = [part for word in record.facts.words for part in word.split("=", 1)]
    for name, value in itertools.pairwise(words):
        option = name.lstrip("-").replace("-", "_")
        if option in ("nnodes", "node_rank", "nproc_per_node") and value.isdigit() and len(value) < 5:
            found[option] = int(value)
    each = found.get("nproc_per_node", 1)
    if found.get("nnodes") != 2 or found.get("node_rank") not in (0, 1):
        return ()
    begin = each * (1 - found["node_rank"])
    return tuple(range(begin, begin + each))
