"""What to change where a run waits for its data: the loader's own line, or the pipeline's missing call."""

from __future__ import annotations

import re

from holter.diagnosis.slow.data_wait import DataWait
from holter.finding import Cure
from holter.record.events.agent import Made
from holter.source.lines import call_text

_MOST = 8
AUTOTUNE = "tf.data.AUTOTUNE"


def enough_workers(found: DataWait, cores: float) -> int:
    """Give a number of workers: one for each core that computes, more where they mostly wait."""
    if found.kind in ("waits", "network", "disk"):
        return int(min(_MOST, max(4, 4 * cores)))
    return int(min(_MOST, max(2, cores)))


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
