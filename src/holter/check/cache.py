"""What earlier checks found, so that a file that did not change is not read again.

One file in the user's cache folder for each Holter, Python, settings and working folder. It can only save time: one
that is missing, damaged, too large or anybody else's is as good as none, and nobody is told.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holter.check.problem import Checked, Problem, TextEdit, Unread
from holter.check.settings import Settings
from holter.finding import Cure

_MAX_FILES = 16
_MAX_BYTES = 32_000_000  # of one of them
_MAX_OTHERS = 20_000  # files that this check did not ask for, and an earlier one did
# A file may change once more within the time that its file system can tell apart.
_SETTLED_S = 2.0


@dataclass(frozen=True)
class Stamp:
    """A file as it was read: what the file system says of it, and its content; `stat` is empty for one just written."""

    stat: str
    content: str


def cache_folder() -> Path | None:
    """Give the folder of this user's caches of ours; made where it is missing, None where nobody can write."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    mac = sys.platform == "darwin"
    above = Path(given) if os.path.isabs(given) else Path("~/Library/Caches" if mac else "~/.cache").expanduser()
    folder = above / "holter" / "check"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(0o700)
        about = folder.lstat()
    except (OSError, RuntimeError):  # RuntimeError: a user without a home
        return None
    # Nobody else may have put anything there, nor be able to.
    ours = stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid() and not about.st_mode & 0o077
    return folder if ours else None


def stamp_of(about: os.stat_result) -> str:
    """Give what the file system says of a file; nothing where it was written just now."""
    if max(about.st_mtime, about.st_ctime) > time.time() - _SETTLED_S:
        return ""
    return f"{about.st_dev}-{about.st_ino}-{about.st_size}-{about.st_mtime_ns}-{about.st_ctime_ns}"


def content_of(raw: bytes) -> str:
    return hashlib.blake2b(raw, digest_size=16).hexdigest()


class Cache:
    """The findings of one working folder, by the path of each file."""

    @classmethod
    def open(cls, folder: Path, settings: Settings) -> Cache | None:
        try:
            return cls(folder, settings)
        except OSError:
            return None  # the working folder is gone

    def __init__(self, folder: Path, settings: Settings) -> None:
        self._file = folder / f"{_key(settings)}.json"
        self._here = os.getcwd()
        self._old = _load(self._file)
        self._new: dict[str, list[Any]] = {}
        self._changed = False

    def find(self, path: str) -> Checked | None:
        """Give what was found in a file, if it was not touched since."""
        entry = self._old.get(self._name(path))
        if entry is None or not entry[0]:
            return None
        try:
            if stamp_of(os.stat(path)) != entry[0]:
                return None
        except (OSError, ValueError):
            return None
        self._new[self._name(path)] = entry
        return _checked(path, entry[2])

    def content(self, path: str) -> str:
        """Give the content that a file had when it was last checked: touched is not changed."""
        entry = self._old.get(self._name(path))
        return entry[1] if entry is not None else ""

    def same(self, path: str, stamp: Stamp) -> Checked:
        """Give what was found in a file that was touched and is what it was."""
        entry = self._old[self._name(path)]
        self._put(path, [stamp.stat, stamp.content, entry[2]])
        return _checked(path, entry[2])

    def keep(self, path: str, stamp: Stamp, found: Checked) -> Checked:
        self._put(path, [stamp.stat, stamp.content, _plain(path, found)])
        return found

    def _put(self, path: str, entry: list[Any]) -> None:
        self._new[self._name(path)] = entry
        self._changed = True

    def _name(self, path: str) -> str:
        # As it was given: a link may have the name of a test, and its target not.
        return os.path.join(self._here, path)

    def save(self) -> None:
        """Write all of it beside the old one and rename it: of several processes, the last one's counts."""
        if not self._changed:
            return
        room = max(0, _MAX_OTHERS - len(self._new))
        others = [(name, entry) for name, entry in self._old.items() if name not in self._new][:room]
        body = json.dumps(self._new | dict(others), separators=(",", ":")).encode()
        if len(body) > _MAX_BYTES:
            return
        made = ""
        try:
            fd, made = tempfile.mkstemp(dir=self._file.parent)
            with open(fd, "wb") as file:
                file.write(content_of(body).encode() + b"\n" + body)
            os.replace(made, self._file)
            made = ""
            by_age = sorted(self._file.parent.iterdir(), key=lambda one: one.stat().st_mtime, reverse=True)
            for old in by_age[_MAX_FILES:]:
                old.unlink()
        except OSError:
            pass  # full, gone, or tidied by another process at the same moment
        finally:
            if made:
                with contextlib.suppress(OSError):
                    os.unlink(made)


def _key(settings: Settings) -> str:
    """Name all that a finding depends on, besides the file: our own code, Python, the settings, and where we are."""
    code = hashlib.blake2b(digest_size=16)
    ours = Path(__file__).parents[1]
    for path in sorted(
        [*ours.glob("check/**/*.py"), *ours.glob("source/*.py"), ours / "finding.py", ours / "units.py"]
    ):
        code.update(path.read_bytes())
    per_file = sorted((glob, sorted(codes)) for glob, codes in settings.per_file.items())
    asked = [sorted(settings.select), sorted(settings.ignore), per_file, str(settings.root.absolute())]
    code.update(json.dumps([sys.version, asked, os.getcwd()]).encode())
    return code.hexdigest()


def _load(path: Path) -> dict[str, list[Any]]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        with open(fd, "rb") as file:
            about = os.fstat(fd)
            if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid() or about.st_size > 2 * _MAX_BYTES:
                return {}
            sum_of_body, _, body = file.read().partition(b"\n")
        if content_of(body).encode() != sum_of_body:
            return {}
        found: dict[str, list[Any]] = json.loads(body)
        return found
    except (OSError, ValueError):
        return {}


def _plain(path: str, found: Checked) -> list[Any] | None:
    """Give what was found as JSON; None for nothing, as for most files."""
    if not found.problems and not found.unread:
        return None
    problems = [{**one.as_json(), "file": ""} for one in found.problems]
    return [problems, [(one.file.removeprefix(path), one.why) for one in found.unread]]


def _checked(path: str, plain: list[Any] | None) -> Checked:
    if plain is None:
        return Checked(1)
    problems, unread = plain
    return Checked(1, [_problem(path, one) for one in problems], [Unread(path + cell, why) for cell, why in unread])


def _problem(path: str, plain: dict[str, Any]) -> Problem:
    cures = tuple(Cure(**one) for one in plain["cures"])
    edits = tuple(TextEdit(**one) for one in plain["edits"])
    return Problem(**{**plain, "file": path, "cures": cures, "edits": edits})
