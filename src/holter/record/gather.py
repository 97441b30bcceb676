"""Brings what the guests wrote into the record, when a run is over or its recorder is gone."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from holter.record import place


def gather(guest_dir: Path, folder: Path) -> bool:
    """Move the guests' files into the record, each by itself; empty ones are dropped. False when some had to stay."""
    try:
        entries = list(os.scandir(guest_dir))
    except OSError:
        return True
    whole = True
    for entry in entries:
        source = Path(entry.path)
        if not entry.name[:1].isdigit():
            continue  # not a guest's
        if entry.name.endswith(".stacks"):
            target = folder / place.STACKS / (entry.name[: -len(".stacks")] + ".txt")
        else:
            target = folder / place.GUESTS / entry.name
        try:
            facts = source.lstat()
            if stat.S_ISREG(facts.st_mode) and facts.st_size:
                _copy(source, target)
            source.unlink()
        except OSError:
            whole = whole and not os.path.lexists(source)  # one that is gone has been brought home by someone else
    if whole:
        shutil.rmtree(guest_dir, ignore_errors=True)
    return whole


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
