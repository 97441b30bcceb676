"""The lines of the timeline: step windows, the device's memory, and samples with what each probe has read.

Sizes are bytes, times seconds; counters are cumulative unless the meaning says otherwise.
"""

from __future__ import annotations

from holter.record.events.schema import Line, Reading, Row, means, schema


@schema
class Losses(Row):
    """The losses of a window that are known."""

    last: float | None = None
    min: float | None = None
    max: float | None = None


@schema
class StepWindow(Line):
    """A window of training steps of one process, at most a second long."""

    KIND = "steps"

    pid: int | None = None
    n: int | None = means("steps in it; 0 for a reading that came late, for a step of another window")
    first: int | None = means("number of its first step, from 1")
    last: int | None = means("number of its last step")
    sum: float | None = means("seconds of all its steps")
    min: float | None = means("seconds of the shortest")
    max: float | None = means("seconds of the longest")
    data: float | None = means("seconds, summed over the window, like the next four")
    forward: float | None = None
    backward: float | None = None
    optimizer: float | None = None
    other: float | None = None
    validation: float | None = means("seconds spent between steps, like the next two")
    checkpoint: float | None = None
    compile: float | None = None
    loss: Losses = means("absent when it is not known")
    bad_loss: int | None = means("first step with a non-finite loss")
    bad_grad: int | None = means("first step with a non-finite norm of the gradients")
    lr: float | None = means("learning rate")
    grad_norm: float | None = None
    batch: int | None = means("samples in a batch")
    epoch: int | None = None
    lost: int | None = means("steps that the ring overwrote before they were read")
    seq: int | None = means("of the last slot of the ring that is in it")

    @property
    def phases(self) -> dict[str, float]:
        """The seconds of each phase, in the steps and between them; 0 where none are known."""
        return {
            "data": self.data or 0.0,
            "forward": self.forward or 0.0,
            "backward": self.backward or 0.0,
            "optimizer": self.optimizer or 0.0,
            "other": self.other or 0.0,
            "validation": self.validation or 0.0,
            "checkpoint": self.checkpoint or 0.0,
            "compile": self.compile or 0.0,
        }


@schema
class DeviceMemory(Line):
    """The framework's own figures of one device."""

    KIND = "device"

    pid: int | None = None
    device: int | None = means("its number")
    allocated: float | None = None
    reserved: float | None = None
    peak: float | None = None
    driver: float | None = means("what the driver holds for the process (Metal)")
    retries: int | None = means("allocations that went through only after the cache had been emptied")
    ooms: int | None = means("allocations that failed")


@schema
class AgentState(Row):
    """The present state of one agent."""

    pid: int | None = None
    phase: str = ""
    since: float | None = means("when the phase began, monotonic")
    activity: float | None = means("the last sign of life, monotonic")
    step: int | None = None
    epoch: int | None = None
    planned: int | None = means("steps")
    backwards: int | None = means("of the present step")
    errors: int | None = means("errors of Holter's own in the process")
    collective: int | None = means("collectives that this rank has begun, in all of its groups")


@schema
class Sample(Line):
    """One reading of the probes; besides these fields one key for each probe that was read this time."""

    KIND = "sample"

    agents: tuple[AgentState, ...] = means("the agents' present state", key="guests")
    pace: str = means("`calm` or `urgent`: one or ten readings a second")
    after: bool | None = means("true in the one sample that was taken after the command had ended")


@schema
class Process(Row):
    """One process of the tree."""

    pid: int | None = None
    ppid: int | None = None
    name: str = ""
    role: str = means("as its agent said")
    state: str = means("the kernel's letter")
    rss: float | None = None
    peak: float | None = means("the most that it ever had resident, by the kernel")
    swap: float | None = None
    shared: float | None = None
    cpu_s: float | None = None
    majflt: int | None = None
    threads: int | None = None
    fds: int | None = means("open files")


@schema
class Processes(Reading):
    """The whole tree of the command; what processes that are gone had counted stays in the counters."""

    PROBE = "processes"

    rss: float | None = None
    swap: float | None = None
    cpu_s: float | None = None
    sys_s: float | None = means("the part of it spent in the kernel")
    majflt: float | None = None
    ctx_involuntary: float | None = None
    read_bytes: float | None = None
    write_bytes: float | None = None
    threads: int | None = None
    fds: int | None = means("open files")
    count: int | None = means("processes")
    rows: tuple[Process, ...] = means("the 64 largest", key="list")


@schema
class ProcessPages(Row):
    """The pages of one process."""

    pid: int | None = None
    pss: float | None = means("each shared page counted in part")
    rss: float | None = means("all of its pages")


@schema
class Proportional(Reading):
    """The pages of the tree, read rarely."""

    PROBE = "proportional"

    pss: float | None = means("each shared page counted once")
    file: float | None = means("the part of it that are pages of files: the kernel can drop them")
    rss: float | None = means("the resident sizes at the same moment, in which shared pages count many times")
    rows: tuple[ProcessPages, ...] = means("of each process", key="list")


@schema
class Thread(Row):
    """One thread since the last reading."""

    pid: int | None = None
    tid: int | None = None
    name: str = ""
    cpu: float | None = means("share of a core")
    wait: float | None = means("share of the time that it was ready and had no core")


@schema
class Threads(Reading):
    """The threads of the tree since the last reading."""

    PROBE = "threads"

    cpu: float | None = means("cores, over all threads")
    wait: float | None = means("cores that all threads waited for")
    wanting: float | None = means("how many computed or wanted to")
    wall: float | None = means("how long the reading covers")
    rows: tuple[Thread, ...] = means("the busiest", key="list")


@schema
class Cgroup(Reading):
    """The container that the command runs in."""

    PROBE = "cgroup"

    version: int | None = means("1 or 2")
    path: str = ""
    limit: float | None = means("the lowest on the way up; absent when unlimited")
    limit_path: str = means("whose limit it is")
    high: float | None = means("from here on it is slowed down")
    usage: float | None = None
    anon: float | None = None
    file: float | None = None
    shmem: float | None = None
    refault_anon: float | None = means("pages that came back from swap after they had been thrown out")
    refault_file: float | None = means("the same, from files")
    some_us: float | None = means("microseconds in which a task of the group waited for memory; version 2")
    cpu_limit: float | None = means("cores")
    swap_usage: float | None = None
    swap_limit: float | None = None
    oom_kill: int | None = means("processes that the OOM killer took")
    oom: int | None = means("times the group was out of memory")
    at_limit: int | None = means("times the limit was hit")
    peak: float | None = None
    cpu_throttled_s: float | None = means("seconds without CPU because the quota was spent")
    pids: int | None = None
    pids_limit: int | None = None


@schema
class MachineMemory(Reading):
    """The machine's memory."""

    PROBE = "memory"

    total: float | None = None
    available: float | None = None
    free: float | None = None
    shmem: float | None = None
    swap_total: float | None = None
    swap_free: float | None = None


@schema
class VirtualMemory(Reading):
    """The machine's counters of pages."""

    PROBE = "vm"

    pswpin: float | None = None
    oom_kill: int | None = None


@schema
class Waits(Row):
    """How long something waited for one resource."""

    some_us: float | None = means("microseconds in which a task waited")
    some10: float | None = means("per cent, last 10 s")


@schema
class Pressure(Reading):
    """The machine's pressure stall information."""

    PROBE = "pressure"

    memory: Waits = Waits()
    cpu: Waits = Waits()
    io: Waits = Waits()


@schema
class Load(Reading):
    """How much wants to run on the machine."""

    PROBE = "load"

    load1: float | None = None
    cpus: int | None = None


@schema
class FileSystem(Row):
    """One file system that the run writes to."""

    path: str = ""
    mount: str = ""
    total: float | None = None
    free: float | None = None
    inodes_free: int | None = None


@schema
class Disk(Reading):
    """The file systems that the run writes to."""

    PROBE = "disk"

    rows: tuple[FileSystem, ...] = means("each of them", key="list")


@schema
class Network(Reading):
    """The run's network namespace, loopback left out."""

    PROBE = "network"

    rx_bytes: float | None = None


@schema
class SharedMemory(Reading):
    """`/dev/shm`."""

    PROBE = "shm"

    total: float | None = None
    free: float | None = None


@schema
class ResourceLimits(Reading):
    """Soft limits of the command; absent when unlimited."""

    PROBE = "rlimits"

    nofile: int | None = means("open files")
    address_space: float | None = means("bytes", key="as")
    data: float | None = None
    nproc: int | None = means("processes and threads")
    core: float | None = None


@schema
class GpuProcess(Row):
    """A process that holds memory on a GPU."""

    pid: int | None = None
    used: float | None = None
    name: str = means("of one that is none of the run's, like the next two")
    command: str = means("its first words, masked")
    user: str = ""


@schema
class Gpu(Row):
    """One GPU."""

    index: int | None = None
    name: str = ""
    total: float | None = None
    used: float | None = None
    tree: float | None = means("held by the run's processes")
    util: float | None = means("per cent of the time")
    throttle: tuple[str, ...] = means("why it runs slower, in words")
    ecc_uncorrected: int | None = None
    processes: tuple[GpuProcess, ...] = ()


@schema
class Nvidia(Reading):
    """The machine's NVIDIA GPUs."""

    PROBE = "nvidia"

    rows: tuple[Gpu, ...] = means("each of them", key="list")
    cuda: str = means("the newest CUDA that the driver runs, such as `12.8`")


@schema
class Neighbour(Row):
    """A large process that is none of the run's."""

    pid: int | None = None
    rss: float | None = None
    name: str = ""
    command: str = means("its first words, masked")
    user: str = ""
    started: float | None = means("wall-clock seconds")


@schema
class Neighbours(Reading):
    """Rarely: the largest processes of the machine that are none of the run's."""

    PROBE = "neighbours"

    rows: tuple[Neighbour, ...] = means("each of them", key="list")


@schema
class Footprint(Row):
    """What one process holds, as macOS counts it."""

    pid: int | None = None
    footprint: float | None = None


@schema
class Apple(Reading):
    """The unified memory of a Mac."""

    PROBE = "apple"

    footprint: float | None = means("of the tree")
    pressure_level: int | None = means("1, 2 or 4")
    swap_used: float | None = None
    swap_total: float | None = None
    free: float | None = None
    rows: tuple[Footprint, ...] = means("of each process", key="list")


READINGS: tuple[type[Reading], ...] = (
    Processes, Proportional, Threads, Cgroup, MachineMemory, VirtualMemory, Pressure, Load, Disk, Network,
    SharedMemory, ResourceLimits, Nvidia, Neighbours, Apple,
)  # fmt: skip
TIMELINE: tuple[type[Line], ...] = (Sample, StepWindow, DeviceMemory)
