"""Brings what the agents wrote into the record, when a run is over or its recorder is gone."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from holter.record import place


def gather(agent_dir: Path, folder: Path) -> bool:
    """Move the agents' files into the record, each by itself; empty ones are dropped. False when some had to stay."""
    try:
        entries = list(os.scandir(agent_dir))
    except OSError:
        return True
    all_moved = True
    for entry in entries:
        if entry.name[:1].isdigit():  # else not an agent's
            all_moved = bring_home(Path(entry.path), folder) and all_moved
    if all_moved:
        shutil.rmtree(agent_dir, ignore_errors=True)
    return all_moved


def bring_home(source: Path, folder: Path) -> bool:
    """Move one file of an agent's into the record; an empty one is dropped. False when it had to stay."""
    if source.suffix == ".stacks":
        target = folder / place.STACKS / (source.stem + ".txt")
    else:
        target = folder / place.AGENT_FILES / source.name
    number = 1
    while os.path.lexists(target):  # of an earlier process with the same number
        number += 1
        target = target.with_name(f"{source.name.partition('.')[0]}.{number}{target.suffix}")
    try:
        facts = source.lstat()
        if stat.S_ISREG(facts.st_mode) and facts.st_size:
            _copy(source, target)
        source.unlink()
    except OSError:
        return not os.path.lexists(source)  # one that is gone has been brought home by someone else
    return True


def _copy(source: Path, target: Path) -> None:
    """A copy that is private from its first byte on; one that does not fit leaves nothing behind."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    try:
        with open(source, "rb") as given, open(os.open(target, flags, 0o600), "wb") as taken:
            shutil.copyfileobj(given, taken)
    except OSError:
        if os.path.lexists(source):
            target.unlink(missing_ok=True)
        raise
