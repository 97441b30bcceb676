"""What was set up differently in two runs: source lines, arguments, settings, versions, the machine."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from holter.diagnosis.comparison.measures import batch_of
from holter.diagnosis.core.evidence import latest
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.slow.cpu_share import cores_of
from holter.record.events.agent import Adapter, AgentHello, FrameworkSettings, Made
from holter.record.events.timeline import Cgroup, Nvidia
from holter.units import size

DATA, COMPUTE, MEMORY = "data", "compute", "memory"
ANY = (DATA, COMPUTE, MEMORY)
_LOADER = ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "shuffle")
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")
# What a loader calls for data; of any other function its words don't tell which part of a step it bears on.
_OF_A_DATASET = ("__getitem__", "__getitems__", "__iter__", "__next__", "__len__")
_SETS = re.compile(r"num_workers|batch_size|prefetch|pin_memory|set_num_threads|DataLoader|OMP_NUM_THREADS")
_MOST_FILES, _MOST_LINES = 12, 40


@dataclass(frozen=True)
class Change:
    """One thing that was otherwise: what it is in this run and in the other, and what it can bear on.

    `specific` is what acts by itself; arguments and source lines often only bring it about.
    """

    kind: str  # source, arguments, batch, loader, threads, device, model, versions, variables, machine
    what: str
    value: str
    against: str
    bears_on: tuple[str, ...] = ANY
    specific: bool = False
    file: str = ""
    line: int = 0
    lines: tuple[str, ...] = ()  # of source: each with - or + before it


def changes_of(record: RecordLike, other: RecordLike) -> list[Change]:
    """Everything that the two records know to be different, what is nearest to the training first."""
    return [
        *_batch(record, other),
        *_loaders(record, other),
        *_settings(record, other),
        *_models(record, other),
        *_sources(record, other),
        *_arguments(record, other),
        *_variables(record, other),
        *_versions(record, other),
        *_machine(record, other),
    ]


def _batch(record: RecordLike, other: RecordLike) -> Iterator[Change]:
    one, two = batch_of(record), batch_of(other)
    if one and two and one != two:
        yield Change("batch", "samples in a batch", str(one), str(two), ANY, specific=True)


def _loaders(record: RecordLike, other: RecordLike) -> Iterator[Change]:
    """Of the loaders that both runs made; one is known by its class and its dataset's."""
    mine, theirs = _made(record, "loader"), _made(other, "loader")
    for key, loader in mine.items():
        if key not in theirs:
            continue
        for name in _LOADER:
            value, against = getattr(loader, name), getattr(theirs[key], name)
            if value is not None and against is not None and value != against:
                bears_on = (DATA, MEMORY) if name == "num_workers" else (DATA,)
                yield Change("loader", f"{name} of the loader", str(value), str(against), bears_on, specific=True,
                             file=loader.file, line=loader.line or 0)  # fmt: skip


def _made(record: RecordLike, what: str) -> dict[tuple[str, str], Made]:
    return {(event.name, event.dataset): event for event in reversed(record.of(Made)) if event.what == what}


def _settings(record: RecordLike, other: RecordLike) -> Iterator[Change]:
    mine, theirs = ({event.framework: event for event in one.of(FrameworkSettings)} for one in (record, other))
    for framework, event in mine.items():
        before = theirs.get(framework)
        if before is None:
            continue
        for name, words in (("intra_op", "threads of an operation"), ("inter_op", "operations at once")):
            value, against = getattr(event, name), getattr(before, name)
            if value and against and value != against:
                yield Change("threads", f"{framework}: {words}", str(value), str(against), (COMPUTE,), specific=True)
        if event.device and before.device and event.device != before.device:
            yield Change(
                "device", f"{framework}: device", event.device, before.device, (COMPUTE, MEMORY), specific=True
            )


def _models(record: RecordLike, other: RecordLike) -> Iterator[Change]:
    for what, words in (("model", "models made"), ("optimizer", "optimizers made")):
        value, against = ({event.name for event in one.of(Made) if event.what == what} for one in (record, other))
        if value and against and value != against:
            yield Change("model", words, ", ".join(sorted(value)), ", ".join(sorted(against)), (COMPUTE, MEMORY))


def _sources(record: RecordLike, other: RecordLike) -> Iterator[Change]:
    """Lines that run; a change of comments or layout alone is none."""
    names = sorted(_named(record))
    for path, against in _pairs(names, _named(other)):
        new, old = record.source(path), other.source(against)
        if new == old or _same_program(new, old):
            continue
        for begin, changed in _hunks(old, new):
            place, name = _function_at(new, begin), path.rpartition("/")[2]
            bears_on = (DATA, MEMORY) if place in _OF_A_DATASET else ANY
            yield Change("source", f"{name}:{begin}" + (f" in {place}" if place else ""), "", "", bears_on,
                         file=path, line=begin, lines=tuple(changed[:_MOST_LINES]))  # fmt: skip


def sets_what(change: Change) -> bool:
    """Tell whether a source line only sets what is known by itself: a number of workers, of threads, of samples."""
    return bool(change.lines) and all(_SETS.search(line) for line in change.lines)


def _named(record: RecordLike) -> list[str]:
    """The files whose lines the record keeps: those that an event of it names."""
    rows = [line for line in record.events if isinstance(line, dict)]
    for line in list(rows):
        for key in ("list", "frames"):
            inner = line.get(key)
            rows += [row for row in inner if isinstance(row, dict)] if isinstance(inner, list) else []
    places = dict.fromkeys(path for row in rows if isinstance(path := row.get("file"), str))
    return [path for path in places if record.source(path)]


def _pairs(mine: Iterable[str], theirs: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The same file in both runs: by its path, else by the end of it, where that is the only one of that name."""
    others = set(theirs)
    for path in list(mine)[:_MOST_FILES]:
        if path in others:
            yield path, path
            continue
        alike = [other for other in others if other.rpartition("/")[2] == path.rpartition("/")[2]]
        if len(alike) == 1:
            yield path, alike[0]


def _same_program(new: list[str], old: list[str]) -> bool:
    try:
        return ast.dump(ast.parse("\n".join(new))) == ast.dump(ast.parse("\n".join(old)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _hunks(old: list[str], new: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Each place that differs: its line in the new file, and the lines, without what is empty or a comment."""
    matched = difflib.SequenceMatcher(None, [line.rstrip() for line in old], [line.rstrip() for line in new], False)
    for what, a, b, c, d in matched.get_opcodes():
        if what != "equal":
            gone = [f"- {line.rstrip()}" for line in old[a:b] if _runs(line)]
            come = [f"+ {line.rstrip()}" for line in new[c:d] if _runs(line)]
            if gone or come:
                yield min(c, max(len(new) - 1, 0)) + 1, [*gone, *come]


def _runs(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _function_at(lines: list[str], number: int) -> str:
    """The innermost function or class that a line stands in, by its name."""
    inset = len(lines[number - 1]) - len(lines[number - 1].lstrip()) if 0 < number <= len(lines) else 0
    for line in reversed(lines[: number - 1]):
        found = re.match(r"(\s*)(?:async\s+)?(?:def|class)\s+(\w+)", line)
        if found and len(found[1]) < inset:
            return found[2]
    return ""


def _arguments(record: RecordLike, other: RecordLike) -> Iterator[Change]:
    new, old = record.facts.words, other.facts.words
    # The program itself lies elsewhere in another environment: versions tell what that means.
    new, old = ([word if at else word.rpartition("/")[2] for at, word in enumerate(words)] for words in (new, old))
    if new == old:
        return
    for what, a, b, c, d in difflib.SequenceMatcher(None, old, new, False).get_opcodes():
        if what != "equal":
            value, against = " ".join(new[c:d]), " ".join(old[a:b])
            if value.rpartition("/")[2] != against.rpartition("/")[2]:
                option = next((word for word in reversed(new[:c]) if word.startswith("-")), "")
                lead = f"{option} " if option and not value.startswith("-") and new[c - 1] == option else ""
                yield Change("arguments", "arguments", f"{lead}{value}", f"{lead}{against}")


def _variables(record: RecordLike, other: RecordLike) -> Iterator[Change]:
    new, old = record.facts.variables, other.facts.variables
    for name in sorted({*new, *old}):
        if new.get(name) != old.get(name):
            bears_on = (COMPUTE,) if name in _THREADS else ANY
            yield Change("variables", name, new.get(name, "not set"), old.get(name, "not set"), bears_on)


def _versions(record: RecordLike, other: RecordLike) -> Iterator[Change]:
    new, old = _versions_in(record), _versions_in(other)
    for name in sorted({*new, *old}):
        if name in new and name in old and new[name] != old[name]:
            yield Change("versions", name, new[name], old[name])
    mine, theirs = record.facts.holter, other.facts.holter
    if mine and theirs and mine != theirs:
        yield Change("versions", "Holter", mine, theirs, ())


def _versions_in(record: RecordLike) -> dict[str, str]:
    found = {event.framework: event.version for event in record.of(Adapter) if event.framework and event.version}
    pythons = [event.python for event in record.of(AgentHello) if event.python]
    return {**found, **({"Python": pythons[-1]} if pythons else {})}


def _machine(record: RecordLike, other: RecordLike) -> Iterator[Change]:
    new, old = record.facts, other.facts
    if new.host and old.host and new.host != old.host:
        yield Change("machine", "machine", new.host, old.host)
    if new.platform and old.platform and new.platform != old.platform:
        yield Change("machine", "system", new.platform, old.platform)
    cores, before = cores_of(record), cores_of(other)
    if cores != before and new.cpus and old.cpus:
        yield Change("machine", "cores it may use", f"{cores:g}", f"{before:g}", (DATA, COMPUTE), specific=True)
    if new.memory_total and old.memory_total and abs(new.memory_total - old.memory_total) > 0.02 * old.memory_total:
        yield Change("machine", "memory of the machine", size(new.memory_total), size(old.memory_total), ())
    limits = [latest(one, Cgroup, lambda reading: reading.limit is not None).limit for one in (record, other)]
    if limits[0] != limits[1]:
        words = [size(limit) if limit else "none" for limit in limits]
        yield Change("machine", "container's memory limit", words[0], words[1], ())
    gpus = [
        sorted({row.name for _, reading in one.readings(Nvidia)[-1:] for row in reading.rows})
        for one in (record, other)
    ]
    if gpus[0] != gpus[1] and gpus[0] and gpus[1]:
        yield Change("machine", "GPU", ", ".join(gpus[0]), ", ".join(gpus[1]), (COMPUTE, MEMORY), specific=True)
