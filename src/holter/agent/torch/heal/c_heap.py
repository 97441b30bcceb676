"""Has glibc give each tensor pages of its own, which go when it goes, and keeps it from using freed ones again.

What lies in its heap and is free is given back to the kernel, but stays asked for, and a large tensor would be put
there again: more memory would be touched than the wall counts. So the free pieces are taken, untouched, and kept.
That has to be done while nothing new can be had: a thread whose malloc failed once goes on in another heap of the C
library's, and comes back to the first only when all else fails.  Pages of one's own are made anew for each tensor,
which takes as long as many an operation on it. Where there is memory to spare again, the heap may keep what is freed
and use it again.
"""

import ctypes
import resource

from ....facts import host_memory

_MMAP_THRESHOLD, _OWN_PAGES_BYTES = -3, 1 << 16
_TRIM_THRESHOLD, _TRIM_SOON_BYTES = -1, 1 << 17
_USUAL_MMAP_BYTES, _NEVER_TRIM_BYTES = 1 << 25, 1 << 30  # what glibc comes to by itself; more than lies free at its end
_MAX_RELAXATIONS = 2
_MAX_PIECE_BYTES, _MAX_PIECES = 1 << 30, 4096
_IS_MAPPED = 2  # a flag in the word before a piece: it has pages of its own


class Heap:
    """The C library's heap of this process; None of it is ours to free."""

    def __init__(self):
        self.libc = ctypes.PyDLL(None)  # Python's other threads wait meanwhile: nothing can be had then
        self.known = hasattr(self.libc, "mallopt")  # musl has none
        self.taken = self.relaxed = 0
        self.strict = True
        if self.known:
            self.libc.malloc.restype = ctypes.c_void_p
            self.libc.malloc.argtypes = [ctypes.c_size_t]
            self.libc.free.argtypes = [ctypes.c_void_p]
            self.libc.mallopt(_MMAP_THRESHOLD, _OWN_PAGES_BYTES)

    def relax(self):
        """Keep what is freed; until memory runs out once more, and not for ever again."""
        if self.known and self.strict and self.relaxed < _MAX_RELAXATIONS:
            self.relaxed, self.strict = self.relaxed + 1, False
            self.libc.mallopt(_MMAP_THRESHOLD, _USUAL_MMAP_BYTES)
            self.libc.mallopt(_TRIM_THRESHOLD, _NEVER_TRIM_BYTES)

    def give_back(self):
        """Give back what is free, and take the pieces that are large enough for a tensor."""
        if self.known and not self.strict:
            self.strict = True
            self.libc.mallopt(_MMAP_THRESHOLD, _OWN_PAGES_BYTES)
            self.libc.mallopt(_TRIM_THRESHOLD, _TRIM_SOON_BYTES)
        host_memory.trim()
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if not self.known or soft == resource.RLIM_INFINITY:
            return
        resource.setrlimit(resource.RLIMIT_DATA, (min(soft, host_memory.status("VmData")), hard))
        try:
            self._take()
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))

    def _take(self):
        size = _MAX_PIECE_BYTES
        while size >= _OWN_PAGES_BYTES and self.taken < _MAX_PIECES:
            piece = self.libc.malloc(size)
            if not piece:  # beyond the wall, where only the heap could have had it
                size //= 2
            elif ctypes.c_size_t.from_address(piece - ctypes.sizeof(ctypes.c_size_t)).value & _IS_MAPPED:
                self.libc.free(piece)
                size //= 2
            else:
                self.taken += 1
