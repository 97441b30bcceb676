"""What a data loader's workers take without any leak: a dataset that each was sent a copy of, batches that wait."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from holter.diagnosis.core.evidence import loader_with_workers
from holter.diagnosis.core.examined import once
from holter.diagnosis.core.frames import Frame
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.memory.memory import MemoryCurve
from holter.diagnosis.memory.memory_looks import memory_looks
from holter.diagnosis.memory.worker_pages import taken_by_workers
from holter.record.events.agent import Batch
from holter.record.events.timeline import Cgroup, SharedMemory

# Where the standard library writes a process's arguments for a child that is not forked, and where that child reads.
_SENDING = re.compile(r"/multiprocessing/(?:popen_spawn_\w+|popen_forkserver|spawn|forkserver)\.py$")
_CLIMB = 30.0  # seconds before the end
_MOST_OF_LOOKS = 0.5
_LATER = 2
PREFETCH_BY_DEFAULT = 2
_WAITING = 0.2  # of what the run held: less in shared memory is how every loader works
_MOST_OF_RISE = 0.5
_FAR_MORE = 4.0  # what a batch is made of may take some times as much


@dataclass(frozen=True)
class Waiting:
    """Batches on their way: what lies in shared memory, and what the workers hold of those they are making."""

    shared: float
    workers: float


@once
def sent_to_workers(record: RecordLike, until: float | None) -> bool:
    """Tell whether memory ran out while workers that are not forked were sent the dataset, by the looks taken then."""
    looks = [look for look in memory_looks(record) if look.frames and (until is None or look.m <= until)]
    looks = [look for look in looks if look.m >= looks[-1].m - _CLIMB]
    sending = [_sends(look.frames) for look in looks]
    if not any(sending):
        return False
    since = sending[sending.index(True) :]
    return sum(since) >= max(2, _MOST_OF_LOOKS * len(since))


def _sends(frames: tuple[Frame, ...]) -> bool:
    """Of the innermost frames, does the sending come before the first line of the user's."""
    for frame in frames:
        if _SENDING.search(frame.file.replace("\\", "/")):
            return True
        if frame.user:
            return False
    return False


@once
def waiting_batches(record: RecordLike, curve: MemoryCurve, until: float | None, steps: int) -> Waiting | None:
    """Give what batches that wait for the trainer take, where that is most of what the run grew by with its workers.

    As many as may wait are there after about as many steps: what grows later is something else.
    """
    loader = loader_with_workers(record)
    if not loader.num_workers or steps > _LATER * loader.num_workers * (loader.prefetch_factor or PREFETCH_BY_DEFAULT):
        return None
    shared = shared_memory_growth(record, until)
    _, workers = taken_by_workers(record, until)
    rise = curve.peak - (curve.by(loader.m) or curve.points[0][1])
    if shared < _WAITING * curve.peak or shared + workers < _MOST_OF_RISE * rise:
        return None
    return Waiting(shared, workers)


@once
def filled_by_workers(record: RecordLike, curve: MemoryCurve, until: float | None) -> bool:
    """Tell whether workers took most of what the run grew by with them, and far more than their batches are."""
    loader = loader_with_workers(record)
    batches = [sum(_bytes_of(*tensor) for tensor in batch.shapes) for batch in record.of(Batch)]
    if not loader.num_workers or not batches:
        return False
    _, taken = taken_by_workers(record, until)
    rise = curve.peak - (curve.by(loader.m) or curve.points[0][1])
    ahead = loader.num_workers * (loader.prefetch_factor or PREFETCH_BY_DEFAULT)
    return taken > _MOST_OF_RISE * rise and taken > _FAR_MORE * ahead * max(batches)


def _bytes_of(shape: tuple[int, ...], dtype: str) -> float:
    bits = re.search(r"\d+", dtype)
    return math.prod(shape) * (int(bits[0]) / 8 if bits else 1.0)


@once
def shared_memory_growth(record: RecordLike, until: float | None) -> float:
    """Give the most of shared memory that the run's container held, else by how much /dev/shm filled up."""
    counted = [r.shmem for m, r in record.readings(Cgroup) if r.shmem is not None and (until is None or m <= until)]
    if counted:
        return max(counted) - counted[0]
    free = [r.free for m, r in record.readings(SharedMemory) if r.free is not None and (until is None or m <= until)]
    return max(0.0, free[0] - min(free)) if free else 0.0
