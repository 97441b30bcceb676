"""The writing side of the ring: one per process, mapped memory that outlives it."""

import mmap
import os
import time
from zlib import crc32

from ..record import ring_format as f

_WRITTEN = f.BODY.size + f.CRC.size


class Ring:
    """A mapped file whose every byte is reserved beforehand: a full disk can never turn a store into a SIGBUS."""

    def __init__(self, path):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            zeros = bytes(1 << 16)
            left = f.SIZE
            while left > 0:
                left -= os.write(fd, zeros[: min(left, len(zeros))])
            self.map = mmap.mmap(fd, f.SIZE)
        except BaseException:
            os.unlink(path)
            raise
        finally:
            os.close(fd)
        head = f.HEAD.pack(f.MAGIC, f.VERSION, f.SLOT, f.CAPACITY, os.getpid(), time.monotonic_ns(), 0)
        head = head[:-4] + f.CRC.pack(crc32(head[:-4]))
        self.map[: len(head)] = head
        end = f.WORDS_AT + 8 * f.WORDS
        self.words = memoryview(self.map)[f.WORDS_AT : end].cast("Q")
        self.head = 0

    def put(self, body):
        """Write one packed slot (all but its checksum); the header's count moves last."""
        n = self.head
        at = f.HEADER + (n % f.CAPACITY) * f.SLOT
        self.map[at : at + _WRITTEN] = body + f.CRC.pack(crc32(body))
        self.head = n + 1
        self.words[f.W_HEAD] = n + 1
