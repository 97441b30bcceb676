"""The events that the recorder and the keeper write."""

from __future__ import annotations

from typing import Any

from holter.record.events.rows import StackFrame
from holter.record.events.schema import Event, ProcessEvent, Row, means, schema


@schema
class Started(Event):
    """The command was started."""

    KIND = "started"

    stdin: str = means("`tty`, `pipe`, `file`, `null`, like the next two")
    stdout: str = ""
    stderr: str = ""


@schema
class ProcessJoined(ProcessEvent):
    """A process joined the tree."""

    KIND = "process"

    ppid: int | None = None
    command: tuple[str, ...] = means("masked")
    python: bool | None = None


@schema
class ProcessGone(ProcessEvent):
    """A process of the tree is gone."""

    KIND = "process-gone"

    role: str = ""


@schema
class NoAgent(ProcessEvent):
    """A Python process without an agent."""

    KIND = "no-guest"

    because: str = ""


@schema
class Restarted(Event):
    """In the record of an attempt that has ended: it was started again, as the run with the next number."""

    KIND = "restarted"

    attempt: int | None = means("its number")
    act: str = means("`restart`; this and the rest as in the `intervention` of that attempt")
    keeps: str = ""
    because: str = ""
    cause: str = ""
    change: str = ""
    text: str = ""


@schema
class ThreadStack(Row):
    """One thread."""

    name: str = ""
    main: bool | None = None
    current: bool | None = means("it held the interpreter")
    frames: tuple[StackFrame, ...] = ()


@schema
class Stacks(ProcessEvent):
    """Where the threads of a process stood."""

    KIND = "stacks"

    role: str = means("as of `guest`, or `child`")
    reason: str = means(
        "`stall`, `fatal`, `attach`, `end`; `memory`: it grew fast against what was left; `slow`: taken at one of a "
        "few uneven moments of a run with long or mostly idle steps"
    )
    round: int | None = None
    via: str = means("`guest`: our own thread in it, `faulthandler`, `py-spy`, `proc`")
    threads: tuple[ThreadStack, ...] = ()
    failed: str = means("why there are none")
    head: str = means("of `fatal`: what faulthandler says")
    used: float | None = means("of `memory`: bytes, like the next one")
    limit: float | None = None
    at: float | None = means("when it was asked for, monotonic")
    phase: str = means("of `slow`, like the rest")
    step: int | None = None
    tid: int | None = means("the thread, where it is one that makes data")
    state: str = means("of the main thread in the kernel, like the rest")
    wchan: str = ""
    syscall: str = ""
    path: str = means("what the call waits on")


@schema
class KernelLine(Event):
    """A line of the kernel log that may bear on the run."""

    KIND = "kernel"

    text: str = ""
    kind: str = means("`oom`, `segfault`, `trap`, `xid`, `io`, `blocked`, `hardware`")
    oom: bool | None = None
    at: float | None = means("seconds since boot")
    pid: int | None = means("the machine's, not a container's")
    victim: str = means("the process's name")
    anon_rss: float | None = None
    constraint: str = ""
    memcg: str = means("the container")
    xid: int | None = None
    device: str = ""


@schema
class SignalReceived(Event):
    """Holter was sent a signal."""

    KIND = "signal"

    signal: str = ""
    sender_pid: int | None = None
    sender_uid: int | None = None
    sender: str = means("its name")


@schema
class WaitingProcess(Row):
    """One of several processes that wait for each other."""

    pid: int | None = None
    syscall: str = ""
    path: str = ""


@schema
class Stall(ProcessEvent):
    """No sign of progress."""

    KIND = "stall"

    since: float | None = means("monotonic")
    phase: str = ""
    step: int | None = None
    limit: float | None = means("seconds: the threshold")
    learned: str = means("what it comes from")
    cpu: float | None = means("cores that the tree keeps busy")
    state: str = means("of the main thread in the kernel, like the next three")
    wchan: str = ""
    syscall: str = ""
    path: str = means("what the call waits on")
    same_place: bool | None = means("two looks saw the same frames")
    file: str = ""
    line: int | None = None
    function: str = ""
    code: str = ""
    circle: tuple[WaitingProcess, ...] = means("processes that wait for each other through pipes, this one first")


@schema
class StallOver(ProcessEvent):
    """There is progress again."""

    KIND = "stall-over"

    lasted: float | None = means("seconds")


@schema
class Stopping(Event):
    """Holter ends the run."""

    KIND = "stopping"

    reason: str = ""
    pids: tuple[int, ...] = ()


@schema
class Missing(Event):
    """A reading that could not be had."""

    KIND = "missing"

    probe: str = ""
    because: str = ""


@schema
class Cost(Event):
    """What the recorder itself takes, each minute."""

    KIND = "cost"

    probes: Any = means("name → seconds per reading")
    cpu_s: float | None = None
    rss: float | None = None


@schema
class ForecastTold(Event):
    """What is to come, as it was told while the run was on."""

    KIND = "forecast"

    what: str = means("`memory`, `device-memory`, `disk`, `shm`, `open-files`, `step-time`")
    name: str = means("which disk or device")
    state: str = means("`foreseen`, `over`: no longer to be expected, `slower`")
    text: str = ""
    at_step: int | None = means("when it was told")
    step: int | None = means("at which the limit is met, between the next two")
    step_earliest: int | None = None
    step_latest: int | None = None
    when: float | None = means("the same in wall-clock seconds, between the next two")
    earliest: float | None = None
    latest: float | None = None
    per_step: float | None = means("growth")
    per_epoch: float | None = means("growth")
    per_second: float | None = means("growth")
    since_step: int | None = None
    used: float | None = None
    limit: float | None = None
    before: float | None = means("seconds per step, like the next one")
    now: float | None = None


@schema
class Said(Event):
    """A line that was told to the user while the run was on."""

    KIND = "said"

    text: str = ""


@schema
class Gap(Event):
    """The machine slept, the clock was set or we were stopped."""

    KIND = "gap"

    monotonic: float | None = means("seconds since the last tick")
    wall: float | None = means("the same by the wall clock")
    slept: float | None = means("how much of it the machine was asleep, where its clocks tell")


@schema
class Stopped(ProcessEvent):
    """The command was stopped with a signal (Ctrl-Z, SIGSTOP)."""

    KIND = "stopped"

    signal: str = ""


@schema
class Continued(ProcessEvent):
    """The command went on."""

    KIND = "continued"


@schema
class KeeperLost(Event):
    """The keeper was killed: the recorder took its place."""

    KIND = "keeper-lost"


@schema
class RecorderError(Event):
    """An error of the recorder's own; recording went on."""

    KIND = "recorder-error"

    error: str = ""
    trace: str = ""


@schema
class Detached(ProcessEvent):
    """`holter attach` let go of a process that still ran."""

    KIND = "detached"

    cpu: float | None = means("cores that it kept busy")


@schema
class Dropped(Event):
    """Lines that could not be written."""

    KIND = "dropped"

    count: int | None = None
    because: str = ""


@schema
class Spawned(ProcessEvent):
    """The keeper has started the command."""

    KIND = "spawned"

    relayed: bool | None = means("its output goes through us")


@schema
class StartFailed(Event):
    """The command could not be started."""

    KIND = "failed"

    errno: int | None = None
    error: str = ""


@schema
class Exited(Event):
    """The keeper has seen the command end."""

    KIND = "exited"

    exit_code: int | None = None
    signal: str | int | None = means("its name")
    core: bool | None = means("it left a core dump")
    cpu_s: float | None = None
    maxrss: float | None = None


@schema
class Ended(Exited):
    """How the command ended, as the recorder tells it."""

    KIND = "end"

    hung: bool | None = None
    because: str = ""


RECORDER_EVENTS: tuple[type[Event], ...] = (
    Started, ProcessJoined, ProcessGone, NoAgent, Restarted, Stacks, KernelLine, SignalReceived, Stall, StallOver,
    Stopping, Missing, Cost, ForecastTold, Said, Gap, Stopped, Continued, KeeperLost, RecorderError, Detached, Ended,
    Dropped,
)  # fmt: skip
KEEPER_EVENTS: tuple[type[Event], ...] = (Spawned, StartFailed, Exited)
