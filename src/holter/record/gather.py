"""Brings what the guests wrote into the record, when a run is over or its recorder is gone."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from holter.record import place


def gather(guest_dir: Path, folder: Path) -> None:
    """Move the guests' files into the record, each by itself; empty ones are dropped."""
    try:
        entries = list(os.scandir(guest_dir))
    except OSError:
        return
    for entry in entries:
        source = Path(entry.path)
        if not entry.name[:1].isdigit():
            continue  # not a guest's
        if entry.name.endswith(".stacks"):
            target = folder / place.STACKS / (entry.name[: -len(".stacks")] + ".txt")
        else:
            target = folder / place.GUESTS / entry.name
        try:
            if source.stat().st_size:
                shutil.copyfile(source, target)
            source.unlink()
        except OSError:
            continue
    shutil.rmtree(guest_dir, ignore_errors=True)
