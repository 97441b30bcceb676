"""Small blocks that are kept and cost many times what they hold, since the C heap can't give back what lies around."""

from __future__ import annotations

from holter.diagnosis.leak.retained import Holder

# glibc maps a block of 128 KB or more by itself and gives it back; a tiny one fits into any gap.
_SMALL_BLOCK_BYTES = (2e3, 128e3)
_MIN_STEPS = 100
PINNED = "they lie among blocks that each step frees, and the C heap can't give those back"
_IN_THE_HEAP = ("tensor", "array", "text")


def pins_the_heap(holder: Holder) -> bool:
    """Tell whether one small block was kept at each step: each lies among larger ones that the step frees, and the C
    heap keeps all that lies below it."""
    steps, more = holder.step - holder.step_before, holder.length - (holder.length_before or 0)
    seen_to_grow = holder.kind in _IN_THE_HEAP and holder.length_before is not None and not holder.single
    least, most = _SMALL_BLOCK_BYTES
    return seen_to_grow and steps >= _MIN_STEPS and 0.9 * steps <= more and least <= holder.each < most
