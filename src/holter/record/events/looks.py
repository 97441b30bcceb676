"""The events of the agent's looks: what a fit is fed with, what is retained, traced, run in a step, and non-finite."""

from __future__ import annotations

from typing import Any

from holter.record.events.rows import Place
from holter.record.events.schema import Event, ProcessEvent, Row, means, schema


@schema
class FitInput(ProcessEvent):
    """What a Keras `fit` is fed with; `file, line, function, code` are of the `fit`."""

    KIND = "input"

    kind: str = means("`array`, `generator`, `pydataset`, `tf.data`, `loader`")
    name: str = means("its class")
    file: str = ""
    line: int | None = None
    function: str = ""
    code: str = ""
    source: Place = means("the user's generator or `__getitem__`")
    workers: int | None = None
    use_multiprocessing: bool | None = None
    max_queue_size: int | None = None
    stages: tuple[str, ...] = means("of a tf.data pipeline, from its end")
    prefetch: bool | None = means("it ends in one")
    functions: Any = means("the user's, by stage")


@schema
class DataThread(ProcessEvent):
    """A thread in which TensorFlow or Keras makes data."""

    KIND = "data-thread"

    tid: int | None = None


@schema
class Feed(ProcessEvent):
    """How data came that TensorFlow draws inside the step, in sums since the first fit."""

    KIND = "feed"

    step: int | None = None
    calls: int | None = means("into Python")
    busy: float | None = means("seconds of these calls")
    cpu: float | None = means("CPU seconds of these calls")
    elements: int | None = means("batches")
    work: float | None = means("seconds that the pipeline's stages took for them")
    looks: int | None = means("looks just after a step")
    empty: int | None = means("looks that found no batch ready")
    ahead: str = means("the stage that works ahead, if any")


@schema
class RetainedObject(Row):
    """One variable of the user's; its sizes are estimates."""

    name: str = ""
    variable: str = ""
    scope: str = means("`global`, `local`, `attribute`, `class`, `closure`, `default`, `cache`")
    owner: str = means("function or class")
    file: str = ""
    line: int | None = None
    type: str = ""
    length: int | None = None
    length_before: int | None = None
    bytes: float | None = means("on the host")
    bytes_before: float | None = None
    device: float | None = means("bytes on a device")
    kind: str = means("`tensor`, `array`, `image`, `text`, `number`, `object`, `model`, `optimizer`")
    element: str = ""
    keys: str = ""
    shape: tuple[int, ...] | None = None
    bound: int | None = means("the length it can't exceed")
    graph: bool | None = means("tensors in it have a `grad_fn`")
    saved: bool | None = means("and still hold what backward needs")
    nodes: int | None = means("of that graph")
    nodes_before: int | None = None
    also: tuple[str, ...] = means("other names")


@schema
class RetainedObjects(ProcessEvent):
    """Memory has grown, and the user's variables were looked through.

    What ends in `before` is of the first census, or of the first step for the first one.
    """

    KIND = "held"

    role: str = ""
    census: int | None = means("its number")
    step: int | None = None
    step_before: int | None = None
    rss: float | None = None
    rss_before: float | None = None
    allocated: float | None = means("on a device")
    allocated_before: float | None = None
    private: float | None = means("a forked worker's own pages")
    private_before: float | None = None
    backwards: int | None = means("of the present step, where it was taken within one")
    looked_at: int | None = means("objects")
    complete: bool | None = means("the walk came to its end", key="all")
    took: float | None = means("seconds")
    rows: tuple[RetainedObject, ...] = means("what grew most; at the first census what holds most", key="list")


@schema
class TraceChange(Row):
    """What differed from an earlier trace."""

    kind: str = means("`scalar`, `shape`, `closure`")
    argument: str = ""
    count: int | None = None
    examples: tuple[str, ...] = ()


@schema
class Trace(ProcessEvent):
    """A function was traced or compiled."""

    KIND = "trace"

    what: str = means("`tf.function`, `keras`, `torch.compile`, `torch.jit.trace`")
    name: str = ""
    file: str = ""
    line: int | None = means("of the function, with its decorators; for Keras's own the user's call")
    def_line: int | None = means("of its `def`")
    function: str = ""
    code: str = ""
    count: int | None = means("of traces of what this line made")
    functions: int | None = means("how many function objects")
    owners: int | None = means("for how many models")
    seconds: float | None = means("spent on them")
    step: int | None = None
    changes: tuple[TraceChange, ...] = means("what differed from earlier traces")
    call: Place = means("the user's line that called it")
    maker: Place = means("that made the function, or compiled the model")
    use: Place = means("that reads the value which changed")
    limit: int | None = means("the compiler has given up after so many")
    graph: int | None = means("operations of the last graph")
    products: int | None = means("the matrix products in a large one")
    variables: int | None = means("its variables")
    jit: bool | None = means("compilations by XLA under `jit_compile`, counted apart: calls that met a new shape")
    usual: float | None = means("seconds of a call with a shape seen before, once there was one")
    draws: bool | None = means("the calls draw their data themselves, and shapes are known by their bytes")


@schema
class BusyLine(Place):
    """A line of the user's that a step spends its calls on."""

    calls: int | None = means("into a framework")
    ops: int | None = None


@schema
class StepLook(ProcessEvent):
    """One step was looked into; a look may end before the step does."""

    KIND = "anatomy"

    step: int | None = None
    steps: int | None = means("how many the look covered")
    nodes: int | None = means("of PyTorch's graph")
    kinds: tuple[tuple[str, int], ...] = means("`[name, count]` of the nodes")
    elements: float | None = means("numbers that the usual node gives")
    ops: int | None = means("run eagerly by TensorFlow")
    calls: int | None = means("of Python functions")
    lines: tuple[BusyLine, ...] = means("the user's busiest")
    watched: float | None = means("seconds that were looked at")
    took: float | None = means("seconds of the step")
    run_eagerly: bool | None = means("of a Keras model, like the next three")
    at_once: int | None = means("steps per execution")
    compiled: Place = means("the user's line")
    fit: Place = means("the user's line")


@schema
class TensorsSeen(Row):
    """Weights or gradients as they were read."""

    bad: int | None = means("how many are non-finite")
    of: int | None = means("of so many")
    first: str = means("the first bad one's name")
    last: str = means("the last bad one's name")
    max: float | str | None = means("the largest value, of any size")
    largest: str = means("the name of the one that has it")
    dtype: str = ""


@schema
class BadInput(Row):
    """The bad tensor of a batch."""

    name: str = ""
    bad: str = means("`nan`, `inf`, `outlier`")
    sample: int | None = means("in the batch")
    index: int | None = means("in the dataset")
    row: int | None = means("in an array given whole")
    samples: int | None = means("how many are bad")
    of: int | None = means("of so many")
    feature: int | None = means("the one that is bad in every sample")
    max: float | str | None = means("the largest value, of any size")
    usual: float | str | None = means("of the other values")
    dtype: str = ""


@schema
class Spike(Row):
    """A loss far above the rest."""

    step: int | None = None
    loss: float | str | None = None
    inputs: BadInput = BadInput()


@schema
class Slope(Row):
    """An operation whose slope may be infinite."""

    op: str = ""
    lines: tuple[Place, ...] = ()
    sure: bool | None = None


@schema
class NonfiniteLook(ProcessEvent):
    """A loss, gradient or weight that is non-finite, looked at once.

    What is non-finite is written as `"nan"`, `"inf"`. `file, line, function, code` are of the operation.
    """

    KIND = "nan"

    step: int | None = None
    what: str = means("`loss`, `gradient`, `parameter`, `input`: which went first")
    loss: float | str | None = None
    losses: tuple[float | str | None, ...] = means("the last 64 before it")
    norms: tuple[float | str | None, ...] = means("of the gradients")
    spikes: tuple[Spike, ...] = means("losses far above the rest")
    lr: float | None = None
    framework: str = ""
    params: TensorsSeen | None = means("the weights")
    grads: TensorsSeen | None = means("the gradients")
    inputs: BadInput | None = means("the bad tensor of the batch")
    largest: float | None = means("the largest value that went into the model, where all are finite")
    looked_at: int | None = means("tensors of the batch that were read")
    cut: bool | None = means("time was over")
    updated: bool | None = means("weights were read after that step's update")
    dtype: str = ""
    autocast: str = ""
    policy: str = ""
    scale: float | None = means("of the loss")
    unscaled: bool | None = None
    op: str = means("the operation that gave it")
    edge: str = means("what it met, in words")
    via: str = means("`replay`, `graph`")
    outside: bool | None = means("it came into the graph with a tensor that no gradient goes to")
    module: str = ""
    op_dtype: str = ""
    modules: tuple[Place, ...] = means("files of the script's own modules, where a step is compiled", key="list")
    finite_in_float32: bool | None = None
    file: str = ""
    line: int | None = None
    function: str = ""
    code: str = ""
    lines: tuple[Place, ...] = ()
    slopes: tuple[Slope, ...] = means("operations whose slope may be infinite")
    traced: tuple[str, ...] = means("the stack that autograd kept of the operation")


@schema
class FiniteAgain(ProcessEvent):
    """Losses are numbers again."""

    KIND = "nan-over"

    step: int | None = None


LOOKS: tuple[type[Event], ...] = (
    FitInput, DataThread, Feed, RetainedObjects, Trace, StepLook, NonfiniteLook, FiniteAgain,
)  # fmt: skip
