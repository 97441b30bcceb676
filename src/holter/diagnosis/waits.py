"""The kinds of waits a hung process can be in, and how each is known."""

from __future__ import annotations

import re
from typing import Any

from holter.diagnosis.evidence import roles
from holter.diagnosis.exits import exit_of
from holter.diagnosis.fields import flag, moment, number, rows, text, whole
from holter.diagnosis.frames import Frame
from holter.diagnosis.rule import RecordLike
from holter.diagnosis.stalls import Stack
from holter.finding import Grade

_COLLECTIVE = re.compile(
    r"torch/distributed/(?!elastic|launcher|run)|horovod/|mpi4py|deepspeed/comm|gloo|nccl|c10d", re.I
)
_LOADER = ("_try_get_data", "_get_data", "_next_data")
_DEVICE_CALL = re.compile(r"[Ss]ynchronize|waitUntilCompleted|cuMemcpy|cudaMemcpy|_local_scalar_dense")
_DEVICE_CODE = re.compile(r"\.item\(\)|\.cpu\(\)|\.tolist\(\)|\.numpy\(\)|synchronize\(")
_LOCKS = frozenset(
    {"acquire", "wait", "join", "get", "put", "_wait_for_tstate_lock", "wait_for", "result", "__enter__"}
)
_LOCK_FILE = re.compile(r"(?:^|/)(?:threading|queue|_weakrefset)\.py$|/multiprocessing/|/concurrent/futures/|/asyncio/")
_LOCK_CALL = re.compile(r"PyThread_acquire_lock|sem_(?:timed|clock)?wait|semlock_acquire", re.I)
_LOCK_CODE = re.compile(r"\.(?:acquire|wait|join|get|put|result)\(|^with .*lock", re.I)
_IO_FILE = re.compile(r"(?:^|/)(?:socket|ssl|http/client|selectors)\.py$|/(?:urllib3|requests|s3fs|fsspec|botocore)/")
_IO_CODE = re.compile(
    r"\.(?:read|readline|readlines|recv|recv_into|write|connect|accept)\(|\bopen\(|\binput\(|urlopen\("
)
_IO_WAIT = re.compile(
    r"nfs|rpc_|fuse|folio_wait|io_schedule|sk_wait|tcp_|unix_stream|inet_csk|pipe_read|pipe_w|n_tty|wait_woken|jbd2",
    re.I,
)
_IO_CALLS = frozenset(
    ("read", "pread64", "readv", "write", "pwrite64", "writev", "recvfrom", "recvmsg", "recvmmsg", "sendto", "sendmsg",
     "connect", "accept", "accept4", "openat", "fsync", "fdatasync", "flock", "newfstatat", "statx", "sync")
)  # fmt: skip
_CHILD_CALLS = ("wait4", "waitid")
_IDLE = 0.05


def kind_of_wait(
    record: RecordLike, stall: dict[str, Any], inside: tuple[Frame, ...], code: str, stacks: list[Stack]
) -> tuple[str, Grade, str, Stack | None]:
    """Tell the kind of a wait, how sure it is, its words, and the worker that is to blame, where one is."""
    cpu, state = number(stall, "cpu"), text(stall, "state")
    idle = cpu is not None and cpu < _IDLE
    # Of a process that was only looked at for seconds nobody knows how long its waits are when it is well.
    watched = number(record.meta, "attached") is None
    sure: Grade = "established" if idle and watched and flag(stall, "same_place") else "supported"
    if any(_COLLECTIVE.search(_slashed(frame)) for frame in inside):
        return "collective", sure, f"waits for the other ranks in {_call(inside, _COLLECTIVE)}", None
    if any(frame.name in _LOADER or "data/dataloader" in _slashed(frame) for frame in inside):
        return _worker(record, stall, stacks, sure)
    if any(_DEVICE_CALL.search(frame.function) for frame in inside):
        return "device", sure, "waits for the device to finish what was queued on it", None
    if state.startswith("D"):
        on = target_of(stall)
        return "io", sure, f"sleeps in the kernel without waking (state D{on}), as for a disk or a network mount", None
    if any(_IO_FILE.search(_slashed(frame)) for frame in inside):
        return "io", sure, f"waits for data in {_call(inside, _IO_FILE)}{target_of(stall)}", None
    locks = [frame for frame in inside if frame.name in _LOCKS and _LOCK_FILE.search(_slashed(frame))]
    if locks and idle:
        return "deadlock", sure, f"waits in {locks[-1].name}() of {_module(locks[-1])}, which nobody answers", None
    return (*_in_c(record, stall, inside, code, idle), None)


def _in_c(
    record: RecordLike, stall: dict[str, Any], inside: tuple[Frame, ...], code: str, idle: bool
) -> tuple[str, Grade, str]:
    """Tell a wait inside a call that has no Python frame: the kernel and the code on the line must speak."""
    wchan, call = text(stall, "wchan"), text(stall, "syscall")
    surer: Grade = "supported" if idle else "hypothesis"
    if not any(frame.file.endswith(".py") for frame in inside):
        if _DEVICE_CODE.search(code) and _has_device(record):
            return "device", surer, "waits for a result of the device"
        if call in _IO_CALLS:
            return "io", surer, f"waits in {call}(){target_of(stall)}"
        if call in _CHILD_CALLS:
            return "deadlock", surer, f"waits in {call}() for a child process that does not end"
        if _IO_CODE.search(code) and not call and (_IO_WAIT.search(wchan) or not wchan):
            on = f" (kernel: {wchan})" if wchan else ""
            return "io", surer if wchan else "hypothesis", f"waits in a read or write{on}"
        held = _LOCK_CODE.search(code) or any(_LOCK_CALL.search(frame.function) for frame in inside)
        if held and idle and call in ("", "futex", "futex_waitv"):
            return "deadlock", "supported", "waits for a lock, a queue or a join that nobody answers"
    return "deadlock", "hypothesis", _else(number(stall, "cpu"), call or wchan)


def target_of(stall: dict[str, Any]) -> str:
    """Say which file or socket a system call waits on."""
    path = text(stall, "path")
    return f" on {path}" if path else ""


def _slashed(frame: Frame) -> str:
    # A native frame may have no file; its name then carries the library's namespace.
    return frame.file.replace("\\", "/") if frame.file.endswith(".py") else f"{frame.file} {frame.function}"


def _else(cpu: float | None, wchan: str) -> str:
    if cpu is not None and cpu >= 0.5:
        return f"is busy on {cpu:.1f} cores and makes no step: a loop that does not end, or one very long call"
    return f"is blocked{f' in {wchan}' if wchan and wchan != '0' else ''}; what it waits for could not be read"


def _worker(
    record: RecordLike, stall: dict[str, Any], stacks: list[Stack], sure: Grade
) -> tuple[str, Grade, str, Stack | None]:
    pid, part = whole(stall, "pid"), roles(record)
    workers = [stack for stack in stacks if stack.pid != pid and (stack.role or part.get(stack.pid or 0)) == "worker"]
    stuck = next((stack for stack in workers if stack.user_frames), None)
    since = number(stall, "since") or 0.0
    left = exit_of(record)
    end = left.m if left is not None and left.m is not None else float("inf")
    gone = [event for event in record.events_of("process-gone")
            if text(event, "role") == "worker" and since - 30 <= moment(event) < end - 1]  # fmt: skip
    if stuck is not None:
        at = stuck.user_frames[0]
        on = f" ({at.code})" if at.code else ""
        return "worker", sure, f"waits for its data worker (pid {stuck.pid}), which stands at {at.short}{on}", stuck
    if gone:
        return "worker", "supported", f"waits for a data worker (pid {whole(gone[-1], 'pid')}) that is gone", None
    return "worker", "hypothesis", "waits for its data loader; what the workers do could not be read", None


def _call(inside: tuple[Frame, ...], wanted: re.Pattern[str]) -> str:
    outer = [frame for frame in inside if wanted.search(_slashed(frame))]
    return f"{outer[-1].function}()"


def _module(frame: Frame) -> str:
    return frame.file.replace("\\", "/").rpartition("/")[2].removesuffix(".py")


def _has_device(record: RecordLike) -> bool:
    held = any((number(row, "tree") or 0) > 0 for _, r in record.samples("nvidia")[-30:] for row in rows(r, "list"))
    return held or any((number(line, "allocated") or 0) > 0 for line in record.lines("device")[-30:])
