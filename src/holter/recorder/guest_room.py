"""The folder that guests write into: local memory where there is some, since a disk could make a training step wait."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import holter
from holter.record.gather import gather
from holter.record.reader import start_time

OWNER = "owner.json"
_ROOM = 8 << 20
INJECT = Path(holter.__file__).resolve().parent / "beacon" / "inject"


def make() -> Path | None:
    """A private folder: in shared memory when 8 MB are free there, else in the temporary folder, else None."""
    for base in ("/dev/shm", tempfile.gettempdir()):
        try:
            free = os.statvfs(base)
            if free.f_bavail * free.f_frsize >= _ROOM:
                return Path(tempfile.mkdtemp(prefix=f"holter-{os.getuid()}-", dir=base))
        except OSError:
            continue
    return None


def note_owner(guest_dir: Path, keeper: int, folder: Path | None) -> None:
    """Write down whose folder this is, so that it can be cleared away if all of them are killed at once."""
    owner = {"keeper": keeper, "start": start_time(keeper), "record": str(folder) if folder else None}
    try:
        (guest_dir / OWNER).write_text(json.dumps(owner))
    except OSError:
        pass


def clear_abandoned() -> None:
    """Bring home what runs left behind whose keeper is gone too; nothing of a living run is touched."""
    for base in {"/dev/shm", tempfile.gettempdir()}:
        for guest_dir in Path(base).glob(f"holter-{os.getuid()}-*"):
            try:
                owner = json.loads((guest_dir / OWNER).read_text())
                if start_time(int(owner["keeper"])) == owner["start"] is not None:
                    continue
                (guest_dir / OWNER).unlink()
                record = owner.get("record")
            except (OSError, ValueError, KeyError, TypeError):
                continue
            if record and Path(record).is_dir():
                gather(guest_dir, Path(record))
            else:
                shutil.rmtree(guest_dir, ignore_errors=True)


def environment(guest_dir: Path | None, run_id: str, base: Mapping[str, str]) -> dict[str, str]:
    """The command's environment: the user's own, with the beacon in front of PYTHONPATH."""
    environ = dict(base)
    if guest_dir is None:
        return environ
    path = environ.get("PYTHONPATH")
    environ["PYTHONPATH"] = f"{INJECT}{os.pathsep}{path}" if path else str(INJECT)
    environ["HOLTER_GUESTS"] = str(guest_dir)
    environ["HOLTER_RUN"] = run_id
    return environ
