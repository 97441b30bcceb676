"""Checkpoints as they are written: whether there is room for one more where the last one went.

Looked at again a moment later, when a script that keeps only the last ones has thrown away the oldest; told once, and
again when there had been room in between. Nothing is said of a disk with room for several.
"""

import functools
import os
from time import monotonic

from .wrap import drop_own_frame

_LATER = 1.5  # seconds
_LEAST = 1 << 20  # bytes: what is smaller fills no disk
_ROOMY = 4  # checkpoints that still fit: nothing needs to be looked at


class Saves:
    """The checkpoints of this process."""

    def __init__(self, agent):
        self.agent = agent
        self.depth = 0
        self.count = self.at_step = self.every = 0
        self.waiting = None  # folder, bytes, when
        self.reported = False

    def around(self, holder, name, path_of, failed=None):
        """Stand around a function that writes a checkpoint; `path_of` finds the path among its arguments.

        `failed` is told of the agent and the path, or what stands for it, when the function raises.
        """
        inner = getattr(holder, name)

        @functools.wraps(inner)
        def save(*args, **kwargs):
            outermost, self.depth = self.depth == 0, self.depth + 1
            path, before = None, 0
            try:
                if outermost:
                    path, before = self._before(path_of, args, kwargs)
                result = inner(*args, **kwargs)
            except BaseException as error:
                drop_own_frame(error)
                if failed is not None and isinstance(error, Exception):
                    self.agent.guard(lambda: failed(self.agent, path_of(*args, **kwargs)))()
                raise
            finally:
                self.depth -= 1
            if path is not None:
                self.agent.guard(self._wrote)(path, before)
            return result

        setattr(holder, name, save)

    def _before(self, path_of, args, kwargs):
        try:
            path = _path(path_of(*args, **kwargs))
            return path, _size(path) if path is not None else 0
        except Exception:  # other arguments than are known: then nothing is known of this one
            pass
        return None, 0

    def _wrote(self, path, before):
        beat = self.agent.beat
        took = _size(path) - before  # one that is written over makes its own room
        if took < _LEAST:
            return
        self.count += 1
        self.every, self.at_step = beat.steps - self.at_step, beat.steps
        folder = os.path.dirname(path)
        self.waiting = (folder, took, monotonic()) if _free(folder)[0] < _ROOMY * took else None
        self.reported = self.reported and self.waiting is not None

    def look(self):
        """Now and then, between two steps."""
        if self.waiting is None or monotonic() - self.waiting[2] < _LATER:
            return
        folder, took, _ = self.waiting
        self.waiting = None
        free, total = _free(folder)
        if free < took and not self.reported:
            self.reported = True
            self.agent.say(
                "no-room", path=folder, bytes=took, free=free, total=total, saves=self.count, every=self.every,
                step=self.at_step,
            )  # fmt: skip


def _size(path):
    if not os.path.isdir(path):
        return os.path.getsize(path) if os.path.exists(path) else 0
    inside = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
    return sum(os.path.getsize(one) for one in inside if os.path.exists(one))


def _path(target):
    """The path of what was named or of an open file; a Path's own `name` is only the last part of it."""
    if not isinstance(target, (str, bytes, os.PathLike)):
        target = getattr(target, "name", None)
    return os.path.abspath(os.fsdecode(target)) if isinstance(target, (str, bytes, os.PathLike)) else None


def _free(folder):
    space = os.statvfs(folder)
    return space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize


def saves_of(agent):
    """The one of this process, whichever framework comes first."""
    found = getattr(agent, "saves", None)
    if found is None:
        found = agent.saves = Saves(agent)
    return found


# --- A checkpoint that could not be written: how much room there was at that moment, which a reading a second may
# miss


def report_failure(agent, target):
    """Say what is free where `target`, a path or an open file, was to be written."""
    path = _path(target)
    if path is None:
        return
    folder = os.path.dirname(path)
    space = os.statvfs(folder)
    agent.say(
        "save-failed", path=folder, free=space.f_bavail * space.f_frsize, total=space.f_blocks * space.f_frsize,
        inodes_free=space.f_favail,
    )  # fmt: skip
