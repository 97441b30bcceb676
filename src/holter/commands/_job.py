"""The records of one job among all that are here."""

from __future__ import annotations

import contextlib
from pathlib import Path

from holter.diagnosis.ranks.job import job_of
from holter.errors import DamagedRecord, UnknownRun
from holter.record import place
from holter.record.reader import open_record, read_meta

_APART_S = 900.0  # seconds between the starts of two ranks of one job: a scheduler does not start all at once


def records_of_job(key: str) -> list[Path]:
    """The records of a job: of several with the same key, which is a used address at times, those of the last one."""
    base = place.home()
    found: list[tuple[float, Path]] = []
    for run_id in reversed(place.run_ids(base)):
        folder = place.runs_folder(base) / run_id
        with contextlib.suppress(DamagedRecord):
            started = read_meta(folder).get("started")
            began = float(started) if isinstance(started, (int, float)) else 0.0
            if found and found[-1][0] - began > _APART_S:
                break  # the next older one began long before
            if job_of(open_record(folder)).key == key:
                found.append((began, folder))
    if not found:
        raise UnknownRun(f"there is no job {key!r} in {base}", "See the jobs with: holter ls --json")
    return [folder for _, folder in reversed(found)]
