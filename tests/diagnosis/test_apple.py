"""Apple silicon: one memory for CPU and GPU, read by footprint, pressure, compressor and swap.

Constructed from documented interfaces, since no Mac was at hand: proc_pid_rusage's footprint, the sysctls
kern.memorystatus_vm_pressure_level (1 normal, 2 warning, 4 critical) and vm.swapusage, host_statistics64, and
PyTorch's current_allocated_memory and driver_allocated_memory.
"""

from __future__ import annotations

import pytest
from build import GB, TRAINER, causes, ordinary_run, without_memory
from test_hang import MODULE, USER, frame, stalled, stopped

from holter.diagnosis.core.doctor import verdict

RAM = 24 * GB


def a_mac(seconds=120, steps=True, **meta):
    """An ordinary run on a Mac with 24 GB, without any reading of memory yet."""
    return without_memory(ordinary_run(seconds=seconds, steps=steps, platform="Darwin", memory_total=RAM, **meta), 0)


def read(record, begin, end, *, level=1, swap=2 * GB, swap_by=0.0, back=0.0, footprint=14 * GB, by=0.0, driver=0.0):
    """Add readings once a second; `swap_by` and `by` are what is added each second, `back` bytes swapped in."""
    pages = 0.0
    for n, second in enumerate(range(begin, end)):
        pages += back / 16384
        held = footprint + n * by
        record.sample(
            second,
            apple={
                "footprint": held, "pressure_level": level, "compressed": 4 * GB, "swap_used": swap + n * swap_by,
                "swap_total": 20 * GB, "list": [{"pid": TRAINER, "footprint": held}],
            },
            memory={"total": RAM, "available": 2 * GB, "swap_total": 20 * GB},
            vm={"pswpin": 1e6 + pages, "pswpout": 2e6},
            processes={"rss": 8 * GB, "cpu_s": 10 + 0.3 * n, "majflt": 100 + n, "list": [{"pid": TRAINER}]},
        )  # fmt: skip
        if driver:
            line = {"k": "device", "m": 100.0 + second, "t": 0.0, "pid": TRAINER, "allocated": 6 * GB, "driver": driver}
            record.timeline.append(line)
    record.timeline.sort(key=lambda line: line["m"])
    return record


def slow_after(record, second, end):
    """Steps of 0.1 s up to a second, and of 2 s from there on."""
    for at in range(5, second):
        record.steps(at, (at - 4) * 10, n=10, sum=1.0)
    for n, at in enumerate(range(second + 2, end, 2)):
        record.steps(at, (second - 4) * 10 + n, n=1, sum=2.0)
    return record


def test_sinking_into_swap():
    """Pressure, swap that rises and is read back, and steps twenty times as long: thrash, for sure."""
    record = a_mac(steps=False)
    read(record, 0, 40)
    read(record, 40, 120, level=4, swap_by=20e6, back=80e6, driver=27 * GB)
    slow_after(record, 40, 120)

    finding = verdict(record.exit(120, 0)).findings[0]

    assert (finding.cause, finding.grade) == ("thrash.swap", "established")
    assert "instead of 100 ms" in finding.claim
    assert any(proof.what == "memory pressure" and "critical" in proof.value for proof in finding.evidence)


def test_why_no_error_came():
    """PyTorch's default watermark lies above the RAM, so it never raises: that is said, with the way to change it."""
    record = a_mac(steps=False)
    read(record, 0, 120, level=2, swap_by=20e6, back=80e6, driver=27 * GB)
    slow_after(record, 10, 120)

    finding = verdict(record.exit(120, None, "SIGKILL")).findings[0]

    why_no_error = next(proof.value for proof in finding.evidence if proof.what == "no error came")
    assert "27.0 GB" in why_no_error
    assert "above the machine's 24.0 GB" in why_no_error
    raising = next(cure.how for cure in finding.cures if "raise" in cure.title)
    assert raising == "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.7 holter run -- python train.py"


@pytest.mark.parametrize(
    ("ratio", "words"), [("0.0", "switches its limit off"), ("0.7", None), ("odd", "its default watermark")]
)
def test_a_watermark_that_was_set(ratio, words):
    """A ratio of 0 switches the limit off; one that lies within the RAM would have raised."""
    record = a_mac(steps=False, env={"PYTORCH_MPS_HIGH_WATERMARK_RATIO": ratio})
    read(record, 0, 120, level=4, swap_by=20e6, back=80e6, driver=17 * GB)
    slow_after(record, 10, 120)

    finding = verdict(record.exit(120, 0)).findings[0]

    why_no_error = next((proof.value for proof in finding.evidence if proof.what == "no error came"), None)
    assert (why_no_error is None) == (words is None)
    assert words is None or words in why_no_error


@pytest.mark.parametrize(
    "figures",
    [
        {"level": 1, "swap": 9 * GB},
        {"level": 1, "swap": 3 * GB, "swap_by": 20e6, "back": 4e6},
        {"level": 2, "swap": 9 * GB},
        {"level": 2, "footprint": 17 * GB},
    ],
)
def test_swap_that_lies_still_is_none(figures):
    """macOS swaps early: swap in use, or a warning without traffic, is how a well-filled Mac lives."""
    assert verdict(read(a_mac(), 0, 120, **figures).exit(120, 0)).healthy


def test_footprint_that_grows_is_a_leak_before_swap():
    """Growth of the footprint all along the steps is the root; the swap it led to comes after."""
    record = read(a_mac(seconds=240), 0, 120, footprint=6 * GB, by=0.12 * GB)
    read(record, 120, 240, level=4, swap_by=40e6, back=80e6, footprint=20.4 * GB, by=0.12 * GB)
    record.live = True

    found = causes(verdict(record))

    assert found[0].startswith("leak")
    assert "thrash.swap" in found


@pytest.mark.parametrize("call", ["-[_MTLCommandBuffer waitUntilCompleted]", "at::mps::MPSStream::synchronize"])
def test_a_wait_in_a_metal_command_buffer(call):
    """Native frames of Metal are a wait for the device; the cure is Metal's, not CUDA's."""
    record = stalled([frame("libtorch_cpu.dylib", call), USER, MODULE], code="loss.item()")
    record.meta["platform"] = "Darwin"
    record.sample(59, apple={"pressure_level": 4})

    finding = verdict(stopped(record)).findings[0]

    assert finding.cause == "hang.device"
    assert "mps.synchronize" in finding.cures[0].title
    assert any(proof.what == "memory pressure" for proof in finding.evidence)


def test_a_result_that_does_not_come_back_from_metal():
    """Without native frames, `.item()` on a machine whose device holds the run's memory."""
    record = stalled(code="loss.item()")
    record.meta["platform"] = "Darwin"
    record.timeline.append({"k": "device", "m": 158.0, "t": 0.0, "pid": TRAINER, "allocated": 5 * GB, "driver": 6 * GB})

    assert causes(verdict(stopped(record))) == ["hang.device"]


def test_a_mac_that_slept():
    """A closed lid is no hang."""
    record = read(a_mac(), 0, 120).event("gap", 60, monotonic=1.0, wall=7201.0, slept=7200.0)

    assert causes(verdict(record.exit(120, 0))) == ["external.sleep"]
