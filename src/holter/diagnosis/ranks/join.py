"""One verdict for a job whose ranks have records of their own, from one home or copied from several machines.

Pure, as every diagnosis: each record is judged by itself first, then the ranks are held against each other. In order:
who never came; the first that ended for a cause of its own (that a peer is gone is a consequence, never a cause); who
stands where the others do not; who is late; and what is left, of all records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from holter.diagnosis.core.doctor import in_order, verdict
from holter.diagnosis.core.examined import Examined, examined
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.exits import PEER_LOST, ended_at
from holter.diagnosis.ending.raised import message_of, raised_at_end
from holter.diagnosis.hang.ranks import Rank, all_ranks, disagreement, steps_evidence
from holter.diagnosis.hang.rules.collective import finding_between, mismatch_between, not_met
from holter.diagnosis.ranks.job import job_of, rank_numbers, ranks_in_words, world_of
from holter.diagnosis.ranks.lateness import clock_offsets, straggler_of
from holter.diagnosis.ranks.rendezvous import rendezvous_of
from holter.diagnosis.ranks.rules.straggler import straggler_finding
from holter.finding import Evidence, Finding, Verdict

_SIGNALS_OF_LAUNCHERS = ("SIGTERM", "SIGINT", "SIGHUP")
_CLOCKS_APART_S = 60.0
_AFTERWARDS_S = 1.0
# What a rank may stand in by itself, so that the others wait for it in a collective.
_WAITS_OF_ITS_OWN = ("hang.worker", "hang.device", "hang.io", "hang.deadlock")


@dataclass(frozen=True)
class JobVerdict:
    """The verdict, the record that it is mostly about, and what has to be said of the records themselves."""

    verdict: Verdict
    record: RecordLike
    notes: tuple[str, ...]


def job_verdict(records: Sequence[RecordLike]) -> JobVerdict:
    """Say how a job ended and which of its ranks is to blame."""
    tables, notes = _of_one_job([examined(record) for record in records])
    judged = [verdict(table) for table in tables]
    if len(tables) == 1:
        return JobVerdict(judged[0], tables[0], tuple(notes))
    offsets = clock_offsets(tables)
    notes += _what_differs(tables)
    base, findings = _guilty(tables, judged, offsets)
    mine = judged[base]
    seen = {(finding.cause, finding.rank) for finding in findings}
    # Where the guilty one is known, what the others only suffered is not told again.
    if not findings:
        findings = [one for v in judged for one in v.findings if (one.cause, one.rank) not in seen]
        unique: dict[tuple[str, int | None], Finding] = {}
        for one in findings:
            unique.setdefault((one.cause, one.rank), one)
        findings = list(in_order(unique.values(), mine.ending))
    told = _ranks_evidence(tables, judged)
    ending = replace(mine.ending, evidence=(*told, *mine.ending.evidence))
    sure = any(finding.grade != "hypothesis" for finding in findings)
    healthy = all(v.healthy for v in judged) and not sure
    failed = tuple(dict.fromkeys(word for v in judged for word in v.failed_rules))
    acts = tuple(act for v in judged for act in v.interventions)
    run = {**mine.run, "job": _job(tables, mine.run)}
    return JobVerdict(Verdict(run, ending, healthy, tuple(findings), acts, failed), tables[base], tuple(notes))


def _guilty(tables: list[Examined], judged: list[Verdict], offsets: dict[int, float]) -> tuple[int, list[Finding]]:
    """Choose the record that the verdict is about, and the findings to give; none where every record has a say."""
    met = rendezvous_of(tables)
    if met is not None:
        base = next((n for n, table in enumerate(tables) if table is met.record), 0)
        finding = not_met(met, judged[base].ending)
        if finding is not None:
            return base, [finding]

    def end_of(n: int) -> float:
        return (ended_at(tables[n]) or float("inf")) + offsets.get(id(tables[n]), 0.0)

    # Whoever is sent a signal after the others' end is ended for it; before it, the signal is the cause.
    first = min(range(len(tables)), key=end_of)
    signalled = judged[first].ending.kind == "killed" and all(
        end_of(n) > end_of(first) + _AFTERWARDS_S for n in range(len(tables)) if n != first
    )
    ended = [n for n, v in enumerate(judged) if _has_own_cause(tables[n], v) or (n == first and signalled)]
    if ended:
        base = min(ended, key=end_of)
        return base, list(judged[base].findings)
    unfit = mismatch_between(tables)
    if unfit is not None:
        return _spokesman(judged), [unfit]
    stands = _standing(tables, judged, offsets)
    if stands is not None:
        return stands
    late = straggler_of(tables)
    if late is not None:
        base = next((n for n, table in enumerate(tables) if table is late.record), 0)
        others = [one for v in judged for one in v.findings if one.family != "straggler"]
        return base, list(in_order([straggler_finding(late), *others], judged[base].ending))
    return _spokesman(judged), []


def _has_own_cause(record: RecordLike, found: Verdict) -> bool:
    """Tell an end that came from this rank itself: not from a peer that was gone, nor from whoever ended the rest."""
    if found.ending.kind in ("completed", "running", "hung", "interrupted"):
        return False
    raised = raised_at_end(record)
    if raised is not None and PEER_LOST.search(message_of(raised)):
        return False
    if found.ending.kind == "killed" and found.ending.signal in _SIGNALS_OF_LAUNCHERS:
        return False
    return any(not one.cause.startswith(("hang.collective", "straggler")) for one in found.findings)


def _standing(
    tables: list[Examined], judged: list[Verdict], offsets: dict[int, float]
) -> tuple[int, list[Finding]] | None:
    """Hold the ranks against each other where some of them wait or lost their peers."""
    found: list[tuple[int, Rank]] = []
    last = max((ended_at(t) or _last(t)) + offsets.get(id(t), 0.0) for t in tables)
    recorded = {number for table in tables for number in rank_numbers(table).values()}
    for n, table in enumerate(tables):
        end = ended_at(table)
        early = end is not None and last - (end + offsets.get(id(table), 0.0)) > 3.0
        for rank in all_ranks(table):
            if rank.pid < 0 and int(rank.number) in recorded:
                continue  # told through the store; its own record knows better
            left = early and judged[n].ending.kind in ("completed", "stopped-early") and not rank.raised
            found.append((n, replace(rank, record=table, gone=rank.gone or left)))
    hung = any(v.ending.kind in ("hung", "killed", "interrupted", "exception", "running") for v in judged)
    ranks = [rank for _, rank in sorted(found, key=lambda item: item[1].number.zfill(6))]
    if not hung or not any(rank.waits for rank in ranks):
        return None
    between = disagreement(tables[0], ranks)
    guilty = between.guilty
    if guilty is None:
        # Calls that do not fit together are told once, though no rank is to blame more than another.
        hangs = any(v.ending.kind == "hung" for v in judged) and between.kind == "other"
        return (_spokesman(judged), [finding_between(between, ranks, steps_evidence(ranks))]) if hangs else None
    base = next(n for n, rank in found if rank is guilty)
    told = [one for one in judged[base].findings if one.family == "hang" and one.grade != "hypothesis"]
    own = [one for one in told if one.cause in _WAITS_OF_ITS_OWN]
    if own and between.kind == "absent":
        name = next(rank.name for rank in ranks if rank.waits)
        claim = own[0].claim.replace("the process", guilty.name, 1)
        claim += "" if "other ranks wait for" in claim else f", and {name} waits for it"
        return base, [replace(own[0], claim=claim, rank=int(guilty.number) if guilty.number else None)]
    if not any(v.ending.kind == "hung" or _lost_a_peer(t) for v, t in zip(judged, tables, strict=True)):
        return None
    shown = base if judged[base].ending.kind == "hung" else _spokesman(judged)
    return shown, [finding_between(between, ranks, steps_evidence(ranks))]


def _lost_a_peer(record: RecordLike) -> bool:
    raised = raised_at_end(record)
    return raised is not None and bool(PEER_LOST.search(message_of(raised)))


def _spokesman(judged: list[Verdict]) -> int:
    """The record whose ending says most: one that hung or failed, before one that was ended or went well."""
    order = ("hung", "oom-killed", "crashed", "exception", "killed", "interrupted", "stopped-early", "running")
    kinds = [v.ending.kind for v in judged]
    return min(range(len(kinds)), key=lambda n: (order.index(kinds[n]) if kinds[n] in order else len(order), n))


def _of_one_job(tables: list[Examined]) -> tuple[list[Examined], list[str]]:
    """Leave out records of other jobs, and older ones of a rank that is there twice; say which."""
    keys = [job_of(table).key for table in tables]
    known = [key for key in keys if key]
    main = max(dict.fromkeys(known), key=lambda key: (known.count(key), _newest(tables, keys, key)), default="")
    kept, notes = [], []
    for table, key in zip(tables, keys, strict=True):
        if key and key != main:
            notes.append(f"{table.facts.id} is of another job ({key}) and was left out: the others are of {main}")
        else:
            kept.append(table)
    kept.sort(key=lambda table: table.facts.started or 0.0, reverse=True)
    taken: dict[int, str] = {}
    chosen = []
    for table in kept:
        numbers = set(rank_numbers(table).values())
        twice = sorted(numbers & set(taken))
        if twice:
            notes.append(
                f"{table.facts.id} was left out: {ranks_in_words(twice)} is in {taken[twice[0]]} too, which is newer"
            )
            continue
        taken |= dict.fromkeys(numbers, table.facts.id)
        chosen.append(table)
    chosen.sort(key=lambda table: (min(rank_numbers(table).values(), default=1 << 30), table.facts.id))
    return chosen, notes


def _newest(tables: list[Examined], keys: list[str], key: str) -> float:
    return max(table.facts.started or 0.0 for table, one in zip(tables, keys, strict=True) if one == key)


def _what_differs(tables: list[Examined]) -> list[str]:
    """Say what has to be known of the records: ranks without one, several versions, clocks apart."""
    notes = []
    world = max(world_of(table) for table in tables)
    here = {number for table in tables for number in rank_numbers(table).values()}
    missing = sorted(set(range(world)) - here)
    if missing:
        notes.append(f"no record of {ranks_in_words(missing)} of {world}: the verdict is on the others")
    versions = sorted({table.facts.holter for table in tables if table.facts.holter})
    if len(versions) > 1:
        notes.append(f"recorded by different versions of Holter: {', '.join(versions)}")
    first = tables[0].facts
    for table in tables[1:]:
        offset = clock_offsets([tables[0], table])[id(table)]
        walls = [one.started - one.mono for one in (first, table.facts) if one.started is not None and one.mono]
        apart = abs(walls[1] - walls[0] - offset) if len(walls) == 2 else 0.0
        if apart > _CLOCKS_APART_S:
            notes.append(
                f"the clocks of {first.host} and {table.facts.host} are {apart / 60:,.0f} min apart: they were aligned"
            )
            break
    return notes


def _ranks_evidence(tables: list[Examined], judged: list[Verdict]) -> tuple[Evidence, ...]:
    words = []
    for table, v in zip(tables, judged, strict=True):
        ranks = sorted(set(rank_numbers(table).values()))
        name = ranks_in_words(ranks) if ranks else "no rank"
        words.append(f"{name} on {table.facts.host} ({table.facts.id}): {v.ending.kind}")
    return tuple(Evidence("records", word) for word in words[:8])


def _job(tables: list[Examined], run: dict[str, Any]) -> dict[str, Any]:
    records = [
        {"id": table.facts.id, "host": table.facts.host, "ranks": sorted(set(rank_numbers(table).values()))}
        for table in tables
    ]
    world = max(world_of(table) for table in tables)
    ranks = sorted({number for table in tables for number in rank_numbers(table).values()})
    return {**(run.get("job") or {}), "world": world, "ranks": ranks, "records": records}


def _last(record: RecordLike) -> float:
    return max((float(line.get("m") or 0.0) for line in (*record.events[-1:], *record.timeline[-1:])), default=0.0)
