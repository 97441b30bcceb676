"""Runs the patients under Holter, one after the other, and prints how well it did: `make score`.

    python -m tests.score [NAMES...] [--known | --aside] [--bare] [--records DIR] [--again] [--write]

NAMES are beginnings of patients' names. `--bare` runs them without Holter, to see that they do what their sidecars
say. `--records DIR` keeps every run's record, and `--again` judges the kept ones without running anything.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import date
from importlib.util import find_spec
from pathlib import Path

from tests.score import board
from tests.score.judge import Score, judge
from tests.score.patient import Patient, find
from tests.score.stay import Stay, Stopped, attend

PAGE = Path(__file__).resolve().parents[2] / "docs" / "scoreboard.md"


def main(words: list[str] | None = None) -> int:
    args = _arguments().parse_args(words)
    patients = [
        patient.on_a_busy_machine(args.patience)
        for patient in find(args.names)
        if not (args.known and patient.aside) and not (args.aside and not patient.aside)
    ]
    if not patients:
        print("no patient has such a name", file=sys.stderr)
        return 2
    stop = threading.Event()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="score-") as own:
        ward = _Ward(Path(args.records or own).resolve(), stop, bare=args.bare, again=args.again)
        try:
            ward.attend_all(patients, args.jobs)
        except KeyboardInterrupt:
            print("stopped; what was made for the patients is taken away", file=sys.stderr)
            return 130
        if args.bare:
            print(board.as_text(board.BARE, [board.bare_row(stay) for stay in ward.stays]))
            return 0
    scores = sorted(ward.scores, key=lambda score: (score.patient.family, score.patient.name))
    print(board.as_text(board.COLUMNS, [board.row(score) for score in scores]))
    print()
    print(board.as_text(board.TOTALS, board.totals(scores)))
    if args.json:
        Path(args.json).write_text(json.dumps([asdict(score) for score in scores], indent=1, default=str))
    if args.write:
        PAGE.write_text(board.as_page(scores, date.today(), kept=args.again))
    return 0


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.score", description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="beginnings of patients' names; all when there are none")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--known", action="store_true", help="only those that are not kept aside")
    which.add_argument("--aside", action="store_true", help="only those that are kept aside")
    which.add_argument("--all", action="store_true", help="both (what happens without a word)")
    parser.add_argument("--bare", action="store_true", help="without Holter: do the scripts do what they should?")
    parser.add_argument("--records", metavar="DIR", help="keep the records there")
    parser.add_argument("--again", action="store_true", help="judge the records kept in DIR, run nothing")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time, where pace is not judged (2)")
    parser.add_argument("--patience", type=float, default=1.0, help="all waiting times longer, on a busy machine (1)")
    parser.add_argument("--json", metavar="FILE", help="write all that is known of each patient there")
    parser.add_argument("--write", action="store_true", help="write docs/scoreboard.md")
    return parser


class _Ward:
    """Attends to patients: those whose pace is judged alone, the others a few at a time."""

    def __init__(self, base: Path, stop: threading.Event, *, bare: bool, again: bool) -> None:
        self.base, self.stop, self.bare, self.again = base, stop, bare, again
        self.stays: list[Stay] = []
        self.scores: list[Score] = []

    def attend_all(self, patients: list[Patient], jobs: int) -> None:
        for count, group in (
            (jobs, [patient for patient in patients if not patient.timed]),
            (1, [patient for patient in patients if patient.timed]),
        ):
            with ThreadPoolExecutor(count) as pool:
                try:
                    list(pool.map(lambda patient, beside=count - 1: self._attend(patient, beside), group))
                except BaseException:
                    self.stop.set()  # each run then ends, and takes away what was made for it
                    pool.shutdown(wait=True, cancel_futures=True)
                    raise

    def _attend(self, patient: Patient, beside: int) -> None:
        if self.stop.is_set():
            return
        folder = self.base / patient.name
        try:
            if why := _missing(patient):
                self.scores.append(Score(patient, skipped=why))
                return
            if self.again:
                there = (folder / "home" / "runs").is_dir()
                self._note(judge(patient, folder / "home") if there else Score(patient, skipped="no record is kept"))
                return
            stay = attend(patient, folder, bare=self.bare, stop=self.stop, beside=beside)
        except Stopped:
            return
        self.stays.append(stay)
        if self.bare:
            print("  ".join(board.bare_row(stay)), file=sys.stderr, flush=True)
        else:
            self._note(Score(patient, skipped=stay.skipped) if stay.skipped else judge(patient, stay.home))

    def _note(self, score: Score) -> None:
        self.scores.append(score)
        print("  ".join(board.row(score)), file=sys.stderr, flush=True)


def _missing(patient: Patient) -> str:
    """The framework that a patient needs and that is not installed."""
    needed = {"hf": "transformers", "tf": "tensorflow", "plain": "numpy"}.get(patient.framework, patient.framework)
    return "" if find_spec(needed) else f"{needed} is not installed"


if __name__ == "__main__":
    sys.exit(main())
