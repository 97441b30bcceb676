"""Memory of a device in pieces too small to use: the next attempt has an allocator that makes no holes.

PyTorch has it from the start under `--heal`, but for scripts that have chosen their own. TensorFlow's is not known to
be safe on every driver, so it is tried where the other one has failed.
"""

from __future__ import annotations

from holter.remedies.remedy import Remedy

CAUSES = ("fragmentation",)
_ENVIRON = {
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    "PYTORCH_ALLOC_CONF": "expandable_segments:True",
    "TF_GPU_ALLOCATOR": "cuda_malloc_async",
}


def prescribe(tried: int) -> Remedy:  # noqa: ARG001 - how often is the ledger's to judge
    """The setting, and a new process, from the last state."""
    return Remedy(
        "whole-blocks",
        "a new process, whose device allocator leaves no holes",
        "equivalent",
        "the script's own variables start anew",
        dict(_ENVIRON),
    )
