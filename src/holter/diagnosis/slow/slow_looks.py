"""The looks at the stacks of a slow run: which of them stand in its data, in whose line, computing or waiting."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from holter.diagnosis.core.examined import once
from holter.diagnosis.core.frames import Frame, frames_of
from holter.diagnosis.core.rule import RecordLike
from holter.record.events.recorder import Stacks

# Between the user's loop and the user's dataset lies the framework's loader; what is within it is the data's work.
_LOADER = re.compile(r"torch/utils/data/(?:dataloader|_utils/(?:fetch|worker))\.py$")
_WORKER_LOOP = frozenset(("_worker_loop", "get_index", "mapstar", "_run_worker"))
_STARTS = frozenset(("_get_iterator", "_shutdown_workers", "_reset", "_launch", "_popen"))
_FED_BY_TENSORFLOW = re.compile(r"tensorflow/python/(?:ops/script_ops|data/)|keras/src/trainers/data_adapters/")
_NETWORK = re.compile(
    r"(?:^|/)(?:socket|ssl|http/client|selectors)\.py$|"
    r"/(?:urllib3?|requests|aiohttp|httpx|httpcore|botocore|boto3|s3fs|fsspec|gcsfs|paramiko|grpc)/"
)
_SOCKET_CALLS = frozenset(("recvfrom", "recvmsg", "recvmmsg", "connect", "sendto", "sendmsg"))
_FILE_CALLS = frozenset(("read", "pread64", "readv", "openat", "newfstatat", "statx", "mmap", "fsync"))
_BETWEEN_THREADS = ("futex", "sched_yield", "futex_waitv")
# How people name what fetches or makes their data, where no loader of a framework does it.
_BY_NAME = re.compile(
    r"batch|load|read|fetch|augment|transform(?!er)|preproc|decode|collate|tokeni|__getitem__|__next__|__iter__|"
    r"dataset|get_data|get_item|next_data",
    re.I,
)
_NOT_BY_NAME = re.compile(
    r"train|fit|step|forward|backward|optimi|eval|valid|test|save|checkpoint|main|log|state", re.I
)


@dataclass(frozen=True)
class DataLook:
    """One look at a process that was making data, or starting who makes them."""

    pid: int | None
    role: str
    line: Frame | None  # the user's, innermost
    kind: str  # `busy`, `network`, `disk`, `waits`, or `starts` for a loader that starts or ends its workers
    at: float


@dataclass(frozen=True)
class Looks:
    """All looks at a slow run: how many there were at the trainer, and those that stood in its data."""

    trainer: int = 0
    in_loader: int = 0  # of those: within the loader, waiting or at work
    data: tuple[DataLook, ...] = ()
    own: tuple[DataLook, ...] = ()  # in functions of the user's that fetch data without a loader

    def most(self, looks: Iterable[DataLook]) -> str:
        """Give the commonest kind of some looks."""
        kinds = Counter(look.kind for look in looks)
        return kinds.most_common(1)[0][0] if kinds else ""


@once
def looks_of(record: RecordLike, pid: int | None) -> Looks:
    """Sort the looks that were taken while the run was slow."""
    trainer = in_loader = 0
    data: list[DataLook] = []
    own: list[DataLook] = []
    for event in record.of(Stacks):
        # Looks without a round were taken for another reason, at moments of their own choice: they are no sample.
        if event.reason != "slow" or event.round is None:
            continue
        threads = [frames for thread in event.threads if (frames := frames_of(thread.frames))]
        if not threads or event.phase in ("validation", "start"):
            continue
        frames = threads[0]
        if event.tid is not None:
            inside = _fed(frames)
        elif event.pid != pid:
            inside = _inside_worker(frames)
        else:
            trainer += 1
            inside = _inside_loader(frames)
            in_loader += inside is not None
            mine = _own(frames) if inside is None and event.phase in ("other", "data", "") else None
            if mine is not None:
                own.append(_data_look(event, mine))
        if inside is not None and any(frame.user or frame.name in _STARTS for frame in inside):
            data.append(_data_look(event, inside))
    return Looks(trainer, in_loader, tuple(data), tuple(own))


def commonest_line(looks: Iterable[DataLook]) -> tuple[Frame | None, int, int]:
    """Give the user's line that most looks stand on, in how many of how many; lines of one function go together."""
    lines = [look.line for look in looks if look.line is not None]
    if not lines:
        return None, 0, 0
    functions = Counter((line.file, line.function) for line in lines)
    best = functions.most_common(1)[0][0]
    within = Counter((line.file, line.line) for line in lines if (line.file, line.function) == best)
    (file, number_), _ = within.most_common(1)[0]
    found = next(line for line in lines if (line.file, line.line) == (file, number_))
    return found, functions[best], len(lines)


def _slashed(frame: Frame) -> str:
    return frame.file.replace("\\", "/")


def _inside_loader(frames: list[Frame]) -> tuple[Frame, ...] | None:
    """Give what lies within the loader's own frames; None where the loader is not on the stack."""
    for at in range(len(frames) - 1, -1, -1):
        if _LOADER.search(_slashed(frames[at])):
            return tuple(frames[: at + 1])
        if _FED_BY_TENSORFLOW.search(_slashed(frames[at])) and any(frame.user for frame in frames[:at]):
            return tuple(frames[: at + 1])
    return None


def _inside_worker(frames: list[Frame]) -> tuple[Frame, ...] | None:
    """Give what a worker itself does; None for one that waits for work. A fork copied the trainer's frames below."""
    for at, frame in enumerate(frames):
        if frame.name in _WORKER_LOOP:
            inside = tuple(frames[:at])
            working = any(frame.user or frame.name in ("fetch", "collate") for frame in inside)
            return inside if working or frame.name == "get_index" else None
    return None


def _fed(frames: list[Frame]) -> tuple[Frame, ...] | None:
    """Give the user's part of a thread that TensorFlow or Keras makes its data in."""
    for at, frame in enumerate(frames):
        if _FED_BY_TENSORFLOW.search(_slashed(frame)):
            return tuple(frames[:at]) if any(f.user for f in frames[:at]) else None
    return None


def _own(frames: list[Frame]) -> tuple[Frame, ...] | None:
    """Give a stack down to the function of the user's that fetches data by its name; None without one."""
    for at, frame in enumerate(frames):
        named = frame.user and _BY_NAME.search(frame.name) and not _NOT_BY_NAME.search(frame.name)
        if named:
            return tuple(frames[: at + 1])
    return None


def _data_look(event: Stacks, inside: tuple[Frame, ...]) -> DataLook:
    line = next((frame for frame in inside if frame.user), None)
    kind = _kind(event, inside, line)
    return DataLook(event.pid, event.role, line, kind, event.at or 0.0)


def _kind(event: Stacks, inside: tuple[Frame, ...], line: Frame | None) -> str:
    within = inside[: inside.index(line)] if line is not None else inside
    if any(frame.name in _STARTS for frame in inside) and line is None:
        return "starts"
    if any(_NETWORK.search(_slashed(frame)) for frame in within):
        return "network"
    code = line.code if line is not None else ""
    state, call, path = event.state, event.syscall, event.path
    if state.startswith("R") or not state:
        return "waits" if "sleep(" in code and not state else "busy"
    if call in _SOCKET_CALLS or path.startswith("socket:"):
        return "network"
    if state.startswith("D") or (call in _FILE_CALLS and not path.startswith(("pipe:", "anon_inode:"))):
        return "disk"
    if call in _BETWEEN_THREADS and "sleep(" not in code:
        return "busy"  # its own helper threads compute for it
    return "waits"
