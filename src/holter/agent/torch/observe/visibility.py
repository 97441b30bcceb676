"""Whether anybody would see what we do to a tensor, and how one number is read so that nobody does.

Under a dispatch mode, a function mode, a transform or a trace even to ask a tensor for its shape is an operation of the
program. Then nothing is asked. A number in the host's memory is read from there: `item()` would be an operation.
"""

import ctypes
import struct


class Unseen:
    """Asked at every step, so it must cost next to nothing."""

    def __init__(self, torch):
        core = torch._C
        self.dispatch_modes = core._len_torch_dispatch_stack
        self.function_modes = core._len_torch_function_stack
        self._mode_at = core._get_function_stack_at
        self._tracing = core._get_tracing_state
        self._transform = getattr(core._functorch, "peek_interpreter_stack", _nothing)
        self._profiled = torch.autograd._profiler_enabled
        self.by_function_modes = core.DisableTorchFunction  # a context: what is asked within is seen by no mode
        self._plain = (torch.Tensor, torch.nn.Parameter)
        self._types = {torch.float32: ctypes.c_float, torch.float64: ctypes.c_double}
        self._halves = {torch.float16: _half, torch.bfloat16: _bfloat16}

    def alone(self):
        """True where nobody watches the program's tensors; a default device is a mode that only makes some."""
        if self.dispatch_modes() or self._transform() is not None or self._tracing() is not None:
            return False
        modes = self.function_modes()
        return not modes or all(type(self._mode_at(n)).__name__ == "DeviceContext" for n in range(modes))

    def may_compute(self):
        """True where an operation of ours would be seen by nobody, not by a profiler either."""
        return self.alone() and not self._profiled()

    def is_plain(self, thing):
        """True for a tensor of PyTorch's own: what a subclass is asked for is its owner's business."""
        return type(thing) in self._plain  # `__class__` may be a property of the user's

    def address_of(self, tensor):
        """Where the elements of a plain tensor lie in the host's memory; 0 where they do not, or not any more.

        To be asked right before each look: a parameter that was on the host when it was made may lie on a GPU by now,
        and what its owner has freed lies nowhere. To read there would end the process.
        """
        if type(tensor) not in self._plain or not tensor.is_cpu:
            return 0
        try:
            return tensor.data_ptr()
        except RuntimeError:
            return 0  # a layout without memory of its own

    def number(self, tensor):
        """One number of a plain tensor in the host's memory; None where there is none to be had."""
        at = self.address_of(tensor)
        if not at or tensor.numel() != 1:
            return None
        kind = self._types.get(tensor.dtype)
        if kind is not None:
            return kind.from_address(at).value
        half = self._halves.get(tensor.dtype)
        return half(ctypes.string_at(at, 2)) if half is not None else None


# --- What a module consists of, read where it is kept: `parameters()`, `modules()` and their like may be the user's own


def named_modules_of(module):
    """A module and all within it, each once, with their names."""
    seen, ahead = set(), [("", module)]
    while ahead:
        name, one = ahead.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield name, one
        parts = list((one.__dict__.get("_modules") or {}).items())
        ahead.extend((name + "." + key if name else key, part) for key, part in reversed(parts) if part is not None)


def modules_of(module):
    return (one for _, one in named_modules_of(module))


def children_of(module):
    """The modules right within one."""
    return [part for part in (module.__dict__.get("_modules") or {}).values() if part is not None]


def named_weights_of(module, table="_parameters"):
    """Its parameters, each once, with their names."""
    seen = set()
    for name, one in named_modules_of(module):
        for key, tensor in (one.__dict__.get(table) or {}).items():
            if tensor is not None and id(tensor) not in seen:
                seen.add(id(tensor))
                yield (name + "." + key if name else key), tensor


def weights_of(module):
    return (tensor for _, tensor in named_weights_of(module))


def buffers_of(module):
    return (tensor for _, tensor in named_weights_of(module, "_buffers"))


def _half(raw):
    return struct.unpack("e", raw)[0]


def _bfloat16(raw):
    return struct.unpack("f", b"\0\0" + raw)[0]


def _nothing():
    return None
