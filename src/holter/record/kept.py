"""The records as files: what each takes on the disk, and how one is deleted for good."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from holter.errors import DamagedRecord, HolterError
from holter.record import labels, place
from holter.record.recent import recent

_LEAVING = ".deleted-"
_CHECKED = ".size-checked"  # its time tells when it was last looked at how much all of them take
_DAY = 86400.0
_SILENT = 600.0  # a recorder writes each second
# What records may take where nobody has said anything: as little as a system's own log takes.
_MOST_BYTES, _PART_OF_DISK = 5 * 10**9, 10


@dataclass(frozen=True)
class Kept:
    """One record on the disk."""

    id: str
    folder: Path
    taken: int  # bytes of the disk
    written: float  # when something was last written

    @property
    def live(self) -> bool:
        """Tell whether it is still being recorded.

        A recorder in another container or on another machine can't be seen from here, and one that begins has written
        nothing that can be read: what was written to just now is taken as live.
        """
        try:
            record = recent(self.folder)
        except DamagedRecord:
            return self._written_just_now
        return record.live or (record.recorder_lost and self._written_just_now)

    @property
    def _written_just_now(self) -> bool:
        return time.time() - self.written < _SILENT


def kept_runs(base: Path) -> list[Kept]:
    """All records of this user, the oldest first; those of others in a shared folder are theirs to delete."""
    folders = [place.runs_folder(base) / run_id for run_id in place.run_ids(base)]
    return [kept_run(folder) for folder in folders if _is_mine(folder)]


def kept_run(folder: Path) -> Kept:
    linked = folder.is_symlink()  # then the record itself lies elsewhere, and stays
    taken, written = 0, 0.0
    for path, _, files in os.walk(folder):
        for name in (".", *files):
            try:
                about = os.lstat(os.path.join(path, name))
            except OSError:
                continue  # deleted meanwhile
            taken += 0 if linked else about.st_blocks * 512
            if name != labels.FILE:  # a note on an old run does not make it a new one
                written = max(written, about.st_mtime)
    return Kept(folder.name, folder, taken, written)


def _is_mine(folder: Path) -> bool:
    try:
        return os.lstat(folder).st_uid == os.geteuid()
    except OSError:
        return False  # deleted meanwhile


def refuse_if_live(run: Kept) -> None:
    """Raise the reason why a run that is on is not deleted."""
    if run.live:
        raise HolterError(
            f"{run.id} is still being recorded, or was a few minutes ago",
            "Nothing was deleted. End the run first; if its recorder was killed, try again in ten minutes",
        )


def delete(folder: Path) -> None:
    """Take a record away: under another name first, so that nobody reads half of it. Its number is not given again."""
    if not _is_mine(folder):
        raise PermissionError(errno.EPERM, "it is another user's", str(folder))
    place.give_no_more(folder)
    if folder.is_symlink():
        folder.unlink()
        return
    leaving = folder.with_name(f"{_LEAVING}{folder.name}-{os.getpid()}")
    folder.rename(leaving)
    shutil.rmtree(leaving)


def clear_half_deleted(base: Path) -> None:
    """Delete what an interrupted deletion has left."""
    for leaving in place.runs_folder(base).glob(f"{_LEAVING}*"):
        if _is_mine(leaving):
            shutil.rmtree(leaving, ignore_errors=True)


def over_the_limit(
    runs: Sequence[Kept], limit: float, may_go: Callable[[Kept], bool] = lambda _run: True
) -> list[Kept]:
    """Give the oldest records, as many as have to go for the rest to take no more than the limit."""
    total = sum(run.taken for run in runs)
    gone = []
    for run in runs:
        if total <= limit:
            break
        if not run.live and may_go(run):
            gone.append(run)
            total -= run.taken
    return gone


def keep_the_disk_free(base: Path, limit: float | None = None) -> list[Kept]:
    """Delete the oldest records as far as all of them take more than 5 GB or a tenth of the disk; looked at once a day.

    Nothing that was written within the last day goes.
    """
    checked = base / _CHECKED
    try:
        if time.time() - checked.stat().st_mtime < _DAY:
            return []
    except FileNotFoundError:
        pass
    checked.touch(mode=0o600)
    clear_half_deleted(base)
    if limit is None:
        disk = os.statvfs(base)
        part = disk.f_blocks * disk.f_frsize / _PART_OF_DISK
        limit = min(_MOST_BYTES, part) if part else _MOST_BYTES  # some file systems do not tell their size
    newest, gone = time.time() - _DAY, []
    for run in over_the_limit(kept_runs(base), limit, lambda run: run.written < newest):
        with contextlib.suppress(OSError):  # the next one may go all the same
            delete(run.folder)
            gone.append(run)
    return gone
