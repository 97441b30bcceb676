"""How much memory a PyTorch step may still take: on a GPU, on Metal, or before the wall of the host's memory."""

import ctypes
import os
import resource
import sys
from typing import Any

from ....facts import host_memory
from ...heal.soft_limit import NoWall

UNLIMITED = 1 << 62
_SLACK, _MOST_SLACK = 0.05, 0.3  # of the limit
_MOVES = 24 << 20


class CudaRoom:
    """A CUDA device: what the allocator has handed out, against what it may take in all."""

    wall = NoWall()  # what fails on the device says so itself
    workspace = 1.2  # what a larger part may take, against its graph: to try one that does not fit costs little here
    share = 1.0  # of the room, for parts that nothing of is computed twice

    def __init__(self, torch, device):
        self.torch = torch
        self.index = device.index if device.index is not None else torch.cuda.current_device()
        self.retries = self._retries()
        self.limit = self._limit()
        self.slack = _SLACK * self.limit  # room that nothing is kept in

    def _stats(self):
        # What `torch.cuda.memory_allocated` asks for, without the hundred other figures that it names on the way.
        return self.torch._C._cuda_memoryStats(self.index) if self.torch.cuda.is_initialized() else {}

    def _retries(self):
        return self._stats().get("num_alloc_retries", 0)

    def look_back(self):
        """After a backward: an allocator that had to give back its cache first has made the device wait."""
        retries, self.retries = self.retries, self._retries()
        if self.retries > retries:
            self.slack = min(self.slack + _SLACK * self.limit, _MOST_SLACK * self.limit)

    def other_parts(self):
        """What was learned of the slack was learned with parts of another size."""
        self.slack = _SLACK * self.limit

    def calm(self):
        """The allocator has kept what it holds all along."""

    def _limit(self):
        cuda = self.torch.cuda
        free, total = cuda.mem_get_info(self.index)
        asked = getattr(cuda, "get_per_process_memory_fraction", None)
        share = asked(self.index) if asked is not None else 1.0  # older releases keep it to themselves
        return min(free + cuda.memory_reserved(self.index), int(total * share))

    def used(self):
        return self._stats().get("allocated_bytes", {}).get("all", {}).get("current", 0)

    def left(self):
        return self.limit - self.used()

    def ran_out(self):
        """Give back what only the cache holds, and ask anew where the end is: others use the device, too."""
        self.free()
        self.limit = self._limit()
        self.retries = self._retries()  # what fails has tried again first: that says nothing of calm steps

    def free(self):
        self.torch.cuda.empty_cache()


class MetalRoom:
    """Apple's GPU: what the driver holds for this process, against what Metal recommends."""

    wall = NoWall()
    workspace, share = 1.5, 1.0

    def __init__(self, torch):
        self.torch = torch
        self.limit = int(torch.mps.recommended_max_memory())
        self.slack = _SLACK * self.limit

    def calm(self):
        """Its cache is its own affair."""

    def look_back(self):
        """Metal tells nothing of the kind."""

    def other_parts(self):
        """Nor is there a slack to learn."""

    def used(self):
        return self.torch.mps.current_allocated_memory()

    def left(self):
        return self.limit - self.used()

    def ran_out(self):
        self.limit = min(self.limit, self.torch.mps.driver_allocated_memory())
        self.free()

    def free(self):
        self.torch.mps.empty_cache()


class HostRoom:
    """The host's memory, as far as the soft wall lets it grow; without a wall there is no end that could be told."""

    workspace = 1.5
    share = 0.6  # a CPU is as fast with smaller parts, and with room to spare memory need not be made anew each time

    def __init__(self, wall=None):
        self.wall = wall or NoWall()
        self.page = os.sysconf("SC_PAGE_SIZE")
        self.file: "Any" = None
        self.heap = None
        self.tidied = None  # called when memory is from here on given back as soon as it is free
        if sys.platform.startswith("linux"):
            self.file = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)

    def _pages(self):
        return [int(word) * self.page for word in os.pread(self.file, 256, 0).split()]

    def used(self):
        """What the wall counts: all private memory that may be written to."""
        return self._pages()[5] if self.file is not None else 0

    def calm(self):
        """What did not fit before fits with room to spare."""
        if self.heap is not None:
            self.heap.relax()

    def look_back(self):
        """The host's memory has no cache of its own to give back."""

    def other_parts(self):
        """Nor is there a slack to learn."""

    @property
    def limit(self):
        own = resource.getrlimit(resource.RLIMIT_DATA)[0] if self.file is not None else resource.RLIM_INFINITY
        wall = self.wall.at() or UNLIMITED
        return wall if own == resource.RLIM_INFINITY else min(own, wall)

    @property
    def slack(self):
        """The wall moves with what others use, once a second: by this much a step that has begun must still fit."""
        return max(_MOVES, _SLACK * self.limit) if self.limit < UNLIMITED else 0

    def left(self):
        return self.limit - self.used()

    def ran_out(self):
        """Have the C library map each tensor by itself, and give back what it keeps: the wall counts that, too."""
        if self.file is None:
            return
        first, before = self.heap is None, self._untouched()
        if first:
            self.heap = Heap()
        self.heap.give_back()
        self.wall.move(self._untouched() - before)
        if first and self.tidied is not None:
            self.tidied()

    def _untouched(self):
        _, resident, shared, _, _, data, *_ = self._pages()
        return data - (resident - shared)


def room_of(torch, device, wall=None):
    """The room of the device that a model lies on."""
    if device.type == "cuda":
        return CudaRoom(torch, device)
    if device.type == "mps":
        return MetalRoom(torch)
    return HostRoom(wall)


# --- Has glibc give each tensor pages of its own, which go when it goes, and keeps it from using freed ones again
# What lies in its heap and is free is given back to the kernel, but stays asked for, and a large tensor would be put
# there again: more memory would be touched than the wall counts. So the free pieces are taken, untouched, and kept.
# That has to be done while nothing new can be had: a thread whose malloc failed once goes on in another heap of the C
# library's, and comes back to the first only when all else fails.  Pages of one's own are made anew for each tensor,
# which takes as long as many an operation on it. Where there is room to spare again, the heap may keep what is freed
# and use it again.

_MMAP_THRESHOLD, _OWN_PAGES = -3, 1 << 16
_TRIM_THRESHOLD, _SOON = -1, 1 << 17
_USUAL, _NEVER = 1 << 25, 1 << 30  # what the C library comes to by itself, and more than lies free at its heap's end
_RELAXED = 2  # times
_LARGEST, _MOST = 1 << 30, 4096
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
            self.libc.mallopt(_MMAP_THRESHOLD, _OWN_PAGES)

    def relax(self):
        """Keep what is freed; until memory runs out once more, and not for ever again."""
        if self.known and self.strict and self.relaxed < _RELAXED:
            self.relaxed, self.strict = self.relaxed + 1, False
            self.libc.mallopt(_MMAP_THRESHOLD, _USUAL)
            self.libc.mallopt(_TRIM_THRESHOLD, _NEVER)

    def give_back(self):
        """Give back what is free, and take the pieces that are large enough for a tensor."""
        if self.known and not self.strict:
            self.strict = True
            self.libc.mallopt(_MMAP_THRESHOLD, _OWN_PAGES)
            self.libc.mallopt(_TRIM_THRESHOLD, _SOON)
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
