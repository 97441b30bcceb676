"""How the data of a Keras `fit` on TensorFlow come: what they come from, and whether the step has to wait for them.

Keras draws the data inside the traced step, so no clock of ours can separate its wait from its computing. But tf.data
keeps a model of each pipeline: how long its stages worked, and how many elements lie ready. It is read once a second,
just after a step: an empty buffer then means that the next step waits. What TensorFlow calls back into Python for
(`from_generator`, `py_function`) is timed where all such calls come through.
"""

import functools
import sys
import weakref
from threading import get_ident, get_native_id
from time import monotonic, monotonic_ns, thread_time_ns

from ....facts import framework_build
from ...core import stacks
from ...core.user_frame import is_user_file, place, user_frame
from ...observe import wrap
from ...observe.rosetta import is_translated

_KINDS = {
    "ArrayDataAdapter": "array",
    "TFDatasetAdapter": "tf.data",
    "PyDatasetAdapter": "pydataset",
    "GeneratorDataAdapter": "generator",
    "TorchDataLoaderAdapter": "loader",
}
_MAX_STAGES = 30
_MAX_FITS = 20  # that are reported
_MAX_THREADS = 300
_SHORT_STEP = 3_000_000  # ns: the data of steps this short are not worth a look
# Stages that work ahead of who draws from them.
_AHEAD = ("Prefetch", "MapAndBatch", "ParallelMap", "ParallelInterleave", "ParallelBatch", "ParallelFilter")


class Feed:
    """Reports an `input` event for each fit, and a `feed` event ever more rarely, with sums since the first fit."""

    def __init__(self, loop, tensorflow):
        self.loop = loop
        self.tf = tensorflow
        self.fits = 0
        self.iterator = None  # a weak reference to Keras's epoch iterator
        self.calls = self.busy = self.cpu = 0
        self.elements = self.looks = self.empty = 0
        self.work = 0.0
        self.ahead = ""
        self.last: tuple = (None, 0, 0.0)  # the pipeline that was read last: its number, elements and seconds
        self.steps = self.at = 0
        self.next_report = 0.0
        self.pause = 2.0
        self.refused = 0
        self.settings_reported = False
        self.threads = set()  # those in which data are made, by Python's own number

    def patch(self):
        """Put a clock around every call that TensorFlow makes into Python."""
        registry = sys.modules["tensorflow.python.ops.script_ops"].FuncRegistry
        inner, feed = registry.__call__, self

        @functools.wraps(inner)
        def __call__(functions, *args):  # noqa: N807
            begun, cpu = monotonic_ns(), thread_time_ns()
            if get_ident() not in feed.threads:
                feed.meet()
            try:
                result = inner(functions, *args)
            except BaseException as error:
                wrap.drop_own_frame(error)
                raise
            finally:
                feed.calls += 1
                feed.busy += monotonic_ns() - begun
                feed.cpu += thread_time_ns() - cpu
            return result

        registry.__call__ = __call__
        self.loop.rarely.append(self.look)
        self.loop.agent.hook.when_imported("keras.src.trainers.data_adapters.py_dataset_adapter", self._patch_workers)

    def _patch_workers(self, adapter):
        """Meet the threads in which Keras's own workers make batches."""
        inner, feed = adapter.get_index, self

        @functools.wraps(inner)
        def get_index(*args):
            if get_ident() not in feed.threads:
                feed.meet()
            return inner(*args)

        adapter.get_index = get_index

    def meet(self):
        """Report a thread that makes data by the kernel's number, so that it can be asked for its stack."""
        self.threads.add(get_ident())
        if len(self.threads) <= _MAX_THREADS:
            try:
                stacks.meet()
                self.loop.agent.say("data-thread", tid=get_native_id())
            except Exception as error:
                self.loop.guard.caught("data-thread", error)

    # --- what the data come from --------------------------------------------------------------------------

    def fit_begins(self, iterator, x):
        """Say once per fit what it is fed with."""
        self.iterator = weakref.ref(iterator) if iterator is not None else None
        self.steps, self.at = self.loop.beat.steps, monotonic_ns()
        self.next_report = self.next_report or monotonic() + self.pause
        self.fits += 1
        source = getattr(iterator, "data_adapter", None)
        kind = _KINDS.get(type(source).__name__, type(source).__name__)
        if self.fits > _MAX_FITS:
            return
        fields = {"kind": kind, "name": type(x).__name__, **place(user_frame(2))}
        for name in ("workers", "use_multiprocessing", "max_queue_size"):
            if kind == "pydataset":
                fields[name] = getattr(x, name, None)
        code = _code_of(kind, x)
        if code is not None:
            fields["source"] = {"file": code.co_filename, "line": code.co_firstlineno, "function": code.co_name}
        if kind == "tf.data":
            fields.update(_stages(x))
            self.loop.guard(self._batch)(x)
        self.loop.say("input", **fields)

    def _batch(self, dataset):
        """The size of a pipeline's batches, and their shapes: its elements are drawn where nobody can see them."""
        size = _batch_size(dataset)
        if not size or self.loop.batch == size:
            return
        specs = [spec for spec in self.tf.nest.flatten(dataset.element_spec) if hasattr(spec, "shape")][:8]
        shapes = [[[size if n is None else n for n in spec.shape.as_list()], spec.dtype.name] for spec in specs]
        self.loop.batch = size
        self.loop.say("batch", step=self.loop.beat.steps + 1, shapes=shapes)

    # --- how they come ------------------------------------------------------------------------------------

    def report_settings(self):
        """Say once how many threads the script has asked for, 0 for none, the device, and what the build knows."""
        tf, threading = self.tf, self.tf.config.threading
        fields = {
            "intra_op": threading.get_intra_op_parallelism_threads(),
            "inter_op": threading.get_inter_op_parallelism_threads(),
            "device": "gpu" if tf.config.list_logical_devices("GPU") else "cpu",
            "built_for": framework_build.of_tensorflow(tf),
        }
        if is_translated():
            fields["translated"] = True
        self.loop.say("settings", framework="tensorflow", **fields)

    def look(self):
        """Once a second, after a step: how full the pipeline is, and how long it has worked."""
        if not self.settings_reported:
            self.settings_reported = True
            self.report_settings()
        loop, now = self.loop, monotonic_ns()
        steps, since = loop.beat.steps - self.steps, now - self.at
        self.steps, self.at = loop.beat.steps, now
        if loop.in_fit and steps and since / steps >= _SHORT_STEP and self.refused < 3:
            self._look_at_model()
        if self.next_report and monotonic() >= self.next_report:
            self.report()

    def _look_at_model(self):
        iterator = self.iterator() if self.iterator is not None else None
        current = getattr(iterator, "_current_iterator", None)
        if current is None:
            return
        try:
            model = self.tf.data.experimental.get_model_proto(current)
        except Exception:
            self.refused += 1  # autotuning is off, or the data are distributed: there is no such model
            return
        nodes = model.nodes
        root = nodes[model.output]
        elements, work, chain = root.num_elements, 0.0, []
        at = model.output
        for node in nodes.values():
            parallel = max([p.value for p in node.parameters if p.name == "parallelism"] or [1.0])
            work += node.processing_time / max(parallel, 1.0) * 1e-9
        while at in nodes and len(chain) < _MAX_STAGES:
            chain.append(nodes[at])
            at = nodes[at].inputs[0] if nodes[at].inputs else -1
        number, known, worked = self.last
        if number != id(current) or elements < known:
            known, worked = 0, 0.0  # a pipeline begins anew with each epoch
        self.last = (id(current), elements, work)
        self.elements += elements - known
        self.work += max(0.0, work - worked)
        buffers = [node for node in chain if node.name in _AHEAD]
        self.ahead = buffers[0].name if buffers else ""
        self.looks += 1
        self.empty += not (buffers and buffers[0].buffered_elements)

    def report(self):
        """Say what has come so far."""
        self.pause *= 1.6
        self.next_report = monotonic() + self.pause
        fields: dict = {"calls": self.calls, "busy": round(self.busy * 1e-9, 4), "cpu": round(self.cpu * 1e-9, 4)}
        if self.looks:
            fields.update(elements=self.elements, work=round(self.work, 4), looks=self.looks, empty=self.empty)
            fields["ahead"] = self.ahead
        self.loop.say("feed", step=self.loop.beat.steps, **fields)

    def fit_ends(self):
        if self.next_report and self.calls + self.looks and self.fits <= _MAX_FITS:
            self.report()


def _code_of(kind, x):
    """The user's own code that makes the batches, where it can be had without calling anything."""
    if kind == "generator":
        code = getattr(x, "gi_code", None)
    elif kind == "pydataset":
        code = getattr(getattr(type(x), "__getitem__", None), "__code__", None)
    else:
        code = None
    return code if code is not None and is_user_file(code.co_filename) else None


def _batch_size(dataset):
    """What the last `batch` of a pipeline was asked for; 0 where there is none."""
    at = dataset
    for _ in range(_MAX_STAGES):
        size = getattr(at, "_batch_size", None)
        if size is not None:
            return int(size)
        at = getattr(at, "_input_dataset", None)
        if at is None:
            break
    return 0


def _stages(dataset):
    """The stages of a tf.data pipeline from its end: whether it works ahead, and the user's functions in it."""
    names, functions, at = [], [], dataset
    while at is not None and len(names) < _MAX_STAGES:
        name = type(at).__name__.strip("_").replace("Dataset", "")
        names.append(name)
        function = getattr(getattr(at, "_map_func", None), "_func", None)
        code = getattr(function, "__code__", None)
        if code is not None and is_user_file(code.co_filename):
            functions.append({"stage": name, "file": code.co_filename, "line": code.co_firstlineno})
        at = getattr(at, "_input_dataset", None)
    outermost = next((name for name in names if name not in ("Options", "Take", "Repeat")), "")
    return {"stages": names, "prefetch": outermost == "Prefetch", "functions": functions}
