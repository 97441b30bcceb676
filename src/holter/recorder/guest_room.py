"""The folder that guests write into: local memory where there is some, since a disk could make a training step wait."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import holter

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
