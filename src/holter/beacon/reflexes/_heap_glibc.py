"""Has glibc give each tensor pages of its own, which go when it goes, and keeps it from using freed ones again.

What lies in its heap and is free is given back to the kernel, but stays asked for, and a large tensor would be put
there again: more memory would be touched than the wall counts. So the free pieces are taken, untouched, and kept.
That has to be done while nothing new can be had: a thread whose malloc failed once goes on in another heap of the C
library's, and comes back to the first only when all else fails.
"""

import ctypes
import resource

from . import _host_room

_MMAP_THRESHOLD, _OWN_PAGES = -3, 1 << 16
_LARGEST, _MOST = 1 << 30, 4096
_IS_MAPPED = 2  # a flag in the word before a piece: it has pages of its own


class Heap:
    """The C library's heap of this process; None of it is ours to free."""

    def __init__(self):
        self.libc = ctypes.PyDLL(None)  # Python's other threads wait meanwhile: nothing can be had then
        self.known = hasattr(self.libc, "mallopt")  # musl has none
        self.taken = 0
        if self.known:
            self.libc.malloc.restype = ctypes.c_void_p
            self.libc.malloc.argtypes = [ctypes.c_size_t]
            self.libc.free.argtypes = [ctypes.c_void_p]
            self.libc.mallopt(_MMAP_THRESHOLD, _OWN_PAGES)

    def give_back(self):
        """Give back what is free, and take the pieces that are large enough for a tensor."""
        _host_room.trim()
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if not self.known or soft == resource.RLIM_INFINITY:
            return
        resource.setrlimit(resource.RLIMIT_DATA, (min(soft, _host_room.status("VmData")), hard))
        try:
            self._take()
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))

    def _take(self):
        size = _LARGEST
        while size >= _OWN_PAGES and self.taken < _MOST:
            piece = self.libc.malloc(size)
            if not piece:  # beyond the wall, where only the heap could have had it
                size //= 2
            elif ctypes.c_size_t.from_address(piece - ctypes.sizeof(ctypes.c_size_t)).value & _IS_MAPPED:
                self.libc.free(piece)
                size //= 2
            else:
                self.taken += 1
