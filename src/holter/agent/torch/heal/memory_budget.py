"""How much memory a PyTorch step may still take: on a CUDA device, or before the soft limit of the host's memory."""

import os
import resource
import sys
from typing import Any

from ...heal.soft_limit import NoWall
from .c_heap import Heap

UNLIMITED = 1 << 62
DEVICES = ("cpu", "cuda")  # of others it is not known when an allocation will fail


class CudaBudget:
    """A CUDA device: what the allocator has handed out, against what it may take in all."""

    wall = NoWall()  # what fails on the device says so itself
    chunk_share = 1.0  # of the samples that fit, for a chunk

    def __init__(self, torch, device):
        self.torch = torch
        self.index = device.index if device.index is not None else torch.cuda.current_device()
        self.limit = self._limit()

    def _limit(self):
        cuda = self.torch.cuda
        free, total = cuda.mem_get_info(self.index)
        asked = getattr(cuda, "get_per_process_memory_fraction", None)
        share = asked(self.index) if asked is not None else 1.0  # older releases keep it to themselves
        return min(free + cuda.memory_reserved(self.index), int(total * share))

    def used(self):
        # What `torch.cuda.memory_allocated` asks for, without the hundred other figures that it names on the way.
        stats = self.torch._C._cuda_memoryStats(self.index) if self.torch.cuda.is_initialized() else {}
        return stats.get("allocated_bytes", {}).get("all", {}).get("current", 0)

    def free(self):
        return self.limit - self.used()

    def ran_out(self):
        """Give back what only the cache holds, and ask anew where the end is: others use the device, too."""
        self.torch.cuda.empty_cache()
        self.limit = self._limit()

    def relax(self):
        """The allocator has kept what it holds all along."""


class HostBudget:
    """The host's memory, as far as the soft wall lets it grow; without a wall there is no end that could be known."""

    chunk_share = 0.4  # a CPU is as fast with fewer, and then memory can be kept instead of made anew for each tensor

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

    @property
    def limit(self):
        own = resource.getrlimit(resource.RLIMIT_DATA)[0] if self.file is not None else resource.RLIM_INFINITY
        wall = self.wall.at() or UNLIMITED
        return wall if own == resource.RLIM_INFINITY else min(own, wall)

    def free(self):
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

    def relax(self):
        """What did not fit before fits with memory to spare."""
        if self.heap is not None:
            self.heap.relax()

    def _untouched(self):
        _, resident, shared, _, _, data, *_ = self._pages()
        return data - (resident - shared)


def memory_budget_of(torch, device, wall=None):
    """The budget of the device that a model lies on."""
    return CudaBudget(torch, device) if device.type == "cuda" else HostBudget(wall)
