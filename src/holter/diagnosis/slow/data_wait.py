"""How long the steps waited for their data, who makes the data, and in which line the time goes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from holter.diagnosis.core.evidence import frameworks_on
from holter.diagnosis.core.examined import once
from holter.diagnosis.core.frames import Frame
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.slow.cpu_share import cpu_of, cpu_of_threads, cpu_share_of, rise_of
from holter.diagnosis.slow.slow_looks import DataLook, Looks, commonest_line, looks_of
from holter.diagnosis.slow.step_calls import gpu_use
from holter.diagnosis.slow.step_times import Anatomy, anatomy_of
from holter.finding import Evidence, Grade
from holter.record.events.agent import Made
from holter.record.events.looks import DataThread, Feed, FitInput
from holter.record.events.timeline import Network, Processes
from holter.units import duration, share, size

TRAINED = 8.0  # seconds of training before anything is said
SHARE = 0.4
_SURE = 0.6
_PER_STEP = 0.015  # seconds of waiting in each step
_PER_SAMPLE = 0.0004  # several times what putting a sample into a batch takes: then short waits count, too
_SHORTEST = 0.003
_PER_BATCH = 0.005  # where whole batches are made, not samples
_COLLATE = 60e-6  # seconds per sample: what putting a batch together takes, whatever the data are
_LOST = 4.0  # seconds
_STARVED = 0.6  # of the looks at a pipeline found it empty
_GPU_AT_WORK = 0.7
_LATE, _STILL = 3.0, 0.3  # seconds of the later part, and the share of it that still waits
_LOOKS = 8
_SKIMMED = 0.010  # seconds: of shorter steps only some are timed by phase
_ALWAYS = 0.6  # of the time a pipeline works: it may be what sets the pace
_NEVER_RESTS = 0.95  # of the time it works, with room for more in its prefetch: it is
_MAIN_SHARE = 0.5
_READ = 2e7  # bytes per second from disk that are worth a word
_READS = re.compile(r"\bopen\(|imread\(|\bread\w*\(|\bload\w*\(|fromfile\(|memmap\(|\bh5py\b|pread\(")


@dataclass(frozen=True)
class DataWait:
    """The wait for data: seconds in all, and what makes the data."""

    anatomy: Anatomy
    seconds: float
    source: str  # `loader`, `tf.data`, `generator`, `pydataset`, `array` or `own`
    workers: int
    kind: str  # `busy`, `network`, `disk`, `waits`, `starts` or nothing: what was seen of who makes the data
    line: Frame | None
    loader: Made | None
    seen: tuple[DataLook, ...]
    evidence: tuple[Evidence, ...]
    measured: bool

    @property
    def of_step(self) -> float:
        return min(1.0, self.seconds / self.anatomy.stepping) if self.anatomy.stepping else 0.0

    @property
    def per_step(self) -> float:
        return self.seconds / self.anatomy.steps if self.anatomy.steps else 0.0

    @property
    def grade(self) -> Grade:
        """Be sure only where the wait was timed itself, is most of the step, and the line was seen."""
        return "established" if self.measured and self.of_step >= _SURE and self.line is not None else "supported"

    @property
    def words(self) -> str:
        """Say how much of a step is a wait."""
        return f"{share(self.of_step)} of each step, {duration(self.per_step)}, waits for data"


@once
def data_wait_of(record: RecordLike) -> DataWait | None:
    """Say how long the run waited for its data; None where that is not worth a word."""
    anatomy = anatomy_of(record)
    if anatomy is None or anatomy.training < TRAINED or not anatomy.steps:
        return None
    looks = looks_of(record, anatomy.pid)
    given = _input(record, anatomy.pid)
    loader = _loader(record, anatomy.pid)
    source, measured = given.kind or _usual_source(record, loader), True
    seconds = anatomy.of("data")
    fed = _fed_seconds(record, anatomy, given)
    if fed is not None and fed > seconds:
        seconds, measured = fed, False
    elif seconds < SHARE * anatomy.training and looks.trainer >= _LOOKS:
        # Of short steps only some are timed by phase, so that a wait at the start of an epoch is missed; looks see it.
        unknown = anatomy.of("data") + anatomy.of("other")
        by_looks = looks.in_loader / looks.trainer * anatomy.stepping
        own = len(looks.own) / looks.trainer * anatomy.stepping
        if own > by_looks:
            source, seconds, measured = "own", min(own, unknown), False
        elif by_looks >= _MAIN_SHARE * anatomy.stepping and (anatomy.shortest or 1.0) < _SKIMMED:
            seconds, measured = by_looks, False
    if (measured and _is_over(record)) or (gpu_use(record) or 0.0) >= _GPU_AT_WORK:
        return None
    found = _wait(record, anatomy, looks, given, loader, source, seconds, measured)
    queue = cpu_share_of(record)
    return found if _worth(found, queue.got if queue is not None else 1.0) else None


def _is_over(record: RecordLike) -> bool:
    """Tell whether the wait was the first epoch's, as of a cache that it filled, and is gone since."""
    late = anatomy_of(record, late=True)
    return late is not None and late.training >= _LATE and late.of("data") < _STILL * late.training


def _worth(found: DataWait, got: float) -> bool:
    """Tell an illness from the price of putting small batches together, which every quick loop pays."""
    anatomy = found.anatomy
    if found.seconds < max(_LOST, SHARE * anatomy.training):
        return False
    # What computes takes longer where other programs take the CPU: that is not the loader's own doing.
    per_step = found.per_step * (got if found.kind in ("", "busy") else 1.0)
    if not (found.source == "loader" and found.loader):
        return per_step >= _PER_BATCH  # nobody puts samples together here
    per_sample = per_step / max(anatomy.batch or 1, 1)
    if anatomy.batch and per_sample < _COLLATE and found.kind in ("", "busy"):
        return False
    return per_step >= _PER_STEP or (per_sample >= _PER_SAMPLE and per_step >= _SHORTEST)


def _wait(
    record: RecordLike,
    anatomy: Anatomy,
    looks: Looks,
    given: FitInput,
    loader: Made | None,
    source: str,
    seconds: float,
    measured: bool,
) -> DataWait:
    seen = looks.own if source == "own" else looks.data
    line, at_line, of = commonest_line(seen)
    workers = given.workers if source == "pydataset" else loader.num_workers if loader is not None else 0
    kind = looks.most(seen)
    # Where the wait was seen otherwise than by the steps' own phases, those would contradict it.
    evidence = [*anatomy.evidence] if measured else [Evidence("a step", duration(anatomy.per_step))]
    if line is not None:
        where = f"{at_line} of {of} looks at who makes the data stood in {line.function}() at {line.short}"
        evidence.append(Evidence("stacks", where))
    evidence.extend(_settings(source, given, loader))
    read = rise_of(record, Processes, lambda reading: reading.read_bytes, anatomy)
    if read and read / max(anatomy.end - anatomy.begin, 1.0) >= _READ:
        evidence.append(Evidence("read from disk", f"{size(read)} while it trained"))
        reads = line is not None and _READS.search(line.code) is not None
        kind = "disk" if kind == "waits" or (reads and kind == "busy") else kind
    busy = gpu_use(record)
    if busy is not None:
        evidence.append(Evidence("GPU", f"{share(busy)} busy"))
    received = rise_of(record, Network, lambda reading: reading.rx_bytes, anatomy)
    if kind == "network" and received:
        evidence.append(Evidence("network", f"{size(received)} received while it trained"))
    return DataWait(anatomy, seconds, source, workers or 0, kind, line, loader, seen, tuple(evidence), measured)


def _settings(source: str, given: FitInput, loader: Made | None) -> list[Evidence]:
    if source == "loader" and loader is not None:
        settings = {
            "num_workers": loader.num_workers,
            "batch_size": loader.batch_size,
            "prefetch_factor": loader.prefetch_factor,
            "persistent_workers": loader.persistent_workers,
        }
        known = [f"{name}={value}" for name, value in settings.items() if value is not None]
        return [Evidence("loader", ", ".join(known))] if known else []
    if source == "pydataset":
        kind = "processes" if given.use_multiprocessing else "threads"
        workers = f"{given.workers} {kind}" if (given.workers or 1) > 1 else "one thread"
        return [Evidence("input", f"PyDataset {given.name} with {workers}")]
    if source == "tf.data" and given.kind:
        ahead = "ends in prefetch" if given.prefetch else "without prefetch at its end"
        return [Evidence("input", f"a tf.data pipeline {ahead}")]
    return [Evidence("input", f"a Python {source}")] if source == "generator" else []


def _input(record: RecordLike, pid: int) -> FitInput:
    """Give what the last `fit` was fed with."""
    inputs = [event for event in record.of(FitInput) if event.pid == pid]
    return inputs[-1] if inputs else FitInput()


def _usual_source(record: RecordLike, loader: Made | None) -> str:
    """Say what a loop of the user's own draws from: PyTorch's loaders, or a dataset of TensorFlow's."""
    frameworks = frameworks_on(record)
    return "tf.data" if not loader and "tensorflow" in frameworks and "torch" not in frameworks else "loader"


def _loader(record: RecordLike, pid: int) -> Made | None:
    """Give the loader that the training draws from: by its name, else one that shuffles, else the first."""
    made: dict[tuple[str, int | None], Made] = {}
    for event in record.of(Made):
        if event.what == "loader" and event.pid == pid:
            made.setdefault((event.file, event.line), event)
    known = list(made.values())
    named = [event for event in known if "train" in event.code.partition("=")[0].lower()]
    shuffled = [event for event in known if event.shuffle]
    return next(iter(named or shuffled or known), None)


def _fed_seconds(record: RecordLike, anatomy: Anatomy, given: FitInput) -> float | None:
    """Work out the wait of a fit whose data are drawn inside the traced step; None where nothing is known of it."""
    feeds = [event for event in record.of(Feed) if event.pid == anatomy.pid]
    if not feeds:
        return None
    feed = feeds[-1]
    looks, elements = feed.looks or 0.0, feed.elements or 0.0
    step, busy = feed.step or 0.0, feed.busy or 0.0
    if looks < 3 or not elements:
        # Keras's own workers: what TensorFlow calls for waits until one of them has a batch ready.
        own_workers = given.kind == "pydataset" and (given.workers or 1) > 1
        return min(busy / step * anatomy.steps, anatomy.stepping) if own_workers and step else None
    work = (feed.work or 0.0) / elements * anatomy.steps
    ahead = feed.ahead
    if not ahead:
        return min(work, anatomy.stepping)
    # Only a prefetch counts what is ready; other stages count what they have begun, too.
    empty = ahead == "Prefetch" and (feed.empty or 0.0) >= _STARVED * looks
    if not empty and work < (_NEVER_RESTS if ahead == "Prefetch" else _ALWAYS) * anatomy.stepping:
        return 0.0
    return _beside_computing(record, anatomy, feed, work)


def _beside_computing(record: RecordLike, anatomy: Anatomy, feed: Feed, work: float) -> float | None:
    """Work out the wait of a pipeline that works ahead and is still the slower one: the step less its computing."""
    queue = cpu_share_of(record)
    got = max(queue.got, 0.1) if queue is not None else 1.0
    tids = {tid for event in record.of(DataThread) if (tid := event.tid)}
    making = cpu_of_threads(record, tids, anatomy) if tids else None
    used, step = cpu_of(record, anatomy.pid, anatomy), feed.step or 0.0
    if used is None or not step:
        return None
    # Threads of a pipeline come and go with its epochs: what its own calls used is known, whoever ran them.
    called = (feed.cpu or 0.0) / step * anatomy.steps
    making = max(making or 0.0, called) or work * got
    return max(0.0, anatomy.stepping - max(0.0, used - making) / got)
