"""The events that the agent writes in a process of the training; those of its closer looks are in looks.py."""

from __future__ import annotations

from holter.record.events.rows import Job, Place, Raised, StackFrame
from holter.record.events.schema import Event, ProcessEvent, means, schema


@schema
class AgentHello(ProcessEvent):
    """An agent said hello, once for each role that its process turned out to play."""

    KIND = "guest"

    ppid: int | None = None
    python: str = means("its version")
    role: str = means("`trainer`, `worker`, `python`")
    file: str = means("the script")
    rank: str | int | None = means("as the launcher says")
    world: int | None = means("how many ranks there are, as the launcher says")
    job: Job = means("what the launcher says of the job")
    inherited: float | None = means("resident bytes that a forked worker shared with its parent at the fork")


@schema
class Adapter(ProcessEvent):
    """A framework was met in a process."""

    KIND = "adapter"

    framework: str = ""
    version: str = ""
    state: str = means("`on`, `declined`")
    because: str = ""


@schema
class Made(ProcessEvent):
    """Objects made on one line."""

    KIND = "made"

    what: str = means("`model`, `optimizer`, `function`, `loader`")
    name: str = means("its class")
    file: str = ""
    line: int | None = None
    function: str = ""
    code: str = ""
    made: int | None = means("how many")
    alive: int | None = means("how many are still there")
    num_workers: int | None = means("of a loader, like the next eight")
    batch_size: int | None = None
    prefetch_factor: int | None = None
    pin_memory: bool | None = None
    persistent_workers: bool | None = None
    shuffle: bool | None = None
    dataset: str = means("its class")
    collate_file: str = means("the user's function that makes a batch of samples, like the next one")
    collate_line: int | None = None
    weights: float | None = means("of a PyTorch optimizer: bytes of what it trains")


@schema
class FrameworkSettings(ProcessEvent):
    """What a framework computes with."""

    KIND = "settings"

    framework: str = ""
    intra_op: int | None = means("threads, like the next one")
    inter_op: int | None = None
    device: str = means("where the weights are that are trained: `cpu`, `cuda`, `mps`, …")
    built_for: str = means("`cpu`, or the GPUs that this build knows: `cuda 12.8`, `rocm 6.4`, `mps`")
    translated: bool | None = means("true for a Python made for Intel on Apple silicon")


@schema
class Schedule(ProcessEvent):
    """How much training is to be done."""

    KIND = "plan"

    steps: int | None = means("the step number at which it will be done")
    epochs: int | None = None
    steps_per_epoch: int | None = None
    source: str = means("`keras`, `lightning`, `transformers`, or `loop`: read off the user's own `range`, a guess")


@schema
class EpochBegins(ProcessEvent):
    """An epoch begins."""

    KIND = "epoch"

    epoch: int | None = means("from 1")
    step: int | None = means("steps done before it")


@schema
class IdlePasses(ProcessEvent):
    """Passes over a loader of the training in a row that drew nothing and trained nothing."""

    KIND = "idle-passes"

    step: int | None = None
    epoch: int | None = None


@schema
class Batch(ProcessEvent):
    """The shapes of a batch, where they are new."""

    KIND = "batch"

    step: int | None = None
    shapes: tuple[tuple[tuple[int, ...], str], ...] = means("`[shape, dtype]` of its tensors")
    samples: tuple[int, ...] = means("of one that is far larger than those before: its samples' numbers in the dataset")


@schema
class Armed(ProcessEvent):
    """Under `--heal`: a reflex is in place.

    `split-batch` acts on a failed allocation, `hold-update` on an update that is non-finite, `collect` collects garbage
    near the limit; `expandable-segments` (by the recorder): the device's allocator was told to leave no holes.
    """

    KIND = "armed"

    act: str = ""
    tidy: bool | None = means("it has memory given back as soon as it is free")


@schema
class Intervention(ProcessEvent):
    """A reflex has acted; or, by the recorder at the start of each later attempt, the run was started again."""

    KIND = "intervention"

    act: str = means(
        "`split-batch`, `split-loss`, `collect`, `no-workers`, `restart`, `resume`; of an update that is "
        "non-finite `hold-update`, `mask-gradient`, `go-back`, `lower-rate`, `bfloat16`"
    )
    keeps: str = means("`exact`, `equivalent`, `changed`")
    step: int | None = None
    text: str = ""
    because: str = means("why it is not exact")
    model: str = means("of a split batch, like the next two")
    batch: int | None = None
    rows: int | None = means("samples in a part")
    attempt: int | None = means("of a `restart`, like the next three")
    before: str = means("the run before")
    cause: str = ""
    change: str = ""
    source: str = means("of a `resume`, like the next two")
    from_step: int | None = None
    passed: int | None = means("steps of earlier attempts that are not done again")


@schema
class Declined(ProcessEvent):
    """A reflex could not act."""

    KIND = "declined"

    act: str = ""
    step: int | None = None
    model: str = ""
    because: str = ""


@schema
class StateSaved(ProcessEvent):
    """Under `--heal`: there is a state to go on from, told the first time and then once a minute."""

    KIND = "state"

    source: str = means("`resumable`, `keras`, `lightning`, `transformers`")
    step: int | None = None
    epoch: int | None = None
    bytes: float | None = None


@schema
class EarlyStop(ProcessEvent):
    """Training was ended on purpose."""

    KIND = "early-stop"

    by: str = means("the callback's class")
    epoch: int | None = None
    monitor: str = ""
    patience: int | None = None


@schema
class FitEnd(ProcessEvent):
    """A Trainer's loop is over."""

    KIND = "fit-end"

    epochs: int | None = None
    epochs_planned: int | None = None
    steps: int | None = None
    steps_planned: int | None = None
    stopped: bool | None = means("on purpose")
    source: str = ""


@schema
class UncaughtException(ProcessEvent):
    """The exception that ended the interpreter."""

    KIND = "exception"

    type: str = ""
    module: str = means("the module of its class")
    message: str = ""
    frames: tuple[StackFrame, ...] = means("outermost first")
    chain: tuple[Raised, ...] = means("what it came from, nearest first")
    main: bool | None = means("it ended the main thread")


@schema
class StepError(ProcessEvent):
    """An exception left a model's call, a backward or a loader; the script may have caught it."""

    KIND = "step-error"

    step: int | None = None
    type: str = ""
    module: str = means("the module of its class")
    message: str = ""
    frames: tuple[StackFrame, ...] = means("outermost first")


@schema
class CaughtError(ProcessEvent):
    """A generator or a thread of the user's own caught an error (Python 3.12 and later)."""

    KIND = "caught"

    step: int | None = None
    count: int | None = means("the first, second, tenth, hundredth, ... that this `except` caught")
    thread: bool | None = means("in another thread than the main one")
    caught: Place = means("the `except`, or what else is run on an error")
    type: str = ""
    module: str = means("the module of its class")
    message: str = ""
    frames: tuple[StackFrame, ...] = means("outermost first")


@schema
class ExitCalled(ProcessEvent):
    """A `sys.exit` or `os._exit` by the user's own code."""

    KIND = "exit-called"

    status: str = ""
    file: str = ""
    line: int | None = None
    function: str = ""
    code: str = means("the source line")


@schema
class NoSpace(ProcessEvent):
    """The last checkpoint would not fit once more where it was written."""

    KIND = "no-room"

    path: str = means("the folder")
    bytes: float | None = means("what it took")
    free: float | None = None
    total: float | None = None
    saves: int | None = means("how many there were")
    every: int | None = means("steps between them")
    step: int | None = means("of the last")


@schema
class SaveFailed(ProcessEvent):
    """`torch.save` raised; the figures are of its file system at that moment."""

    KIND = "save-failed"

    path: str = means("the folder")
    free: float | None = None
    total: float | None = None
    inodes_free: int | None = None


@schema
class AgentError(ProcessEvent):
    """An error of Holter's own inside the process."""

    KIND = "guest-error"

    where: str = ""
    error: str = ""


AGENT_EVENTS: tuple[type[Event], ...] = (
    AgentHello, Adapter, Made, FrameworkSettings, Schedule, EpochBegins, IdlePasses, Batch, Armed, Intervention,
    Declined, StateSaved, EarlyStop, FitEnd, UncaughtException, ExitCalled, NoSpace, SaveFailed, StepError, CaughtError,
    AgentError,
)  # fmt: skip
