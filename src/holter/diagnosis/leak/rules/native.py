"""Memory grows, and nothing that Python holds grows with it.

What it sees: growth that stands over the steps, of which no variable, model, worker's copy, cache or driver explains
a part that counts.
Why it matters: a run that leaks dies at a random epoch; a smaller batch only moves the hour.
May be confused with: a batch or a spike too large (flat curve, then an end); caches that fill in the first steps;
batches that get larger and larger, with which memory grows rightly (a hypothesis then).
How sure: as sure as the trend alone: supported when it is clear and comes to much, else a hypothesis. What was looked
at and ruled out is said.
Cure: for a profiler that was left on a schedule; for C code that the script calls itself, that call; for a library
with code of its own: leave out one at a time, use a newer release, restart workers now and then.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from holter.diagnosis.core.evidence import first_in_sources, user_files
from holter.diagnosis.core.input_growth import InputGrowth
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.forecast.extrapolate import FEWEST_STEPS
from holter.diagnosis.leak.cause import LeakCause, leak_cause
from holter.diagnosis.memory.exhaustion import exhaustion_of
from holter.finding import Culprit, Cure, Ending, Evidence, Finding
from holter.record.events.agent import Batch
from holter.record.events.looks import RetainedObjects
from holter.source.lines import called_name, culprit_at, tree_of
from holter.units import count

CAUSE = "leak.native"
YIELDS_TO = ("recompile", "oversize.helper")
_OPENS = ("CDLL", "PyDLL", "LoadLibrary", "dlopen")
_ALLOCATES = ("malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc", "mmap", "strdup")
_SCHEDULE = "profile(schedule=torch.profiler.schedule(wait=10, warmup=2, active=5, repeat=1)), then prof.step()"


def examine(record: RecordLike, ending: Ending) -> Finding | None:
    """Say how much memory grew per step, up to which limit, and what it is not."""
    found = leak_cause(record, ending)
    if found is None or found.cause != CAUSE:
        return None
    larger = _inputs(record, found)
    if larger:
        words = f"{found.words}, while the batches grew {larger}: more goes in, and more is taken"
        capped = Cure("see how large the largest batch gets: cap it, or make fewer samples of it", "", "changed")
        return Finding(CAUSE, "hypothesis", words, found.evidence, None, (capped,), found.forecast)
    ran_out = exhaustion_of(record, ending)
    culprit = ran_out.culprit if ran_out is not None else None
    looked = _looked(record, found)
    if looked is None:
        kept = "losses with their graph (use loss.item()), lists, caches, models made in a loop"
        if found.leak is not None and found.leak.where == "workers":
            kept = "what the dataset stores in its worker, as a cache or a list"
        cure = Cure(f"find what is kept from step to step: {kept}", "", "equivalent")
        return Finding(CAUSE, found.grade, found.words, found.evidence, culprit, (cure,), found.forecast)
    recorder = _recorder(record)
    if recorder is not None:
        culprit, on = recorder
        claim = f"{found.words}, while {on.what} is on, which keeps a record of every operation until it is stopped"
        bounded = (Cure(on.cure, on.how),)
        return Finding(CAUSE, found.grade, claim, (*found.evidence, looked), culprit, bounded, found.forecast)
    own = first_in_sources(record, called_in_c)
    if own is not None:
        claim = (
            f"{found.words}; no Python object grew with it, and line {own.line} calls C code, which Python can't see"
        )
        freed = (Cure("see who frees what that call allocates, and when: C gives nothing back by itself"),)
        return Finding(CAUSE, found.grade, claim, (*found.evidence, looked), own, freed, found.forecast)
    cures = (
        Cure(
            "leave out one library with code of its own at a time (decoding, augmentation, logging), and look again",
            "",
            "changed",
        ),
        Cure(
            "use a newer release of it; for a data worker, restart it each epoch (persistent_workers=False)",
            "",
            "equivalent",
        ),
    )
    claim = f"{found.words}, and no variable of the script, model or tensor that it can reach grew with it"
    return Finding(CAUSE, found.grade, claim, (*found.evidence, looked), culprit, cures, found.forecast)


def _inputs(record: RecordLike, found: LeakCause) -> str:
    leak = found.leak
    if leak is None:
        return ""
    grown = InputGrowth(one for one in record.of(Batch) if one.pid == leak.progress.pid)
    return grown.since(leak.since_step or FEWEST_STEPS)


def _recorder(record: RecordLike) -> tuple[Culprit, LeftOn] | None:
    """Find what the script has left on and what takes memory for all that it sees."""
    for file in user_files(record):
        on = left_on(record.source(file))
        if on is not None:
            return culprit_at(file, record.source(file), on.line), on
    return None


def _looked(record: RecordLike, found: LeakCause) -> Evidence | None:
    """Say what was looked through; None where no census was taken, or none to its end."""
    pids = found.leak.pids if found.leak is not None else ()
    told = [event for event in record.of(RetainedObjects) if not pids or event.pid in pids]
    if len(told) < 2 or not any(event.complete for event in told):
        return None
    last = told[-1]
    seen = last.looked_at or 0
    return Evidence("ruled out", f"{count(len(told))} looks through {count(seen)} objects of the script found nothing "
                                 "that grew as much", last.t)  # fmt: skip


@dataclass(frozen=True)
class LeftOn:
    """A recorder and how it is bounded."""

    line: int
    what: str
    cure: str
    how: str = ""


def left_on(lines: Sequence[str]) -> LeftOn | None:
    """Give the first recorder without a bound that the script switches on."""
    tree = tree_of(lines)
    text = "\n".join(lines)
    for node in ast.walk(tree) if tree is not None else ():
        if not isinstance(node, ast.Call):
            continue
        name, given = called_name(node), {keyword.arg for keyword in node.keywords}
        if name == "profile" and "schedule" not in given and ("torch.profiler" in text or "autograd.profiler" in text):
            return LeftOn(node.lineno, "PyTorch's profiler", "profile a few steps only, with a schedule", _SCHEDULE)
        if name == "_record_memory_history" and "max_entries" not in given and not _is_off(node):
            return LeftOn(node.lineno, "PyTorch's memory history", "bound it", "max_entries=100_000")
        if ast.unparse(node.func).endswith(("summary.trace_on", "profiler.experimental.start")):
            return LeftOn(node.lineno, "TensorFlow's profiler", "stop it after a few steps")
        if name == "start" and ast.unparse(node.func) == "tracemalloc.start":
            return LeftOn(node.lineno, "tracemalloc", "stop it after a few steps", "tracemalloc.stop()")
    return None


def called_in_c(lines: Sequence[str]) -> int | None:
    """Give the line on which a script itself calls a C library through ctypes or cffi: an allocation before others."""
    tree = tree_of(lines)
    nodes = list(ast.walk(tree)) if tree is not None else []
    opened = {
        ast.unparse(target)
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and called_name(node.value) in _OPENS
        for target in node.targets
    }
    calls = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    into_c = [node for node in calls if ast.unparse(node.func.value) in opened]  # type: ignore[attr-defined]
    into_c.sort(key=lambda node: (called_name(node) not in _ALLOCATES, node.lineno))
    return into_c[0].lineno if into_c else None


def _is_off(node: ast.Call) -> bool:
    given = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "enabled")]
    return any(isinstance(one, ast.Constant) and one.value in (None, False) for one in given)
