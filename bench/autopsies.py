"""Runs the patients without Holter, keeps their logs, and asks `holter autopsy` about them: `make autopsies`.

Each is ended by its own illness within its own limits, its output unbuffered in one file, as containers keep it. The
cause is that of the first finding that is more than the bare fact that memory ran out.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.score import stay
from tests.score.patient import Patient, find

from holter.autopsy.examine import Autopsy, autopsy
from holter.autopsy.kernel_words import KernelWords, kernel_words
from holter.autopsy.opinions import MEMORY, OUT_OF_MEMORY

SLOW = ("input-bound", "thrash", "recompile", "overhead", "cpu")  # they end well: a log has no word on them


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="beginnings of patients' names; all when there are none")
    stay._start = _start  # type: ignore[assignment]  # its output goes into one file
    counted: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="autopsies-") as base:
        for patient in find(parser.parse_args().names):
            if not patient.gpu and patient.family not in SLOW:
                for row in _rows(patient, Path(base) / patient.name):
                    counted[row] += 1
    for words in ("with the script", "the log alone"):
        sick = counted[f"{words}: right"] + counted[f"{words}: not named"]
        print(
            f"{words}: cause {counted[f'{words}: right']} of {sick}, surely wrong {counted[f'{words}: surely wrong']}"
        )
    print(f"healthy: {counted['healthy']}, alarms {counted['alarm']}; ended by the bench: {counted['left out']}")


def _rows(patient: Patient, folder: Path) -> list[str]:
    seen = stay.attend(patient, folder, bare=True, stop=threading.Event())
    log = folder / "log"
    known = seen.ending in (*patient.endings, "hung") or (
        seen.ending == "completed" and "stopped-early" in patient.endings
    )
    if seen.skipped or not log.exists() or (patient.cause is not None and not known):
        print(f"{patient.name}: left out, {seen.skipped or seen.ending}")
        return ["left out"]
    script, kernel = str(folder / "work" / patient.script.name), _own_kills(kernel_words(time.time()), patient)
    rows = []
    for words, path in (("with the script", script), ("the log alone", None)):
        found = autopsy(str(log), path, kernel)
        rows += [f"{words}: {row}" for row in judged(patient, found)] if patient.cause else []
        told = " ".join(f"{one.finding.cause}({one.finding.grade[0]})" for one in found.opinions)
        print(f"{patient.name}  {patient.cause}  {seen.ending}  {words}: {told or '-'}")
    if patient.cause is None:
        rows += ["healthy", *(["alarm"] if any(one.finding.grade != "hypothesis" for one in found.opinions) else [])]
    return rows


def judged(patient: Patient, found: Autopsy) -> list[str]:
    """`right` or `not named`, and `surely wrong` for what is said above a hypothesis and is not so."""
    families = {patient.family, *(also.partition(".")[0] for also in patient.also)}
    named = [one.finding for one in found.opinions if one.finding.cause != OUT_OF_MEMORY]
    sure = {one.finding.family for one in found.opinions if one.finding.grade != "hypothesis"}
    allowed = families | ({OUT_OF_MEMORY} if families & set(MEMORY) else set())
    right = bool(named) and named[0].family in families
    return ["right" if right else "not named", *(["surely wrong"] if sure - allowed else [])]


def _own_kills(kernel: KernelWords, patient: Patient) -> KernelWords:
    """Without the kills in groups of other programs on this machine, which a user's has not."""
    own = tuple(line for line in kernel.lines if not line.get("oom") or patient.name in line.get("memcg", patient.name))
    return replace(kernel, lines=own)


def _start(patient: Patient, script: Path, environ: dict[str, str], around: Any, **_: Any) -> subprocess.Popen[bytes]:
    command = [*around.prefix, *stay._words(patient.command, script)]
    if patient.hangup_s:
        return stay._start_on_terminal(patient.hangup_s, command, environ, script.parent)
    with (script.parent.parent / "log").open("wb") as out:
        return subprocess.Popen(
            command, env={**environ, "PYTHONUNBUFFERED": "1"}, cwd=script.parent, stdin=subprocess.DEVNULL,
            stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip


if __name__ == "__main__":
    main()
