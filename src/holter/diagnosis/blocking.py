"""What a hung run is blocked in, told from its stacks, its state and its use of the CPU."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from holter.diagnosis.evidence import last_processes, roles
from holter.diagnosis.examined import once
from holter.diagnosis.exits import exit_of
from holter.diagnosis.fields import flag, moment, number, rows, text, whole
from holter.diagnosis.frames import Frame
from holter.diagnosis.rule import RecordLike
from holter.diagnosis.stalls import Stack, open_stall, stacks_of, stall_line, stalled_for
from holter.finding import Ending, Evidence, Grade
from holter.units import duration

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
    "read pread64 readv write pwrite64 writev recvfrom recvmsg recvmmsg sendto sendmsg connect accept accept4 openat "
    "fsync fdatasync flock newfstatat statx sync".split()
)
_CHILD_CALLS = ("wait4", "waitid")
_IDLE = 0.05


@dataclass(frozen=True)
class Blocked:
    """What holds a hung run: the kind of wait, how sure that is, the line, and the proof."""

    detail: str
    grade: Grade
    words: str
    line: Frame | None
    stacks: tuple[Stack, ...]
    evidence: tuple[Evidence, ...]
    worker: Stack | None = None


@once
def blocked_in(record: RecordLike, ending: Ending) -> Blocked | None:
    """Tell what kind of wait a hung run is in; None when the run did not hang."""
    if ending.kind != "hung":
        return None
    stall = open_stall(record) or (record.events_of("stall") or [{}])[-1]
    stacks = stacks_of(record, ("stall", "attach"))
    pid = whole(stall, "pid")
    mine = next((stack for stack in stacks if stack.pid == pid), None)
    line = stall_line(record, stall)
    top = mine.frames[:80] if mine is not None else ()
    # The wait is what lies inside the user's own innermost line; what is around it is not the cause.
    inside = _inside(top)
    code = line.code if line is not None else ""
    detail, grade, words, worker = _classify(record, stall, inside, code, stacks)
    return Blocked(detail, grade, words, line, tuple(stacks), _proof(record, stall, mine), worker)


def _inside(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    for at, frame in enumerate(frames):
        if frame.user:
            return frames[:at]
    return frames


def _classify(
    record: RecordLike, stall: dict[str, Any], inside: tuple[Frame, ...], code: str, stacks: list[Stack]
) -> tuple[str, Grade, str, Stack | None]:
    cpu, state = number(stall, "cpu"), text(stall, "state")
    idle = cpu is not None and cpu < _IDLE
    sure: Grade = "established" if idle and flag(stall, "same_place") else "supported"
    if any(_COLLECTIVE.search(_slashed(frame)) for frame in inside):
        return "collective", sure, f"waits for the other ranks in {_call(inside, _COLLECTIVE)}", None
    if any(frame.function in _LOADER or "data/dataloader" in _slashed(frame) for frame in inside):
        return _worker(record, stall, stacks, sure)
    if any(_DEVICE_CALL.search(frame.function) for frame in inside):
        return "device", sure, "waits for the device to finish what was queued on it", None
    if state.startswith("D"):
        on = _target(stall)
        return "io", sure, f"sleeps in the kernel without waking (state D{on}), as for a disk or a network mount", None
    if any(_IO_FILE.search(_slashed(frame)) for frame in inside):
        return "io", sure, f"waits for data in {_call(inside, _IO_FILE)}{_target(stall)}", None
    locks = [frame for frame in inside if frame.function in _LOCKS and _LOCK_FILE.search(_slashed(frame))]
    if locks and idle:
        return "deadlock", sure, f"waits in {locks[-1].function}() of {_module(locks[-1])}, which nobody answers", None
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
            return "io", surer, f"waits in {call}(){_target(stall)}"
        if call in _CHILD_CALLS:
            return "deadlock", surer, f"waits in {call}() for a child process that does not end"
        if _IO_CODE.search(code) and not call and (_IO_WAIT.search(wchan) or not wchan):
            on = f" (kernel: {wchan})" if wchan else ""
            return "io", surer if wchan else "hypothesis", f"waits in a read or write{on}"
        if _LOCK_CODE.search(code) and idle and call in ("", "futex", "futex_waitv"):
            return "deadlock", "supported", "waits for a lock, a queue or a join that nobody answers"
    return "deadlock", "hypothesis", _else(number(stall, "cpu"), call or wchan)


def _target(stall: dict[str, Any]) -> str:
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


def _proof(record: RecordLike, stall: dict[str, Any], mine: Stack | None) -> tuple[Evidence, ...]:
    found, left = [], exit_of(record)
    took = stalled_for(record, stall, left.m if left is not None else None)
    if took is not None:
        found.append(Evidence("no progress", f"for {duration(took)}", number(stall, "t")))
    cpu, state, wchan = number(stall, "cpu"), text(stall, "state"), text(stall, "wchan")
    if cpu is not None:
        held = f", state {state}" if state else ""
        held += f", kernel wait {wchan}" if wchan and wchan != "0" else ""
        held += f", system call {text(stall, 'syscall')}{_target(stall)}" if text(stall, "syscall") else ""
        found.append(Evidence("CPU", f"{cpu:.2f} of a core{held}", number(stall, "t")))
    if flag(stall, "same_place"):
        found.append(Evidence("stacks", "the same frames in both readings"))
    users = mine.user_frames if mine is not None else ()
    for frame in users[:6]:
        code = f"    {frame.code}" if frame.code else ""
        found.append(Evidence("stack", f"{frame.short} in {frame.function or '?'}{code}"))
    dead = [row for row in last_processes(record) if text(row, "state").startswith(("Z", "D"))]
    for row in dead[:3]:
        words = "is dead" if text(row, "state").startswith("Z") else "sleeps uninterruptibly"
        found.append(Evidence("process", f"pid {whole(row, 'pid')} {text(row, 'name')} {words}"))
    return tuple(found)
