"""Device memory that is free in pieces, against memory that is simply not there.

The messages are written in the formats of PyTorch 2.1 and later, of PyTorch 1.x, and of TensorFlow's BFC allocator.
"""

from __future__ import annotations

import pytest
from build import causes, exception, ordinary_run

from holter.diagnosis.core.doctor import verdict

TORCH_2 = (
    "CUDA out of memory. Tried to allocate {asked}. GPU 0 has a total capacity of 23.69 GiB of which {free} is free. "
    "Including non-PyTorch memory, this process has 22.58 GiB memory in use. Of the allocated memory {used} is "
    "allocated by PyTorch, and {reserve} is reserved by PyTorch but unallocated. If reserved but unallocated memory is "
    "large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)
TORCH_1 = (
    "CUDA out of memory. Tried to allocate {asked} (GPU 0; 7.79 GiB total capacity; {used} already allocated; {free} "
    "free; {reserved} reserved in total by PyTorch) If reserved memory is >> allocated memory try setting "
    "max_split_size_mb to avoid fragmentation."
)
BFC = """2026-01-01 12:00:00.000000: W tensorflow/tsl/framework/bfc_allocator.cc:497] Allocator (GPU_0_bfc) ran out of \
memory trying to allocate {asked} (rounded to 1610612736)requested by op gradient_tape/dense/MatMul
If the cause is memory fragmentation maybe the environment variable 'TF_GPU_ALLOCATOR=cuda_malloc_async' will improve \
the situation.
2026-01-01 12:00:00.100000: I tensorflow/tsl/framework/bfc_allocator.cc:1112] Stats:
Limit:                      {limit}
InUse:                      {used}
MaxInUse:                   7000000000
NumAllocs:                       12345
MaxAllocSize:               1610612736
Reserved:                            0
LargestFreeBlock:                    0
"""


def refused(message, kind="torch.OutOfMemoryError", **device):
    """A run that ended with a device's out-of-memory error, after its allocator's figures were read."""
    record = ordinary_run()
    figures = {"pid": 10, "device": 0, "allocated": 14e9, "reserved": 22e9, "retries": 12} | device
    record.timeline.append({"k": "device", "m": 158.0, "t": 1.7e9 + 58, **figures})
    return exception(record, 60, kind, message).exit(60.5, 1)


def test_reserve_larger_than_what_was_asked_for():
    """PyTorch's own words: more lay in reserve than was asked for."""
    record = refused(TORCH_2.format(asked="2.00 GiB", free="1.10 GiB", used="14.20 GiB", reserve="7.80 GiB"))

    finding = verdict(record).findings[0]

    assert (finding.cause, finding.grade) == ("fragmentation", "established")
    assert finding.culprit.line == 7
    assert "expandable_segments" in finding.cures[0].how
    assert not [cause for cause in causes(verdict(record)) if cause.startswith("oversize")]


def test_the_older_message():
    """PyTorch 1.x gave the reserve only as a part of the whole."""
    message = TORCH_1.format(asked="512.00 MiB", used="5.20 GiB", free="17.25 MiB", reserved="7.00 GiB")

    assert causes(verdict(refused(message, "RuntimeError")))[0] == "fragmentation"


def test_reserve_and_free_memory_together():
    """What is free beside the pool counts too, but proves less."""
    record = refused(TORCH_2.format(asked="6.00 GiB", free="3.00 GiB", used="14.20 GiB", reserve="4.00 GiB"))

    assert next((f.cause, f.grade) for f in verdict(record).findings) == ("fragmentation", "supported")


def test_tensorflow_says_it_in_its_log():
    """The pool's limit against what is in use."""
    record = refused(
        "OOM when allocating tensor with shape[8192,8192] and type float on GPU:0", "ResourceExhaustedError"
    )
    record.output = BFC.format(asked="1.50GiB", limit=7445151744, used=5210112000)

    finding = verdict(record).findings[0]

    assert finding.cause == "fragmentation"
    assert "cuda_malloc_async" in finding.cures[0].how


@pytest.mark.parametrize(
    "message",
    [
        TORCH_2.format(asked="6.00 GiB", free="1.10 GiB", used="21.90 GiB", reserve="113.00 MiB"),
        TORCH_2.format(asked="12.00 GiB", free="1.10 GiB", used="14.20 GiB", reserve="7.80 GiB"),
        TORCH_1.format(asked="2.00 GiB", used="6.90 GiB", free="17.25 MiB", reserved="7.00 GiB"),
        TORCH_2.format(asked="9.00 GiB", free="100.00 GiB", used="14.20 GiB", reserve="7.80 GiB").replace(
            "Of the allocated", "22.00 GiB allowed; Of the allocated"
        ),
    ],
)
def test_a_plain_want_of_memory_is_none(message):
    """Little in reserve, or more asked for than there is in pieces: the step does not fit."""
    found = causes(verdict(refused(message, allocated=21.9e9, retries=1)))

    assert "fragmentation" not in found
    assert found[0].startswith(("oversize", "leak"))


def test_tensorflow_with_a_full_pool_is_none():
    """TensorFlow always mentions fragmentation; a pool that is full is not fragmented."""
    record = refused(
        "OOM when allocating tensor with shape[8192,8192] and type float on GPU:0", "ResourceExhaustedError"
    )
    record.output = BFC.format(asked="1.50GiB", limit=7445151744, used=7010112000)

    assert "fragmentation" not in causes(verdict(record))
