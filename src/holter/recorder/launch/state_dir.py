"""The folders that a run's attempts share under `--heal`: in them lies the state that the next one goes on from.

Small states lie in shared memory, where a killed trainer loses nothing and no disk is waited for; larger ones, and now
and then a copy, on the disk of the records. Both go when the run is over.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from holter.record import environment, place
from holter.recorder.launch import run_dir
from holter.recorder.loop.processes import lives


@dataclass
class StateDirs:
    """Where the state lies."""

    fast: Path | None
    disk: Path | None

    def attempt_environ(self, attempt: int) -> dict[str, str]:
        """What the agents of an attempt are told."""
        known = {environment.STATE: self.fast, environment.STATE_DISK: self.disk}
        given = {name: str(path) for name, path in known.items() if path is not None}
        return {**given, environment.ATTEMPT: str(attempt)}

    def clear(self) -> None:
        for path in (self.fast, self.disk):
            if path is not None:
                shutil.rmtree(path, ignore_errors=True)


def make() -> StateDirs:
    """Make the folders, private to the user; one that can't be had is done without.

    They are the recorder's: a keeper ends with its attempt, and a run that is started just then would take them for
    abandoned.
    """
    made = StateDirs(run_dir.make(), _on_disk())
    if made.fast is not None:
        run_dir.note_owner(made.fast, os.getpid(), None)
    return made


def _on_disk() -> Path | None:
    for in_home in (True, False):
        try:
            base = place.home() / "states" if in_home else Path(tempfile.gettempdir())
            base.mkdir(mode=0o700, parents=True, exist_ok=True)
            _clear_abandoned(base)
            return Path(tempfile.mkdtemp(prefix=f"holter-state-{os.getpid()}-", dir=base))
        except OSError:
            continue
    return None


def _clear_abandoned(base: Path) -> None:
    """What runs left behind that were killed together with their recorder."""
    for path in base.glob("holter-state-*-*"):
        owner = path.name.split("-")[2]
        if owner.isdigit() and not lives(int(owner)) and path.lstat().st_uid == os.getuid() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
