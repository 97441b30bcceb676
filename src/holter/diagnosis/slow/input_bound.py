"""Which illness of the input a run has that waits for its data, told the same way for each, and what to change."""

from __future__ import annotations

import ast
import re

from holter.diagnosis.core.evidence import first_in_sources
from holter.diagnosis.core.examined import once
from holter.diagnosis.core.frames import culprit_on
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.slow.cpu_share import cores_of, cpu_of
from holter.diagnosis.slow.data_wait import DataWait, data_wait_of
from holter.finding import Culprit, Cure, Evidence, Finding
from holter.record.events.agent import AgentHello, Made
from holter.source.lines import call_text, tree_of
from holter.units import count, duration

_STARTS = 0.3  # of the looks at the data stood in starting or ending workers
_MAIN_SHARE = 0.5
_MIN_LOOKS = 8  # looks that are more than chance
_IDLE = 0.3  # of a core
_MAX_WORKERS = 8
AUTOTUNE = "tf.data.AUTOTUNE"


@once
def input_illness(record: RecordLike) -> tuple[str, DataWait] | None:
    """Name the illness: `slow-transform`, `no-prefetch`, `slow-disk`, `slow-network` or `workers-restarted`."""
    found = data_wait_of(record)
    if found is None:
        return None
    if found.source == "loader" and found.workers and _restarted(record, found):
        return "workers-restarted", found
    if found.kind == "network":
        return "slow-network", found
    if found.kind == "disk":
        return "slow-disk", found
    nobody_ahead = found.source in ("own", "generator", "array") or found.workers == 0
    if found.source == "pydataset":
        nobody_ahead = found.workers <= 1
    # What could be hidden behind the computing, or only waits, wants someone who does it ahead.
    hidden = found.of_step < _MAIN_SHARE or found.kind == "waits" or (not found.kind and _idle(record, found))
    return ("no-prefetch" if nobody_ahead and hidden else "slow-transform"), found


def _idle(record: RecordLike, found: DataWait) -> bool:
    used = cpu_of(record, found.anatomy.pid, found.anatomy)
    return used is not None and used < _IDLE * (found.anatomy.end - found.anatomy.begin)


def _restarted(record: RecordLike, found: DataWait) -> bool:
    """Tell whether most of the wait is for workers that are started anew with each epoch."""
    if found.loader is not None and found.loader.persistent_workers:
        return False
    begun = _workers(record, found)
    if begun < 4 * found.workers:
        return False
    working = [look for look in found.seen if look.role == "worker" and look.line is not None]
    if len(working) >= _MIN_LOOKS and len(working) > _MAIN_SHARE * len(found.seen):
        return False  # they were met at their work: it is what takes the time
    seen = [look for look in found.seen if look.role != "worker"]
    starts = sum(look.kind == "starts" for look in seen)
    lived = (found.anatomy.end - found.anatomy.begin) / max(1.0, begun / found.workers)
    return lived < 10.0 and (starts >= _STARTS * max(1, len(seen)) if seen else lived < 3.0)


def _workers(record: RecordLike, found: DataWait) -> int:
    return sum(event.role == "worker" and event.ppid in (found.anatomy.pid, None) for event in record.of(AgentHello))


def input_finding(record: RecordLike, detail: str, why: str) -> Finding | None:
    """Write the finding of one illness of the input; None where the run has another, or none."""
    illness = input_illness(record)
    if illness is None or illness[0] != detail:
        return None
    found = illness[1]
    claim = f"{found.words}: {why.format(**_words(record, found))}"
    evidence = (*found.evidence, Evidence("lost", f"{duration(found.seconds)} of {duration(found.anatomy.training)}"))
    lines = record.source(found.loader.file) if found.loader else []
    cures = cures_of(found, cores_of(record), lines)
    culprit = culprit_of(found)
    if culprit is None and found.source == "tf.data":
        culprit = first_in_sources(record, _mapped)
    return Finding(f"input-bound.{detail}", found.grade, claim, evidence, culprit, cures)


def _mapped(lines: list[str]) -> int | None:
    """Find the `.map()` of a pipeline that makes its samples, in a script with just one that is not parallel."""
    tree = tree_of(lines)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)] if tree is not None else []
    maps = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "map"]
    in_turn = [call for call in maps if not any(word.arg == "num_parallel_calls" for word in call.keywords)]
    at = {call.func.end_lineno or call.lineno for call in in_turn}
    return at.pop() if len(at) == 1 else None


def culprit_of(found: DataWait) -> Culprit | None:
    """Give the user's line that makes the data, else the loader's own."""
    if found.line is not None:
        return found.line.culprit
    return culprit_on(found.loader)


def _words(record: RecordLike, found: DataWait) -> dict[str, str]:
    line = found.line
    function = f"in {line.function}() " if line is not None and line.function != "<module>" else ""
    where = f", {function}at {line.short}" if line is not None else ""
    begun = _workers(record, found)
    workers = f"its {count(found.workers)} workers" if found.workers > 1 else "its one worker"
    several = found.source == "loader" and found.workers > 1
    who = {
        "loader": workers if found.workers else "the loader, which has no workers,",
        "tf.data": "the tf.data pipeline",
        "generator": "the generator",
        "pydataset": "the PyDataset",
        "own": "the script itself",
    }.get(found.source, "the input")
    return {
        "who": who,
        "s": "" if several else "s",
        "es": "" if several else "es",
        "where": where,
        "begun": count(begun),
        "times": count(round(begun / max(1, found.workers))),
    }


def enough_workers(found: DataWait, cores: float) -> int:
    """Give a number of workers: one for each core that computes, more where they mostly wait."""
    if found.kind in ("waits", "network", "disk"):
        return int(min(_MAX_WORKERS, max(4, 4 * cores)))
    return int(min(_MAX_WORKERS, max(2, cores)))


def cures_of(found: DataWait, cores: float, lines: list[str]) -> tuple[Cure, ...]:
    """Give the one change that helps most, then what else does."""
    at = f" ({found.line.short})" if found.line is not None else ""
    lasting = Cure(
        f"do that work once, not in every epoch{at}: keep its results in memory or in a file", "", "equivalent"
    )
    if found.source == "tf.data":
        pipeline = Cure(
            f"make samples in parallel and ahead of the step: .map(f, num_parallel_calls={AUTOTUNE}) and "
            f".prefetch({AUTOTUNE}) at the end",
            f"ds = ds.map(f, num_parallel_calls={AUTOTUNE}).batch(n).prefetch({AUTOTUNE})",
            "equivalent",
        )
        return (pipeline, Cure("what does not change from epoch to epoch: .cache() after it", "", "equivalent"))
    if found.source in ("generator", "pydataset", "array"):
        n = enough_workers(found, cores)
        several = f"workers={n}, use_multiprocessing=True" if found.kind == "busy" else f"workers={n}"
        change = f"make the batches in several workers: a keras.utils.PyDataset with {several}"
        if found.source == "pydataset":
            change = f"make the batches in several workers: {several} for the PyDataset"
        return (Cure(change, f"super().__init__({several})", "equivalent"), lasting)
    if found.source == "own":
        ahead = f"put it into a Dataset and draw it through DataLoader(..., num_workers={enough_workers(found, cores)})"
        return (Cure(f"fetch the next batch while the step computes{at}: {ahead}", "", "equivalent"), lasting)
    return _loader_cures(found, cores, lines, lasting)


def _loader_cures(found: DataWait, cores: float, lines: list[str], lasting: Cure) -> tuple[Cure, ...]:
    wanted = enough_workers(found, cores)
    if found.kind == "starts":
        keep = Cure("keep the workers from epoch to epoch: persistent_workers=True",
                    _diff(found, lines, persistent_workers="True"), "equivalent")  # fmt: skip
        return (keep,)
    if found.workers >= wanted:
        ahead = _diff(found, lines, num_workers=str(found.workers), prefetch_factor="4", persistent_workers="True")
        return (lasting, Cure("draw further ahead: prefetch_factor=4", ahead, "equivalent"))
    settings = {"num_workers": str(wanted), "persistent_workers": "True"}
    more = Cure(f"let {wanted} workers make the batches while the step computes: num_workers={wanted}",
                _diff(found, lines, **settings), "equivalent")  # fmt: skip
    return (more, lasting)


def _diff(found: DataWait, lines: list[str], **settings: str) -> str:
    """Write the loader's line anew with some arguments set; only named where the whole call is not known."""
    loader = found.loader or Made()
    code = call_text(lines, loader.line or 0) or loader.code
    at = code.rfind(")")
    plain = ", ".join(f"{name}={value}" for name, value in settings.items())
    if "Trainer(" in code or "TrainingArguments(" in code:
        plain = ", ".join(f"dataloader_{name}={value}" for name, value in settings.items())
        return f"TrainingArguments(..., {plain})"
    if "DataLoader(" not in code or at < 0 or code.count("(") != code.count(")") or "\n" in code:
        return f"DataLoader(..., {plain})"
    changed = code
    for name, value in settings.items():
        changed, done = re.subn(rf"\b{name}\s*=\s*[^,()]+", f"{name}={value}", changed)
        if not done:
            at = _end_of_call(changed)
            changed = changed[:at].rstrip().rstrip(",") + f", {name}={value}" + changed[at:]
    return f"-{code}\n+{changed}"


def _end_of_call(code: str) -> int:
    """Give where the arguments of the DataLoader call end."""
    depth = 0
    for at in range(code.index("DataLoader(") + len("DataLoader"), len(code)):
        depth += {"(": 1, ")": -1}.get(code[at], 0)
        if depth == 0:
            return at
    return code.rfind(")")
