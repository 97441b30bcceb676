"""The first loss of a Keras or TensorFlow loop that is non-finite: one bounded look at weights and data.

A step of these frameworks is mostly one compiled function: when its loss is seen, the weights have been updated with
it. What can still be seen is the data (arrays given to `fit`, the tensors behind a dataset, a step function's
arguments), the losses before, the dtype policy and the rate. With an eager tape the loss comes before the update.
Datasets are never iterated: only tensors that one holds already are read.
"""

import sys

from ..core import frame_locals
from ..core.user_frame import is_user_file
from ..observe import numpy_finite, source_calls
from ..observe.loss_history import History, short
from ..torch.nonfinite.finite import Clock

_MAX_SECONDS = 0.5  # of one look
_MAX_FRAMES = 60
_MAX_WEIGHTS = 50_000_000  # elements that are read
_SMALL_TENSOR = 4096  # elements: cheap enough to be read at every step
_MAX_STAGES = 12  # of a dataset
_MAX_FILES = 20
# Names under which Keras and our own wrappers hold the data of a step.
_DATA = ("x", "y", "data", "args", "sample_weight", "inputs", "batch", "targets")


def _own_modules():
    """The files of the script's own modules: of a compiled step only their text tells which operations there are."""
    files = [vars(module).get("__file__") for module in list(sys.modules.values()) if type(module) is type(sys)]
    own = [file for file in files if isinstance(file, str) and file.endswith(".py") and is_user_file(file)]
    return own[:_MAX_FILES]


class NanWatch:
    """Sees the losses of a loop; looks at the first that is non-finite."""

    def __init__(self, agent, loop):
        self.agent = agent
        self.loop = loop
        self.guard = agent.guard
        self.history = History(lambda: agent.say("nan-over", step=loop.beat.steps + 1))
        self.last = None  # batch and mean of the running mean before

    def mean(self, batch, mean):
        """A running mean over an epoch, as Keras reports it: the batch's own loss is what it adds."""
        known, self.last = self.last, (batch, mean)
        if mean - mean != 0.0:
            self.loss(mean, "keras")
            return
        if known is not None and batch > known[0] and known[1] - known[1] == 0.0:
            n = batch - known[0]
            own = (mean * (batch + 1) - known[1] * (known[0] + 1)) / n
            # The difference of two large sums has few digits.
            mean = own if own > 1e-6 * abs(mean) or mean < 0 else mean
        self.loss(mean, "keras")

    def loss(self, loss, source, variables=None, depth=1):
        """A loss that is known; `variables` are those that it is about to change."""
        history = self.history
        if loss - loss == 0.0:
            history.add(loss)
            if loss > history.alarm and history.wants_spike():
                history.spikes.append({"step": self.loop.beat.steps + 1, "loss": short(loss)})
            return
        if history.wants_look():
            self._look("loss", loss, source, variables, sys._getframe(depth + 1))
        if source == "tensorflow":
            self._tape_is_nonfinite()

    def _tape_is_nonfinite(self):
        if self.loop.healer is not None:
            self.loop.healer.tape_is_nonfinite()

    def gradients(self, gradients, variables):
        """One small gradient of an eager tape, before it is applied."""
        for gradient in gradients if isinstance(gradients, (list, tuple)) else ():
            if gradient.__class__ is not self.loop.eager_tensor:
                continue
            if gradient.shape.num_elements() <= _SMALL_TENSOR and gradient.dtype.is_floating:
                total = float(gradient._numpy().sum())
                if total - total != 0.0:
                    if self.history.wants_look():
                        self._look("gradient", self.loop.loss, "tensorflow", variables, sys._getframe(2))
                    self._tape_is_nonfinite()
                return

    def rarely(self):
        """Once a second: weights may stop being numbers while a loss still is one (a ReLU turns NaN into 0)."""
        optimizer = self.loop.optimizer() if self.loop.optimizer is not None else None
        if optimizer is None or not self.loop.cpu_only or not self.history.well:
            return
        for variable in getattr(optimizer, "_trainable_variables", ())[:8]:
            if 0 < _count(variable) <= _SMALL_TENSOR:
                array = numpy_finite.as_array(variable)
                total = float(array.sum()) if array is not None and array.dtype.kind == "f" else 0.0
                if total - total != 0.0 and self.history.wants_look():
                    self.history.numb = True
                    self._look("parameter", self.loop.loss, "keras", None, sys._getframe(1))
                return

    # --- the look -----------------------------------------------------------------------------------------

    def _look(self, what, loss, source, variables, frame):
        try:
            fields = {"step": self.loop.beat.steps + 1, "what": what, "loss": short(loss), "framework": source}
            fields.update(self.history.fields())
            fields.update(self._seen(variables, frame, updated=variables is None))
            fields["list"] = [{"file": file} for file in _own_modules()]
            self.agent.say("nan", **fields)
        except Exception as error:
            self.guard.caught("nan", error)

    def _seen(self, variables, frame, updated):
        clock = Clock(_MAX_SECONDS)
        found = {"updated": updated} if updated else {}
        rate = self.loop.lr
        if rate - rate == 0.0:
            found["lr"] = short(rate)
        model = self._model(frame)
        found.update(self._precision(model))
        if variables is None and model is not None:
            variables = model.trainable_variables
        named = [(getattr(v, "path", None) or getattr(v, "name", "?"), v) for v in _listed(variables)]
        if self.loop.cpu_only and sum(_count(v) for _, v in named) <= _MAX_WEIGHTS:
            found["params"] = numpy_finite.of_named(named, clock)
        data = self._data(frame, clock)
        found["looked_at"] = len(data)
        if any("cut" in one for one in data):
            found["cut"] = True
        worst = next((one for one in data if one.get("bad") in ("nan", "inf")), None)
        worst = worst or next((one for one in data if one.get("bad")), None)
        if worst is not None:
            found["inputs"] = worst
            if worst["bad"] != "outlier":
                found["what"] = "input"
        elif given := [one["max"] for one in data if one["name"].partition("[")[0] in _DATA]:
            found["largest"] = max(given)
        if worst is None and not updated and found.get("params", {}).get("bad"):
            found["what"] = "parameter"
        return found

    def _model(self, frame):
        """The model whose method is under way, else the one that owns the optimizer's variables."""
        depth = 0
        while frame is not None and depth < _MAX_FRAMES:
            depth += 1
            code = frame.f_code
            if code.co_name in ("fit", "_trained", "train_on_batch") and not is_user_file(code.co_filename):
                for found in frame_locals.read(frame, "self", "model").values():
                    if hasattr(found, "trainable_variables") and hasattr(found, "layers"):
                        return found
            frame = frame.f_back
        optimizer = self.loop.optimizer() if self.loop.optimizer is not None else None
        if optimizer is not None and hasattr(optimizer, "_trainable_variables"):
            return _Variables(optimizer)
        return None

    def _precision(self, model):
        policy = getattr(model, "dtype_policy", None)
        found: dict = {}
        layers = getattr(model, "layers", None) or ()
        if any(getattr(layer, "compute_dtype", "") == "float16" for layer in layers[:200]):
            found["dtype"] = "float16"
        if policy is not None:
            found["policy"] = str(getattr(policy, "name", policy))
        elif "keras" in sys.modules:
            try:
                found["policy"] = sys.modules["keras"].config.dtype_policy().name
            except Exception:
                pass
        optimizer = getattr(model, "optimizer", None)
        scale = getattr(optimizer, "dynamic_scale", None)
        if scale is not None and self.loop.cpu_only:
            array = numpy_finite.as_array(scale)
            if array is not None:
                found["scale"] = short(float(array))
        elif found.get("dtype") == "float16":
            found["unscaled"] = True
        return found

    # --- the data -----------------------------------------------------------------------------------------

    def _data(self, frame, clock):
        found, seen = [], set()
        for name, value in self._variables(frame):
            if id(value) in seen or len(found) >= 24 or clock.over():
                continue
            seen.add(id(value))
            if not self.loop.cpu_only and not type(value).__module__.startswith("numpy"):
                continue
            array = numpy_finite.as_array(value)
            described = numpy_finite.describe(name, array, clock) if array is not None else None
            if described is not None:
                found.append(described)
        return found

    def _variables(self, frame):
        """The tensors that the functions under way hold: near the line in the user's, by known names in others."""
        depth = 0
        while frame is not None and depth < _MAX_FRAMES:
            depth += 1
            code = frame.f_code
            if is_user_file(code.co_filename):
                near = source_calls.names_near(frame)
                names = [n for n in dict.fromkeys((*code.co_varnames, *code.co_names, *code.co_cellvars)) if n in near]
            else:
                names = [name for name in _DATA if name in code.co_varnames]
            for name, value in frame_locals.read(frame, *names).items() if names else ():
                yield from _tensors(name, value, 0)
            frame = frame.f_back


class _Variables:
    """Stands for a model of which only the optimizer is known."""

    def __init__(self, optimizer):
        self.trainable_variables = optimizer._trainable_variables
        self.optimizer = optimizer


def _tensors(name, value, depth):
    """Arrays and tensors within what a name holds: containers, datasets that hold tensors, sequences and generators."""
    if value is None or depth > 3 or isinstance(value, (str, bytes, int, float)):
        return
    if hasattr(value, "shape") and hasattr(value, "dtype") and not hasattr(value, "trainable"):
        yield name, value
    elif isinstance(value, (tuple, list)):
        for at, one in enumerate(value[:8]):
            yield from _tensors("%s[%d]" % (name, at), one, depth + 1)
    elif isinstance(value, dict):
        for key, one in list(value.items())[:16]:
            yield from _tensors("%s[%r]" % (name, key), one, depth + 1)
    elif type(value).__name__ in ("DataFrame", "Series"):
        yield name, value
    elif hasattr(value, "element_spec"):
        yield from _of_dataset(name, value)
    elif hasattr(value, "gi_frame") and value.gi_frame is not None:
        arrays = {key: one for key, one in frame_locals.read(value.gi_frame).items() if hasattr(one, "dtype")}
        for key, one in arrays.items():
            yield "%s.%s" % (name, key), one
    elif hasattr(value, "__getitem__") and hasattr(value, "__dict__") and is_user_file(_file_of(type(value))):
        for key, one in list(vars(value).items())[:16]:
            if hasattr(one, "dtype") and hasattr(one, "shape"):
                yield "%s.%s" % (name, key), one


def _file_of(cls):
    return getattr(sys.modules.get(cls.__module__), "__file__", None) or "<frozen>"


def _of_dataset(name, dataset):
    """The tensors that a dataset was made of; it is not iterated, since that would move its shuffling on."""
    for _ in range(_MAX_STAGES):
        tensors = getattr(dataset, "_tensors", None)
        if tensors:
            for at, tensor in enumerate(tensors[:8]):
                yield "%s[%d]" % (name, at), tensor
            return
        dataset = getattr(dataset, "_input_dataset", None)
        if dataset is None:
            return


def _listed(variables):
    if variables is None:
        return []
    return list(variables)[:2000] if isinstance(variables, (list, tuple)) else [variables]


def _count(variable):
    total = 1
    for size in getattr(variable, "shape", ()) or ():
        total *= int(size or 0)
    return total
