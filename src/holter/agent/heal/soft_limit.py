"""The soft wall, seen from inside: it stands only while what fails there is caught, and is done again in chunks.

The recorder says where it belongs, in a page that both have mapped (`PID.wall`); `RLIMIT_DATA` is set to that for the
length of a call that a reflex watches over, and is the script's own at all other times. So no allocation of the
script's fails that the kernel would have allowed. A thread that takes much meanwhile may still meet it: a limit of the
kernel's is the whole process's.
"""

import mmap
import os
import struct
from contextlib import contextmanager

_WORD = struct.Struct("<q")


class Wall:
    """`with wall:` around what is caught; calls within calls are one."""

    def __init__(self, folder):
        import resource

        self.resource, self.pid = resource, os.getpid()
        self.deep, self.own = 0, None
        fd = os.open(os.path.join(folder, "%d.wall" % self.pid), os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.ftruncate(fd, _WORD.size)
            self.page = mmap.mmap(fd, _WORD.size)
        finally:
            os.close(fd)

    def at(self):
        """Where it belongs, in bytes of private memory; 0 where there is none, as in a forked child."""
        return _WORD.unpack_from(self.page)[0] if os.getpid() == self.pid else 0

    def move(self, by):
        """After memory was given back that still counts as asked for: the recorder learns of it from this."""
        at = self.at()
        if at and by > 0:
            _WORD.pack_into(self.page, 0, at + by)
            if self.own is not None:
                self._set(at + by, self.own)

    def __enter__(self):
        self.deep += 1
        if self.deep == 1:
            at = self.at()
            if at:
                self.own = self.resource.getrlimit(self.resource.RLIMIT_DATA)
                self._set(at, self.own)
        return self

    def __exit__(self, *_):
        self.deep -= 1
        if not self.deep and self.own is not None:
            own, self.own = self.own, None
            self.resource.setrlimit(self.resource.RLIMIT_DATA, own)

    @contextmanager
    def lifted(self):
        """For a call that can't be done in parts: what the kernel allows is allowed."""
        if self.own is None:
            yield
            return
        own, self.own = self.own, None
        self.resource.setrlimit(self.resource.RLIMIT_DATA, own)
        try:
            yield
        finally:
            self.own = own
            self._set(self.at(), own)

    def _set(self, at, own):
        soft, hard = own
        known = [limit for limit in (at, soft, hard) if limit not in (0, self.resource.RLIM_INFINITY)]
        self.resource.setrlimit(self.resource.RLIMIT_DATA, (min(known), hard))


class NoWall:
    """Where there is none: not Linux, or no recorder that could say where it belongs."""

    def at(self):
        return 0

    def move(self, by):
        """Nothing to move."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Nothing to lift."""

    @contextmanager
    def lifted(self):
        yield


def wall_of(agent):
    """The one of this process."""
    found = getattr(agent, "wall", None)
    if found is None:
        try:
            found = Wall(agent.folder) if os.path.exists("/proc/self/statm") else NoWall()
        except (AttributeError, ImportError, OSError, ValueError):
            found = NoWall()
        agent.wall = found
    return found
