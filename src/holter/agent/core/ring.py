"""The writing side of the ring: one per process, mapped memory that outlives it."""

import errno
import mmap
import os
import time
from zlib import crc32

from ...record import ring_format as f

_WRITTEN = f.BODY.size + f.CRC.size
_SHARE = 256  # a ring takes at most one part in so many of what is free: in a container's 64 MB others need it more
_FEWEST = 64  # slots: they hold more than a second, and the recorder comes each second


class Ring:
    """A mapped file whose every byte is reserved beforehand: a full disk can never turn a store into a SIGBUS."""

    def __init__(self, folder):
        found = os.statvfs(folder)
        free = found.f_bavail * found.f_frsize
        self.capacity = max(_FEWEST, min(f.CAPACITY, (free // _SHARE - f.HEADER) // f.SLOT))
        size = f.HEADER + f.SLOT * self.capacity
        if size * 8 > free:
            raise OSError(errno.ENOSPC, "too little room")
        made, pid = time.monotonic_ns(), os.getpid()
        # By the time, too: an earlier process may have had this number, or this one another program.
        path = os.path.join(folder, "%d.%d.ring" % (pid, made))
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            zeros = bytes(1 << 16)
            left = size
            while left > 0:
                left -= os.write(fd, zeros[: min(left, len(zeros))])
            self.map = mmap.mmap(fd, size)
        except BaseException:
            os.unlink(path)
            raise
        finally:
            os.close(fd)
        head = f.HEAD.pack(f.MAGIC, f.VERSION, f.SLOT, self.capacity, pid, made, 0)
        head = head[:-4] + f.CRC.pack(crc32(head[:-4]))
        self.map[: len(head)] = head
        end = f.WORDS_AT + 8 * f.WORDS
        self.words = memoryview(self.map)[f.WORDS_AT : end].cast("Q")
        self.head = 0

    def put(self, body):
        """Write one packed slot (all but its checksum); the header's count moves last."""
        n = self.head
        at = f.HEADER + (n % self.capacity) * f.SLOT
        self.map[at : at + _WRITTEN] = body + f.CRC.pack(crc32(body))
        self.head = n + 1
        self.words[f.W_HEAD] = n + 1
