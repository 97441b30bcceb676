"""From a record's folder to a verdict before someone's eyes."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from holter.commands._tell import Stderr
from holter.diagnosis.comparison.compare import compare
from holter.diagnosis.core.doctor import verdict
from holter.diagnosis.ranks.join import job_verdict
from holter.errors import DamagedRecord
from holter.figures.summary import summary_of
from holter.record.labels import read_labels
from holter.record.reader import open_record
from holter.views.compared import write_comparison
from holter.views.text import write_verdict


def show(folder: Path, stream: TextIO, *, as_json: bool = False) -> None:
    """Write the verdict on a record as text or as JSON."""
    record = open_record(folder)
    found, labels = verdict(record), read_labels(folder)
    found = replace(found, run={**found.run, "tags": labels.tags, "note": labels.note})
    if as_json:
        print(json.dumps(found.as_json(), indent=1, default=str), file=stream)
    else:
        write_verdict(found, summary_of(record, found), stream, width=_width(stream))


def show_against(folder: Path, other: Path, stream: TextIO, *, as_json: bool = False) -> None:
    """Write what differs between two records as text or as JSON; each is named by its folder."""
    found = compare(open_record(folder), open_record(other))
    run, against = (
        replace(side, run={**side.run, "id": at.resolve().name})
        for side, at in ((found.run, folder), (found.against, other))
    )
    found = replace(found, run=run, against=against)
    if as_json:
        print(json.dumps(found.as_json(), indent=1, default=str), file=stream)
    else:
        write_comparison(found, stream, width=_width(stream))


def show_job(folders: list[Path], stream: TextIO, *, as_json: bool = False) -> None:
    """Write the one verdict on several records of a job."""
    records, unread = [], []
    for folder in folders:
        try:
            records.append(open_record(folder))
        except DamagedRecord as error:
            unread.append(str(error))
    if not records:
        raise DamagedRecord("none of these records can be read: " + "; ".join(unread))
    found = job_verdict(records)
    shown = summary_of(found.record, found.verdict)
    if as_json:
        document = {**found.verdict.as_json(), "notes": [*unread, *found.notes]}
        print(json.dumps(document, indent=1, default=str), file=stream)
    else:
        shown = replace(shown, damage=(*unread, *found.notes, *shown.damage))
        write_verdict(found.verdict, shown, stream, width=_width(stream))


def show_on_stderr(folder: Path) -> None:
    """At the end of a run: after the command's own output, and never on stdout."""
    page = Stderr()
    show(folder, page)
    page.send()


def _width(stream: TextIO) -> int:
    return min(100, shutil.get_terminal_size().columns) if stream.isatty() else 80
