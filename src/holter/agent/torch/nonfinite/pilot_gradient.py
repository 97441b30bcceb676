"""One small gradient that stands for all of them: read after every backward, so reading it must cost next to nothing.

Best a bias or a norm's weight of the first layers: each of its elements belongs to another unit, and what is non-finite
further on reaches some of them. A few elements are read where they lie, which takes less than a microsecond; to have
PyTorch add up the whole takes five.
"""

import ctypes
import struct
import weakref
from typing import Any

_MOST = 4096  # elements of a gradient that may be added up at every step
_FIRST = 64  # parameters among which it is chosen
_READ = 16  # elements that are read where they lie
_FEWEST = 4


class Pilot:
    """A parameter on the CPU, weakly, and how its gradient is read."""

    def __init__(self, torch, may_compute=lambda: True):
        self.torch = torch
        self.may_compute = may_compute  # an operation of ours would be seen by nobody
        self.ref = _nothing
        self.type = None
        self.view = None  # its first elements as plain memory, or None where PyTorch is to add up all of them
        self.unpack: "Any" = None

    def choose(self, optimizer):
        """Take one of these parameters, unless there is one already."""
        if self.ref() is not None:
            return
        self.view = None
        params = [p for group in optimizer.param_groups for p in group["params"]][:_FIRST]
        small = [p for p in params if p.is_cpu and _FEWEST <= p.numel() <= _MOST] or [
            p for p in params if p.is_cpu and 0 < p.numel() <= _MOST
        ]
        if not small:
            return
        flat = [p for p in small if p.dim() == 1]
        chosen = (flat or small)[0]
        code = {self.torch.float32: "f", self.torch.float64: "d"}.get(chosen.dtype) if flat else None
        if code is not None:
            first = struct.Struct("%d%s" % (min(_READ, chosen.numel()), code))
            self.unpack, self.view, self.type = first.unpack_from, ctypes.c_char * first.size, chosen.dtype
        self.ref = weakref.ref(chosen)

    def is_bad(self):
        """Tell whether its gradient is infinite or NaN."""
        chosen = self.ref()
        if chosen is None:
            return False
        gradient = chosen.grad
        if gradient is None:
            return False
        if self.view is not None and gradient.dtype is self.type and gradient.is_contiguous():
            total = sum(self.unpack(self.view.from_address(gradient.data_ptr())))
        elif gradient.layout is self.torch.strided and self.may_compute():
            total = gradient.sum().item()
        else:
            return False
        return total - total != 0.0


def _nothing():
    return None
