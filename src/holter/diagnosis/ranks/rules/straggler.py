"""One rank that is later than the others at every collective, one rule for each part of it that is slow."""

from __future__ import annotations

from holter.diagnosis.core.evidence import latest
from holter.diagnosis.core.examined import once
from holter.diagnosis.core.rule import RecordLike, Rule
from holter.diagnosis.ranks.lateness import Straggler, straggler_of
from holter.finding import Cure, Ending, Evidence, Finding, Grade
from holter.record.events.timeline import Nvidia
from holter.units import duration

_INTO = {
    "data": "into waiting for its data", "forward": "into forward", "backward": "into backward",
    "optimizer": "into the optimizer", "other": "into the loop's own code", "": "into its own work",
}  # fmt: skip


def rank(record: RecordLike, _ending: Ending) -> Finding | None:
    """A rank whose own code takes longer than that of the others.

    What it sees: when each rank began the same collectives, read now and then from PyTorch's Flight Recorder; one rank
    begins most of them last, by a sixth of a step or more, at look after look; and on which line it is seen more often.
    Why it matters: all ranks wait for it at each step, so the whole job runs at its speed, and no step time shows whose
    fault it is.
    May be confused with: ranks whose batches differ in size, where now one and now another is last; a rank that
    evaluates or saves now and then.
    How sure: established when it was last at 85 % of the numbers of three looks; supported with fewer.
    Cure: what that rank does and the others do not, on that line; else its share of the machine.
    """
    return _if_it_is(record, "rank")


def data(record: RecordLike, _ending: Ending) -> Finding | None:
    """A rank that waits for its data longer than the others.

    What it sees: the same as `straggler.rank`, and that the time is spent waiting for a loader.
    Why it matters: all ranks wait for the one whose shard, disk or workers are slow.
    May be confused with: a loader that is slow on all ranks, which is `input-bound`.
    How sure: as `straggler.rank`.
    Cure: that rank's shard, disk or number of workers.
    """
    return _if_it_is(record, "data")


def device(record: RecordLike, _ending: Ending) -> Finding | None:
    """A rank whose GPU runs slower than those of the others.

    What it sees: the same as `straggler.rank`, on the same lines as the others, while the driver says that a GPU is
    held back by heat or power.
    Why it matters: one GPU that is too hot slows down all of them.
    May be confused with: a larger batch on that rank.
    How sure: as `straggler.rank`.
    Cure: that GPU's cooling or power limit; another GPU.
    """
    return _if_it_is(record, "device")


def network(record: RecordLike, _ending: Ending) -> Finding | None:
    """Ranks of several machines that are late to each other, while none of them has more to do than the others.

    What it sees: the same as `straggler.rank`, but the late rank spends its time in the same phases and on the same
    lines as the others.
    Why it matters: no line of the script is to blame; every step waits for the link.
    May be confused with: a rank with a slower CPU or GPU, which is seen longer on the same line.
    How sure: supported, as nobody has measured the link itself.
    Cure: the link between the machines.
    """
    return _if_it_is(record, "network")


def _if_it_is(record: RecordLike, detail: str) -> Finding | None:
    found = _late(record)
    return straggler_finding(found) if found is not None and _detail(found) == detail else None


@once
def _late(record: RecordLike) -> Straggler | None:
    return straggler_of([record])


def straggler_finding(found: Straggler) -> Finding:
    """Say who is late, by how much, in which phase and on which line."""
    detail, name = _detail(found), f"rank {found.rank}"
    if detail == "network":
        return _of_the_link(found)
    cure = {
        "rank": f"see what {name} does there and the others do not",
        "data": f"see the shard, the disk and the data workers of {name}",
        "device": f"see why the GPU of {name} is held back: nvidia-smi -q -d PERFORMANCE",
    }[detail]
    if detail == "rank" and found.line is None:
        cure = f"see what else runs where {name} does, and which data it has"
    at = f" at {found.line.file.rpartition('/')[2]}:{found.line.line}" if found.line is not None else ""
    claim = (
        f"{name} is late: it begins {found.last_at:,} of {found.of:,} collectives last, {duration(found.late)} "
        f"after the others in the median, of {duration(found.round)} a step; the time goes {_INTO[found.phase]}{at}"
    )
    grade: Grade = "established" if found.sure else "supported"
    if found.on_the_way:
        grade = "hypothesis"  # that it is late was seen, and nothing of why
    evidence = [Evidence("lateness", f"{duration(found.late)} at {found.looks} of {found.looked} looks")]
    if found.line is not None:
        share = f"{found.seen:.0%} of its time, {found.others_seen:.0%} of the others'"
        evidence.append(Evidence("line", f"{found.line.file.rpartition('/')[2]}:{found.line.line}: {share}"))
    host = found.record.facts.host
    return Finding(
        f"straggler.{detail}", grade, claim, tuple(evidence), found.line, (Cure(cure),), rank=found.rank, host=host
    )


def _of_the_link(found: Straggler) -> Finding:
    claim = (
        f"the ranks wait for the network: they begin the same collectives {duration(found.late)} apart in the median, "
        f"of {duration(found.round)} a step, and none has more to do in its own code than the others"
    )
    evidence = Evidence("latest", f"rank {found.rank} at {found.last_at:,} of {found.of:,} collectives")
    cure = Cure("measure the link between the machines (iperf3); GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME chooses it")
    return Finding("straggler.network", "supported", claim, (evidence,), None, (cure,))


def _detail(found: Straggler) -> str:
    if found.phase == "data":
        return "data"
    gpus = latest(found.record, Nvidia, lambda reading: any(row.throttle for row in reading.rows)).rows
    same_lines = found.line is None or found.others_seen > 0.5 * found.seen
    if same_lines and any(row.throttle for row in gpus):
        return "device"
    return "network" if found.on_the_way and found.several_machines else "rank"


RULES = (
    Rule.of("straggler.rank", rank),
    Rule.of("straggler.data", data),
    Rule.of("straggler.device", device),
    Rule.of("straggler.network", network),
)
