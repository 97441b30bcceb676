"""Patients that can be healed, each with room for all, and within its limits under `--heal`. Prints a table.

    python bench/heal.py [NAMES...] [--records DIR]

What a patient needs must be there (control groups want root). The scripts are as they are, but for two things that make
the runs comparable: those that set no seed get one, and those that would train for long with room for all do fewer
epochs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from dataclasses import dataclass, replace
from pathlib import Path

from holter.record.events.agent import Declined, Intervention
from holter.record.events.recorder import Ended, Exited, Spawned
from holter.record.events.timeline import StepWindow
from holter.record.reader import Record, open_record
from holter.record.reader import find as find_run

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.score.patient import Patient, find
from tests.score.stay import attend

HEALABLE = ("oversize.batch", "nan.data", "nan.learning-rate", "nan.math", "nan.precision", "leak.model-rebuilt")
SEEDS = {
    "torch": "import torch; torch.manual_seed(0)\n",
    "lightning": "import torch; torch.manual_seed(0)\n",
    "hf": "import torch; torch.manual_seed(0)\n",
    "keras": "import keras; keras.utils.set_random_seed(0)\n",
    "tf": "import keras; keras.utils.set_random_seed(0)\n",
}
SHORTER = {
    "torch_leaf_disease": ("train(epochs=10)", "train(epochs=1)"),
    "torch_protein_attention": ("for epoch in range(3)", "for epoch in range(1)"),
    "keras_leaf_photos": ("for epoch in range(4)", "for epoch in range(1)"),
}


@dataclass
class Run:
    """What came of one run."""

    ending: str
    steps: int
    loss: float | None
    seconds: float
    acts: list[str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--records")
    args = parser.parse_args()
    chosen = [p for p in find(args.names) if (args.names or p.cause in HEALABLE) and not p.gpu]
    with tempfile.TemporaryDirectory(prefix="heal-") as own:
        base = Path(args.records or own)
        print(f"{'patient':28} {'cause':18} {'with room':>24}  {'healed':>40}  loss off  slower")
        for patient in [_comparable(patient, base / "scripts") for patient in chosen]:
            free = _run(replace(patient, memory_mb=None, swap_mb=None), base / "free" / patient.name, heal=False)
            healed = _run(patient, base / "healed" / patient.name, heal=True)
            _print(patient, free, healed)


def _comparable(patient: Patient, folder: Path) -> Patient:
    """The patient with a seed, and with fewer epochs where it would take long."""
    folder.mkdir(parents=True, exist_ok=True)
    text = patient.script.read_text()
    before, after = SHORTER.get(patient.name, ("", ""))
    if before not in text:
        raise ValueError(f"{patient.name} has changed: there is no {before!r} in it")
    if "seed" not in text:
        text = SEEDS[patient.name.partition("_")[0]] + text
    copy = folder / patient.script.name
    copy.write_text(text.replace(before, after) if before else text)
    return replace(patient, script=copy)


def _run(patient: Patient, folder: Path, *, heal: bool) -> Run:
    stay = attend(patient, folder, bare=False, stop=threading.Event(), heal=heal)
    if stay.skipped:
        return Run(f"skipped: {stay.skipped}", 0, None, 0.0, [])
    record = open_record(find_run(None, stay.home))
    return _read(record)


def _read(record: Record) -> Run:
    ends: list[Exited] = [*record.of(Ended)] or record.of(Exited)
    code = ends[-1].exit_code if ends else None
    windows = record.of(StepWindow)
    losses = [line.loss.last for line in windows if line.loss.last is not None]
    begun = [event.t for event in record.of(Spawned)]
    first = begun[0] if begun else record.facts.started or 0.0
    acts = [f"{event.act} ({event.keeps})" for event in record.of(Intervention)]
    acts += [f"declined: {event.because[:60]}" for event in record.of(Declined)]
    steps = max((line.last or 0 for line in windows), default=0)
    loss = losses[-1] if losses else None
    return Run(f"exit {code}", steps, loss, (ends[-1].t - first) if ends else 0.0, list(dict.fromkeys(acts)))


def _print(patient: Patient, free: Run, healed: Run) -> None:
    off = "–"
    if free.loss is not None and healed.loss is not None:
        off = f"{abs(healed.loss - free.loss) / max(abs(free.loss), 1e-12):.1e}"
    slower = f"{healed.seconds / free.seconds:.2f}×" if free.seconds and healed.steps >= free.steps else "–"
    print(
        f"{patient.name:28} {patient.cause or '':18} {free.ending + f', {free.steps} steps':>24}  "
        f"{healed.ending + f', {healed.steps} steps, ' + '; '.join(healed.acts):>40}  {off:>8}  {slower}",
        flush=True,
    )


if __name__ == "__main__":
    main()
