"""The kinds of waits a hung process can be in, and how each is known."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from holter.diagnosis.core.evidence import last_processes, roles
from holter.diagnosis.core.frames import Frame
from holter.diagnosis.core.rule import RecordLike
from holter.diagnosis.ending.exits import ended_at
from holter.diagnosis.hang.stalls import Stack
from holter.facts.lock_lines import waits_for_another
from holter.finding import Grade
from holter.record.events.recorder import ProcessGone, Stall, WaitingProcess
from holter.record.events.timeline import DeviceMemory, Nvidia

_COLLECTIVE = re.compile(
    r"torch/distributed/(?!elastic|launcher|run)|horovod/|mpi4py|deepspeed/comm|gloo|nccl|c10d", re.I
)
_LOADER = ("_try_get_data", "_get_data", "_next_data")
_DEVICE_CALL = re.compile(
    r"[Ss]ynchronize|waitUntilCompleted|commitAndWait|MTLCommandBuffer|cuMemcpy|cudaMemcpy|_local_scalar_dense"
)
_DEVICE_CODE = re.compile(r"\.item\(\)|\.cpu\(\)|\.tolist\(\)|\.numpy\(\)|synchronize\(")
_LOCKS = frozenset(
    {"acquire", "wait", "join", "get", "put", "_wait_for_tstate_lock", "wait_for", "result", "__enter__"}
)
_LOCK_FILE = re.compile(r"(?:^|/)(?:threading|queue|_weakrefset)\.py$|/multiprocessing/|/concurrent/futures/|/asyncio/")
_LOCK_CALL = re.compile(r"PyThread_acquire_lock|sem_(?:timed|clock)?wait|semlock_acquire", re.I)
_A_LOCK = "a lock that is not released"
_FORKED = "start children with spawn, or before threads take locks: a fork copies a lock that is held for ever"
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
_CHILD_FILE = re.compile(r"(?:^|/)subprocess\.py$|/multiprocessing/(?:popen_\w+|process)\.py$")
_PIPE = re.compile(r"/multiprocessing/connection\.py$")
_POOL = re.compile(r"/multiprocessing/pool\.py$")
_SLEEP_CALLS = ("clock_nanosleep", "nanosleep")
_FEEDS_ITSELF = re.compile(r"/(?:keras|tensorflow)/")
_LOOP_FILE = re.compile(r"/asyncio/")
_IDLE = 0.05


@dataclass(frozen=True)
class Wait:
    """A kind of wait, how sure it is, what it is as part of a sentence, and what to do about it."""

    detail: str
    grade: Grade
    words: str
    cure: str = ""
    worker: Stack | None = None


def kind_of_wait(record: RecordLike, stall: Stall, inside: tuple[Frame, ...], code: str, stacks: list[Stack]) -> Wait:
    """Tell the kind of a wait, how sure it is, its words, and the worker that is to blame, where one is."""
    cpu, state = stall.cpu, stall.state
    idle = cpu is not None and cpu < _IDLE
    # Of a process that was only looked at for seconds nobody knows how long its waits are when it is well.
    watched = record.facts.attached is None
    sure: Grade = "established" if idle and watched and stall.same_place else "supported"
    if stall.circle:
        return _circle(record, stall.circle)
    if cpu is not None and not idle and code.startswith("while "):
        words = f"is in this loop at every look, {cpu:.1f} cores busy: nothing makes its condition false"
        return Wait("poll", "supported", words)
    if any(frame.name == "next_rendezvous" for frame in inside):
        return Wait("collective", sure, "waits for the other nodes of the job, which have not come: no rank is started")
    if in_collective(inside):
        return Wait("collective", sure, f"waits for the other ranks in {collective_name(inside)}")
    if any(frame.name in _LOADER or "data/dataloader" in _slashed(frame) for frame in inside):
        return _worker(record, stall, stacks, sure)
    if any(_DEVICE_CALL.search(frame.function) for frame in inside):
        return Wait("device", sure, "waits for the device to finish what was queued on it")
    if state.startswith("D"):
        on = target_of(stall)
        return Wait("io", sure, f"sleeps in the kernel without waking (state D{on}), as for a disk or a network mount")
    if any(_CHILD_FILE.search(_slashed(frame)) for frame in inside) or stall.syscall in _CHILD_CALLS:
        return _child(record, stall, stacks, sure)
    if any(_LOOP_FILE.search(_slashed(frame)) for frame in inside):
        return Wait("deadlock", sure, "waits in its event loop (asyncio), where nothing becomes ready")
    if any(_IO_FILE.search(_slashed(frame)) for frame in inside):
        return Wait("io", sure, f"waits for data in {_call(inside, _IO_FILE)}{target_of(stall)}")
    if any(_PIPE.search(_slashed(frame)) for frame in inside) and idle:
        return _message(stacks, sure)
    if any(_POOL.search(_slashed(frame)) for frame in inside) and idle:
        return _pool(record, stall, sure)
    locks = [frame for frame in inside if frame.name in _LOCKS and _LOCK_FILE.search(_slashed(frame))]
    if locks and idle:
        return Wait("deadlock", sure, f"waits in {locks[-1].name}() of {_module(locks[-1])} and nothing comes")
    return _in_c(record, stall, inside, code, idle)


def _circle(record: RecordLike, circle: tuple[WaitingProcess, ...]) -> Wait:
    """Processes of which each waits for the next: the kernel has said for whom."""
    names = {one.pid: one.name for one in last_processes(record)}
    own, others = circle[0].syscall, circle[1:]
    who = " and ".join(f"process {(pid := one.pid)} ({names.get(pid) or 'unnamed'})" for one in others)
    theirs = others[0].syscall if others else ""
    words = f"waits in {own}() for {who}, which in turn waits in {theirs}() for it: none of them can go on"
    cure = "read what the child writes while it runs (communicate(), or a thread), or send it to a file or to DEVNULL"
    return Wait("deadlock", "established", words, cure)


def in_framework(inside: tuple[Frame, ...]) -> bool:
    """Tell whether frames stand in a framework that draws its data through threads of its own."""
    return any(_FEEDS_ITSELF.search(_slashed(frame)) for frame in inside)


def in_collective(inside: tuple[Frame, ...]) -> bool:
    """Tell whether frames stand in a call that all ranks must make."""
    return any(_COLLECTIVE.search(_slashed(frame)) for frame in inside)


def _in_c(record: RecordLike, stall: Stall, inside: tuple[Frame, ...], code: str, idle: bool) -> Wait:
    """Tell a wait inside a call that has no Python frame: the kernel and the code on the line must speak."""
    wchan, call = stall.wchan, stall.syscall
    surer: Grade = "supported" if idle else "hypothesis"
    bare = not any(frame.file.endswith(".py") for frame in inside)
    if bare and _DEVICE_CODE.search(code) and _has_device(record):
        return Wait("device", surer, "waits for a result of the device")
    if call == "openat":
        return Wait(
            "io", surer, "waits for an open() to return, as of a FIFO without its other end or a mount that is gone"
        )
    if call in _IO_CALLS:
        return Wait("io", surer, f"waits in {call}(){target_of(stall)}")
    # A loop that sleeps may have been met awake, between two sleeps.
    asleep = "sleep(" in code or any("sleep" in frame.function for frame in inside)
    if idle and (call in _SLEEP_CALLS or (not call and asleep)):
        # Of a process that was only looked at, a sleep is how many of them live.
        watched: Grade = surer if record.facts.attached is None else "hypothesis"
        return Wait("poll", watched, "sleeps, as in a loop that looks for something that does not come")
    if bare and _IO_CODE.search(code) and not call and (_IO_WAIT.search(wchan) or not wchan):
        on = f" (kernel: {wchan})" if wchan else ""
        return Wait("io", surer if wchan else "hypothesis", f"waits in a read or write{on}")
    held = waits_for_another(code) or any(_LOCK_CALL.search(frame.function) for frame in inside)
    if bare and held and idle and call in ("", "futex", "futex_waitv"):
        what = _what_lock(code)
        forked = roles(record).get(stall.pid or 0) == "worker"  # what it waits for may have been held when it was made
        if forked and what == _A_LOCK:
            words = f"is a data worker (pid {stall.pid}) and waits for {what}: most likely held when it was forked"
            return Wait("deadlock", "supported", words, _FORKED)
        return Wait("deadlock", "supported", f"waits for {what}")
    return Wait("deadlock", "hypothesis", _else(stall.cpu, call or wchan))


def _what_lock(code: str) -> str:
    if re.search(r"\.join\(", code):
        return "a thread or process that does not end"
    if re.search(r"\.(?:get|put)\(", code):
        return "a queue that nobody serves"
    return _A_LOCK


def _child(record: RecordLike, stall: Stall, stacks: list[Stack], sure: Grade) -> Wait:
    pid = stall.pid
    mine = [row for row in last_processes(record) if row.ppid == pid]
    seen = next((stack for stack in stacks if stack.role == "child" and _at(stack) is not None), None)
    at = _at(seen) if seen is not None else None
    if seen is not None and at is not None:
        stands = f"stands at {at.place}" if at.user else "waits until what it put into a queue has been taken"
        words = f"waits for its child process (pid {seen.pid}), which {stands}"
        return Wait("deadlock", sure, words, _cure_of_child(at))
    if len(mine) != 1:
        several = f"one of its {len(mine)} child processes, which does" if mine else "a child process that does"
        return Wait("deadlock", sure, f"waits for {several} not end", "give the wait a timeout")
    child = mine[0].pid
    name = mine[0].name or "a child process"
    words = f"waits for its child process {name} (pid {child}), which does not end"
    return Wait("deadlock", sure, words, f"see what it does (holter attach {child}); give the wait a timeout")


def _message(stacks: list[Stack], sure: Grade) -> Wait:
    """Tell a wait for a message from another process of the run, and where that one stands."""
    words = "waits for a message from another process of the run (multiprocessing), and none comes"
    for stack in stacks:
        at = _at(stack) if stack.role == "child" else None
        if at is not None:
            words += f"; its child (pid {stack.pid}) stands at {at.place}"
            return Wait("deadlock", sure, words, f"see why the child does not send from {at.short}")
    return Wait("deadlock", sure, words, "see that the other side sends, and that it is still there")


def _pool(record: RecordLike, stall: Stall, sure: Grade) -> Wait:
    """Tell a wait for a pool of processes; one that died has taken its task with it."""
    since, m = stall.since or 0.0, stall.m
    gone = [event for event in record.of(ProcessGone) if since - 5 <= event.m <= m and event.role in ("", "child")]
    if not gone:
        return Wait("deadlock", sure, "waits for a pool of processes (multiprocessing.Pool), and no result comes")
    words = f"waits for a pool of processes, of which one died (pid {gone[0].pid}) and took its task with it"
    cure = "use concurrent.futures.ProcessPoolExecutor: it raises BrokenProcessPool where Pool waits for ever"
    return Wait("deadlock", sure, words, cure)


def _at(stack: Stack) -> Frame | None:
    """Give the line of its own that a child stands on; what it was forked from is around it, not inside."""
    for frame in stack.frames:
        if "/multiprocessing/process.py" in _slashed(frame) and frame.name in ("run", "_bootstrap"):
            # It has come back from its own function, and flushes what it has put into queues that nobody reads.
            joins = next((f for f in stack.frames if f.name in ("_finalize_join", "_exit_function")), None)
            return joins
        if frame.user:
            return frame
    return None


def _cure_of_child(at: Frame) -> str:
    if at.name in ("_finalize_join", "_exit_function"):
        return "take everything out of the queue before the join: a child ends only when what it put has been taken"
    if waits_for_another(at.code):
        return _FORKED
    return "see why the child does not go on from that line; give the wait a timeout"


def target_of(stall: Stall) -> str:
    """Say which file or socket a system call waits on."""
    path = stall.path
    kind, _, rest = path.partition(":[")
    if rest:
        return "" if kind.startswith("anon") else f" on a {kind}"
    return f" on {path}" if path else ""


def _slashed(frame: Frame) -> str:
    # A native frame may have no file; its name then carries the library's namespace.
    return frame.file.replace("\\", "/") if frame.file.endswith(".py") else f"{frame.file} {frame.function}"


def _else(cpu: float | None, wchan: str) -> str:
    if cpu is not None and cpu >= 0.5:
        return f"is busy on {cpu:.1f} cores and makes no step: a loop that does not end, or one very long call"
    return f"is blocked{f' in {wchan}' if wchan and wchan != '0' else ''}; what it waits for could not be read"


def _worker(record: RecordLike, stall: Stall, stacks: list[Stack], sure: Grade) -> Wait:
    pid, role_of = stall.pid, roles(record)
    workers = [
        stack for stack in stacks if stack.pid != pid and (stack.role or role_of.get(stack.pid or 0)) == "worker"
    ]
    busy = [own for stack in workers if (own := _own_frames(stack)).frames]
    stuck = next((stack for stack in busy if stack.user_frames), next(iter(busy), None))
    since = stall.since or 0.0
    end = ended_at(record)
    end = float("inf") if end is None else end
    gone = [event for event in record.of(ProcessGone)
            if event.role == "worker" and since - 30 <= event.m < end - 1]  # fmt: skip
    if stuck is not None:
        at = (stuck.user_frames or stuck.frames)[0]
        on = f" ({at.code})" if at.code else f" in {at.name}()"
        words = f"waits for its data worker (pid {stuck.pid}), which stands at {at.short}{on}"
        return Wait("worker", sure, words, "", stuck)
    if gone:
        return Wait("worker", "supported", f"waits for a data worker (pid {gone[-1].pid}) that is gone")
    if workers:
        return Wait("worker", "hypothesis", "waits for its data loader, while its workers wait for work themselves")
    return Wait("worker", "hypothesis", "waits for its data loader; what the workers do could not be read")


def _own_frames(stack: Stack) -> Stack:
    """Give what a data worker itself does: what lies around its loop is the trainer's, copied by the fork."""
    for at, frame in enumerate(stack.frames):
        if frame.name == "_worker_loop":
            own = stack.frames[:at]
            idle = not any(frame.user or frame.name == "fetch" for frame in own)
            return replace(stack, frames=() if idle else own)
    return stack if stack.user_frames else replace(stack, frames=())


def _call(inside: tuple[Frame, ...], wanted: re.Pattern[str]) -> str:
    outer = [frame for frame in inside if wanted.search(_slashed(frame))]
    return f"{outer[-1].name}()"


def collective_name(inside: tuple[Frame, ...]) -> str:
    """Name the collective call that frames stand in."""
    met = [frame for frame in inside if _COLLECTIVE.search(_slashed(frame))]
    named = [frame for frame in met if frame.file.endswith(".py") and frame.name != "wrapper"]
    if named:
        return f"{named[-1].name}()"
    native = " ".join(frame.function for frame in met)
    if "Reducer" in native:
        return "the exchange of gradients (DistributedDataParallel)"
    call = re.search(r"\b(?:p?nccl|gloo|c10d|MPI_|horovod)\w*(?:::\w+)*", native)
    return call.group(0) if call else "a collective call"


def _module(frame: Frame) -> str:
    return frame.file.replace("\\", "/").rpartition("/")[2].removesuffix(".py")


def _has_device(record: RecordLike) -> bool:
    held = any((row.tree or 0) > 0 for _, r in record.readings(Nvidia)[-30:] for row in r.rows)
    return held or any((line.allocated or 0) > 0 for line in record.of(DeviceMemory)[-30:])
