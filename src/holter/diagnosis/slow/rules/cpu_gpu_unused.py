"""A GPU is there, and the training runs on the CPU.

What it sees: the weights that are trained lie on the CPU, and the machine has a GPU of which the run uses nothing.
Why it matters: the same training takes ten to a hundred times as long, and looks healthy all the while.
May be confused with: a script that asks for the CPU, by its text, its command line or its trainer's setting, which is
left alone; a machine whose GPU belongs to others.
How sure: established where the reason is a fact: a build without GPUs, a driver that is too old for it, a variable
that hides the GPU, a Python made for Intel; supported where the script never moves its model.
Cure: the build that knows the GPU, a newer driver, the variable unset; moving the model and each batch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from holter.diagnosis.core.evidence import on_macos, user_files
from holter.diagnosis.core.frames import culprit_on
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.slow.step_times import anatomy_of
from holter.facts.unused_gpu import reason_of
from holter.finding import Culprit, Cure, Ending, Evidence, Finding, Grade
from holter.record.events.agent import Adapter, FrameworkSettings, Made, Schedule
from holter.record.events.timeline import DeviceMemory, Nvidia
from holter.source.devices import chooses_cpu, mentions_gpu
from holter.units import duration

CAUSE = "cpu.gpu-unused"

_TRAINED = 10.0
_ASKED_FOR_CPU = re.compile(r"(?:^|[^a-z])(?:cpu|no[-_]?(?:cuda|gpu)s?)(?:$|[^a-z])", re.IGNORECASE)


@dataclass(frozen=True)
class _Why:
    words: str
    cures: tuple[Cure, ...]
    grade: Grade = "established"
    culprit: Culprit | None = None


def examine(record: RecordLike, ending: Ending) -> Finding | None:  # noqa: ARG001 - the shape of a rule
    """Say which GPU is unused, for how long, and why."""
    anatomy, gpu = anatomy_of(record), _unused_gpu(record)
    told = [event for event in record.of(FrameworkSettings) if event.device]
    if anatomy is None or anatomy.training < _TRAINED or not gpu or not told:
        return None
    if any(event.device != "cpu" for event in told) or _asked_for_cpu(record):
        return None
    why = _why(record, told[-1])
    if why is None:
        return None
    claim = f"the training ran on the CPU for {duration(anatomy.training)} and left {gpu} unused: {why.words}"
    evidence = (Evidence("weights", "on the CPU"), Evidence("GPU", f"{gpu}, nothing of it is held by this run"))
    return Finding(CAUSE, why.grade, claim, (*evidence, *anatomy.evidence), why.culprit, why.cures)


def _unused_gpu(record: RecordLike) -> str:
    """Name the machine's GPU; nothing where there is none, or the run uses it."""
    if any(line.allocated for line in record.of(DeviceMemory)):
        return ""
    rows = [row for _, reading in record.readings(Nvidia) for row in reading.rows]
    if rows:
        return "" if any(row.tree for row in rows) else rows[0].name or "an NVIDIA GPU"
    translated = any(event.translated for event in record.of(FrameworkSettings))
    of_apple = on_macos(record) and ("arm64" in record.facts.platform or translated)
    return "the GPU of this Mac" if of_apple else ""


def _asked_for_cpu(record: RecordLike) -> bool:
    words = record.facts.words[1:]  # the first is the program's own name
    if any(_ASKED_FOR_CPU.search(word) for word in words if not word.endswith(".py")):
        return True
    return any(chooses_cpu(record.source(file)) for file in user_files(record))


def _why(record: RecordLike, told: FrameworkSettings) -> _Why | None:
    version = next((event.version for event in record.of(Adapter) if event.framework == told.framework), "")
    newest = next((reading.cuda for _, reading in record.readings(Nvidia) if reading.cuda), "")
    found = reason_of(
        told.framework, version, told.built_for, translated=told.translated,
        visible=record.facts.variables.get("CUDA_VISIBLE_DEVICES"), driver=newest,
    )  # fmt: skip
    if found is not None:
        return _Why(found.words, tuple(Cure(title, how, keeps) for title, how, keeps in found.cures))
    return _never_moved(record) if told.framework == "torch" else None


def _never_moved(record: RecordLike) -> _Why | None:
    """Tell of a script that never speaks of a GPU; trainers move the model by themselves."""
    if any(event.source in ("lightning", "transformers", "keras") for event in record.of(Schedule)):
        return None
    if any(mentions_gpu(record.source(file)) for file in user_files(record)):
        return None
    made = next((event for event in record.of(Made) if event.what == "model" and event.file and event.line), None)
    if made is None:
        return None
    device = "mps" if on_macos(record) else "cuda"
    how = ""
    if re.fullmatch(r"[\w.]+ = [\w.]+\(.*\)", made.code):
        how = f'- {made.code}\n+ {made.code}.to("{device}")'
    cure = Cure(f'move the model and each batch to it: .to("{device}")', how, "equivalent")
    return _Why("the script never moves its model to it", (cure,), "supported", culprit_on(made))
