"""What kernels take for themselves while they run: no operation's result shows it.

Of CUDA's only what grows with the batch is here, by the kernels' own sources; what does not is measured, or taken as
`FIXED` where there is no device to measure on.
"""

from __future__ import annotations

from typing import Any

# cuBLAS keeps a workspace for each thread that calls it: forward's and backward's.
BLAS, BLAS_HOPPER = 2 * (4 << 20) + 8 * (16 << 10), 32 << 20
FIXED = 1 << 20  # and what is small
CONTEXT = 500 << 20


def on_cuda(func: Any, args: Any, _out: Any) -> int:
    """Bytes that the kernel of an operation on a GPU takes and gives back."""
    name = _name(func)
    if name == "embedding_dense_backward":
        return 4 * 8 * int(args[1].numel())  # indices, sorted
    if name in ("index_put_", "_index_put_impl_", "_unsafe_index_put"):
        if len(args) > 3 and args[3]:
            return 5 * 8 * max((int(i.numel()) for i in args[1] if i is not None), default=0)
        return 0
    if "flash_attention_backward" in name:
        batch, heads, long, wide = (int(n) for n in args[1].shape)  # query
        rounded, padded = -(-long // 128) * 128, -(-wide // 32) * 32
        return 4 * batch * heads * rounded * (padded + 1)  # the gradient of the query is summed in float32
    if "efficient_attention_backward" in name:
        batch, heads, long, wide = (int(n) for n in args[1].shape)
        return 4 * batch * heads * long + (2 * 4 * batch * heads * long * wide if args[1].element_size() == 2 else 0)
    return 0


def on_cpu(func: Any, args: Any, out: Any) -> int:
    """Bytes that the kernel of an operation on the CPU takes and gives back."""
    name = _name(func)
    if name in ("bernoulli_", "bernoulli", "native_dropout"):
        return 4 * int(args[0].numel())  # random numbers are drawn as integers first
    if name == "convolution":
        return _bytes(args[0]) + _bytes(out)  # oneDNN computes in a layout of its own
    if name == "convolution_backward":
        return _bytes(args[0]) + _bytes(args[1])
    if name == "index_put_" and len(args) > 3 and args[3]:
        return 16 * max((int(i.numel()) for i in args[1] if i is not None), default=0)
    return 0


def _name(func: Any) -> str:
    return func.__name__.split(".")[0] if hasattr(func, "__name__") else str(func)


def _bytes(tensor: Any) -> int:
    return int(tensor.numel()) * int(tensor.element_size())
