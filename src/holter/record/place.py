"""Where records lie, and how they are named."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import tempfile
from pathlib import Path

from holter.record import environment

SCHEMA = 1
META = "record.json"
EVENTS = "events.jsonl"
KEEPER = "keeper.jsonl"
SOURCES = "sources.jsonl"
TIMELINE = "timeline"
TAIL = "output.tail"
STACKS = "stacks"
AGENT_FILES = "guests"

_DELETED = ".last-deleted-"  # and a number, in the name of an empty file
_RUN_ID = re.compile(r"r-(\d{4,9})")


def home() -> Path:
    """The folder of all records: $HOLTER_HOME, by default ~/.holter."""
    chosen = os.environ.get(environment.HOME)
    if chosen:
        return Path(chosen)
    try:
        return Path.home() / ".holter"
    except RuntimeError:  # a user without a home, as containers have them
        return _home_among_others(Path(tempfile.gettempdir()))


def _home_among_others(shared: Path) -> Path:
    """A folder where everyone may make some: only one that is ours and closed to others, or records could be read."""
    chosen = shared / f"holter-home-{os.geteuid()}"
    try:
        chosen.mkdir(mode=0o700)
        return chosen
    except FileExistsError:
        pass
    except OSError:
        return chosen  # whoever writes to it will say why that can't be
    others = sorted(shared.glob(f"{chosen.name}-*"))
    found = next((path for path in (chosen, *others) if _private(path)), None)
    if found is None:
        found = Path(tempfile.mkdtemp(prefix=f"{chosen.name}-", dir=shared))
        with contextlib.suppress(OSError):
            told = f"holter: {chosen} is not a private folder of yours, so records go to {found}. "
            os.write(2, f"{told}Choose another one with: HOLTER_HOME=FOLDER\n".encode())
    return found


def _private(path: Path) -> bool:
    try:
        about = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid() and not about.st_mode & 0o077


def runs_folder(base: Path) -> Path:
    return base / "runs"


def run_ids(base: Path) -> list[str]:
    """The ids of all runs, oldest first."""
    try:
        found = [entry for entry in os.scandir(runs_folder(base)) if _RUN_ID.fullmatch(entry.name)]
        names = [entry.name for entry in found if entry.is_dir()]
    except OSError:
        return []
    return sorted(names, key=lambda name: int(name[2:]))


def is_run_id(name: str) -> bool:
    return _RUN_ID.fullmatch(name) is not None


def give_no_more(folder: Path) -> None:
    """Remember the number of a run that is deleted, as far as it is the highest: a new run must not be taken for it."""
    runs, number = folder.parent, int(folder.name[2:])
    higher = _highest_deleted(runs)
    if number > higher:
        (runs / f"{_DELETED}{number:04d}").touch(mode=0o600)
        with contextlib.suppress(OSError):
            (runs / f"{_DELETED}{higher:04d}").unlink()


def _highest_deleted(runs: Path) -> int:
    numbers = [path.name.removeprefix(_DELETED) for path in runs.glob(f"{_DELETED}*")]
    return max((int(number) for number in numbers if _RUN_ID.fullmatch(f"r-{number}")), default=0)


def new_run(base: Path) -> Path:
    """Make the next run's folder, private to the user; two runs that start at once get two numbers."""
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    runs = runs_folder(base)
    runs.mkdir(mode=0o700, exist_ok=True)
    number = max([int(run_id[2:]) for run_id in run_ids(base)[-1:]] + [_highest_deleted(runs)]) + 1
    while True:
        folder = runs / f"r-{number:04d}"
        try:
            folder.mkdir(mode=0o700)
            break
        except FileExistsError:
            number += 1
    try:
        for name in (TIMELINE, STACKS, AGENT_FILES):
            (folder / name).mkdir(mode=0o700)
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)  # half a folder would be taken for the last run
        raise
    return folder
