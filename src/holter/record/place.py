"""Where records lie, and how they are named."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

SCHEMA = 1
META = "record.json"
EVENTS = "events.jsonl"
KEEPER = "keeper.jsonl"
SOURCES = "sources.jsonl"
TIMELINE = "timeline"
TAIL = "output.tail"
STACKS = "stacks"
GUESTS = "guests"

_RUN_ID = re.compile(r"r-(\d{4,9})")


def home() -> Path:
    """The folder of all records: $HOLTER_HOME, by default ~/.holter."""
    chosen = os.environ.get("HOLTER_HOME")
    if chosen:
        return Path(chosen)
    try:
        return Path.home() / ".holter"
    except RuntimeError:  # a user without a home, as containers have them
        return Path(tempfile.gettempdir()) / f"holter-home-{os.getuid()}"


def runs_folder(base: Path) -> Path:
    return base / "runs"


def run_ids(base: Path) -> list[str]:
    """The ids of all runs, oldest first."""
    try:
        names = [entry.name for entry in os.scandir(runs_folder(base)) if _RUN_ID.fullmatch(entry.name)]
    except OSError:
        return []
    return sorted(names, key=lambda name: int(name[2:]))


def new_run(base: Path) -> Path:
    """Make the next run's folder, private to the user; two runs that start at once get two numbers."""
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    runs = runs_folder(base)
    runs.mkdir(mode=0o700, exist_ok=True)
    known = run_ids(base)
    number = int(known[-1][2:]) + 1 if known else 1
    while True:
        folder = runs / f"r-{number:04d}"
        try:
            folder.mkdir(mode=0o700)
            break
        except FileExistsError:
            number += 1
    try:
        for name in (TIMELINE, STACKS, GUESTS):
            (folder / name).mkdir(mode=0o700)
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)  # half a folder would be taken for the last run
        raise
    return folder
