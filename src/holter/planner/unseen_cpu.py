"""What kernels on the CPU take for themselves while they run: no operation's result shows it."""

from __future__ import annotations

from typing import Any


def unseen(func: Any, args: Any, out: Any) -> int:
    """Bytes that the kernel of an operation takes and gives back."""
    name = func.__name__.split(".")[0] if hasattr(func, "__name__") else str(func)
    if name in ("bernoulli_", "bernoulli", "native_dropout"):
        return 4 * int(args[0].numel())  # random numbers are drawn as integers first
    if name == "convolution":
        return _bytes(args[0]) + _bytes(out)  # oneDNN computes in a layout of its own
    if name == "convolution_backward":
        return _bytes(args[0]) + _bytes(args[1])
    if name == "index_put_" and len(args) > 3 and args[3]:
        return 16 * max((int(i.numel()) for i in args[1] if i is not None), default=0)
    return 0


def _bytes(tensor: Any) -> int:
    return int(tensor.numel()) * int(tensor.element_size())
