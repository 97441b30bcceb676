"""Keras: a backup at the end of each epoch, where the script makes none itself by `BackupAndRestore`.

It lies in the run's own folder and goes with it. The list of callbacks, which `observe/fit` stands around, says when:
no callback of ours is in it, and no method of the script's is called. A backup is complete or it is not there. With
the variables of the model and of all its optimizers go the history and what callbacks such as EarlyStopping have
counted, so that a script reads in the end what it would have read. Keeps: equivalent, since data are drawn and
shuffled anew. At most a tenth of the time is spent on it.
"""

import hashlib
import math
import os
import pickle
import random
import shutil
import sys
from functools import partial
from time import monotonic
from types import FunctionType, MethodType

from ...core import frame_locals
from ...core.user_frame import is_library_kind, is_user_file
from ...heal import state_owner as whose

_OF_THE_TIME = 0.1
_KEPT, _OF_THE_DISK = 4 << 30, 0.1  # bytes of weights of fits that are done, and the share of what is free
_BECAUSE = "data are drawn and shuffled anew"
_DATA = ("x", "y", "sample_weight", "validation_data")
_GIVEN = ("batch_size", "epochs", "shuffle", "class_weight", "initial_epoch", "steps_per_epoch", "validation_steps",
          "validation_batch_size", "validation_freq")  # fmt: skip
_SEEN = 1 << 12  # elements of each weight that are looked at
_NAMES = ("name", "_name", "_path", "_parent_path")
_VALUES = (bool, int, float, str, bytes, type(None))
_CONTAINERS = (list, tuple, dict, set)
_MAX_ITEMS, _MAX_BYTES = 1 << 16, 1 << 16  # of what a callback has gathered, and of an array


class Backups:
    """Those of this process, where there is a folder for them."""

    def __init__(self, agent):
        self.agent, self.notes = agent, whose.Checkpoints(agent, "keras")
        self.next = 0.0  # when the next one may be written: all fits together keep to their share of the time
        self.begun = self.declined = False
        self.sizes = None  # bytes of those on the disk by their path, the oldest first

    def begin(self, callbacks, model, frame):
        """A `fit` of Keras' own begins, in this frame; None where it can't be known again."""
        given = frame_locals.read(frame, *_DATA, *_GIVEN)
        if self.notes.path is None or not given:
            return None
        key, proof = _whose(model, given, callbacks, whose.place(frame))
        training = self.notes.trainings.begin(key, proof, whose.place(frame))
        return Backup(self, training, callbacks, model, _shapes(given.get("x")))

    def write(self, path, make):
        """Write a backup, complete or not at all; False where it is too soon, or there is no room for it."""
        begun = monotonic()
        if begun < self.next:
            return False
        saved, size, values = make()
        folder = os.path.dirname(path)
        os.makedirs(folder, exist_ok=True)
        try:
            if size > _OF_THE_DISK * shutil.disk_usage(folder).free:
                self._decline_for_disk()
                return False
            with open(path + ".new", "wb") as file:
                pickle.dump(saved, file, 4)
                for value in values:  # one at a time: all of them would be the model twice
                    pickle.dump(value, file, 4)
            os.replace(path + ".new", path)
        except BaseException:
            if os.path.exists(path + ".new"):
                os.unlink(path + ".new")
            raise
        finally:
            # The first one also imports what it is written with: that says nothing of the others.
            self.next, self.begun = monotonic() + (monotonic() - begun) / _OF_THE_TIME if self.begun else 0.0, True
        self._bound(path)
        return True

    def _decline_for_disk(self):
        if not self.declined:
            self.declined = True
            step = self.agent.beat.steps + 1
            self.agent.say("declined", act="resume", step=step, because="a backup would take over a tenth of the disk")

    def _bound(self, present):
        """Drop the weights of the oldest fits, where all of them are too much."""
        folder = os.path.dirname(os.path.dirname(present))
        if self.sizes is None:
            paths = [os.path.join(folder, name, "backup") for name in os.listdir(folder) if name.startswith("keras-")]
            paths = sorted((path for path in paths if os.path.exists(path)), key=os.path.getmtime)
            self.sizes = {path: os.path.getsize(path) for path in paths}
        self.sizes.pop(present, None)
        self.sizes[present] = os.path.getsize(present)  # as the newest
        over = sum(self.sizes.values()) - min(_KEPT, int(_OF_THE_DISK * shutil.disk_usage(folder).free))
        for path in list(self.sizes):
            if over > 0 and path != present:
                over -= self.sizes.pop(path)
                os.unlink(path)


class Backup:
    """The state of one `fit`. It refers to nothing of the script's: that is given with each call."""

    def __init__(self, backups, training, callbacks, model, shapes):
        self.backups, self.agent, self.notes = backups, backups.agent, backups.notes
        self.training, self.shapes = training, shapes
        self.folder = os.path.join(os.path.dirname(self.notes.path), "keras-" + training.number)
        self.is_theirs = any("BackupAndRestore" in [cls.__name__ for cls in type(one).__mro__] for one in callbacks)
        self.steps = _steps(model)  # before any callback has loaded anything
        self.at_begin = []
        self.begun = False  # by an attempt before
        self.epochs, self.past = [], {}

    def restore(self, callbacks, model):
        """After the script's callbacks have had their say."""
        self.at_begin = [_digests(one) for one in callbacks.callbacks]
        if self.is_theirs:
            at = getattr(model, "_initial_epoch", None)
            if at and self.notes.again:
                self._report(model, "goes on after epoch %d, from the script's own backup" % at)
            return
        path = os.path.join(self.folder, "backup")
        if not self.training.again or not os.path.exists(path):
            return
        with open(path, "rb") as file:
            saved = pickle.load(file)
            if not saved["variables"] or not self._load(model, saved, file):
                return
        self.begun, self.epochs, self.past = True, saved["epochs"], saved["history"]
        model._initial_epoch = saved["epoch"]
        for callback, known in zip(callbacks.callbacks, saved["callbacks"]):  # noqa: B905 - newer than 3.9
            vars(callback).update(known)
            _write_log(callback)
        history = getattr(callbacks, "_history", None)
        if history is not None:
            history.history.update({name: list(values) for name, values in self.past.items()})
            history.epoch = list(self.epochs)
        random.setstate(saved["python"])
        if saved["numpy"] is not None:
            sys.modules["numpy"].random.set_state(saved["numpy"])
        self._report(model, "goes on after epoch %d, from its backup" % saved["epoch"], saved["steps"])

    def epoch_begins(self, model):
        """The `fit` knows by now where it begins; the next one of this model begins where it is told."""
        if self.begun:
            model._initial_epoch = None

    def epoch_ended(self, callbacks, model, epoch, logs):
        """After the script's callbacks, so that what those do at the end of an epoch is done."""
        self.epochs.append(epoch)
        for name, value in (logs or {}).items():
            self.past.setdefault(name, []).append(value)
        if self.is_theirs or self._write(callbacks, model, epoch + 1):
            self.notes.report_state(_steps(model), epoch + 1)

    def over(self, callbacks, model, epochs):
        """A last one, as of all epochs: a fit that is done is not done again when a later one is killed.

        Of many short fits not each is kept: those are done again.
        """
        self.epoch_begins(model)
        if not self.is_theirs and self.epochs:
            self._write(callbacks, model, max(epochs, self.epochs[-1] + 1))
        self.notes.trainings.over(self.training)

    # --- the state ----------------------------------------------------------------------------------------

    def _load(self, model, saved, file):
        """Put the weights back; where that fails all is as the script made it."""
        if not model.built and (self.shapes is None or self.shapes != saved["shapes"] or saved["build"] is None):
            # To build it by what was saved would make another model of it, where the data have another shape.
            return self._decline("the model is not built yet, and the shape of its data can't be told")
        before = []
        try:
            if not model.built:
                model.build_from_config(saved["build"])
            before = [(variable, _read(variable).copy()) for variable in _variables(model)]
            for optimizer, places in zip(_optimizers(model), saved["optimizers"]):  # noqa: B905
                if places and not optimizer.built:
                    optimizer.build([model.variables[place] for place in places])
            variables = _variables(model)
            if _structure(variables) != saved["structure"]:
                raise ValueError("its weights have other shapes")
            values = [pickle.load(file) for _ in variables]
            for variable, value in zip(variables, values):  # noqa: B905
                variable.assign(value)
            return True
        except Exception as error:
            for variable, value in before:
                variable.assign(value)
            return self._decline("the backup does not fit the model: %s" % str(error)[:200])

    def _write(self, callbacks, model, epoch):
        return self.backups.write(os.path.join(self.folder, "backup"), lambda: self._state(callbacks, model, epoch))

    def _state(self, callbacks, model, epoch):
        """What goes into a backup: the plain part, about how many bytes the variables take, and the values of them."""
        numpy, variables = sys.modules.get("numpy"), _variables(model)
        places = {id(variable): place for place, variable in enumerate(model.variables)}
        built = [getattr(one, "_trainable_variables", ()) for one in _optimizers(model)]
        saved = {
            "epoch": epoch,
            "epochs": self.epochs,
            "steps": _steps(model) - self.steps,
            "variables": len(variables),
            "optimizers": [[places[id(one)] for one in own if id(one) in places] for own in built],
            "build": _build_config(model),
            "shapes": self.shapes,
            "structure": _structure(variables),
            "history": self.past,
            "callbacks": [_changed(*pair) for pair in zip(callbacks.callbacks, self.at_begin)],  # noqa: B905
            "python": random.getstate(),
            "numpy": numpy.random.get_state() if numpy is not None else None,
        }
        return saved, sum(map(_bytes_of, variables)), map(_read, variables)

    # --- reports ------------------------------------------------------------------------------------------

    def _decline(self, because):
        self.agent.say("declined", act="resume", step=self.agent.beat.steps + 1, because=because)
        return False

    def _report(self, model, text, saved=0):
        now = _steps(model)
        self.notes.report_resumed(now, max(0, saved, now - self.steps), text, _BECAUSE)


# --- the variables: of the model, and of whatever optimizers it or a layer of it holds


def _variables(model):
    held = [one for one in _held(model) if _is_raw(one)]
    return [*model.variables, *held, *(variable for one in _optimizers(model) for variable in one.variables)]


def _optimizers(model):
    return [one for one in _held(model) if _is_optimizer(one)]


def _is_optimizer(thing):
    return "BaseOptimizer" in [cls.__name__ for cls in type(thing).__mro__]


def _held(model):
    """What the attributes of a model and its layers hold, once each, also in a list or dict."""
    found = {}
    for layer in model._flatten_layers():
        for value in vars(layer).values():
            if isinstance(value, (list, dict)) and _is_own(value):
                found.update((id(one), one) for one in (value.values() if isinstance(value, dict) else value))
            else:
                found[id(value)] = value
    return list(found.values())


def _is_raw(thing):
    """A variable of TensorFlow's own, which Keras does not count among a layer's."""
    return type(thing).__module__.startswith("tensorflow.") and hasattr(type(thing), "assign")


def _read(variable):
    """What a variable holds, as an array; Keras's own way to ask warns of PyTorch's tensors."""
    raw = getattr(variable, "_value", variable)
    if not hasattr(raw, "detach"):
        return raw.numpy() if hasattr(raw, "numpy") else variable.numpy()
    there = raw.detach().cpu()
    return (there.float() if there.is_floating_point() and there.element_size() < 4 else there).numpy()


def _bytes_of(variable):
    return 4 * math.prod(length or 1 for length in variable.shape)


def _structure(variables):
    return [(tuple(variable.shape), str(variable.dtype)) for variable in variables]


def _steps(model):
    """Steps since the optimizer was made."""
    iterations = getattr(model.optimizer, "iterations", None)
    return 0 if iterations is None else int(_read(iterations))


def _build_config(model):
    is_own = type(model).get_build_config.__module__.startswith("keras.")
    return model.get_build_config() if is_own else None


def _shapes(x):
    """The shape of one sample; None where only drawing one would show it."""
    if isinstance(x, (list, tuple)):
        return [_shapes(one) for one in x]
    if isinstance(x, dict):
        return {name: _shapes(one) for name, one in x.items()}
    if not is_library_kind(x):
        return None
    spec = getattr(x, "element_spec", None)
    if spec is not None:
        return repr(spec)
    shape = getattr(x, "shape", None)
    return None if shape is None else tuple(shape[1:])


# --- what callbacks have counted: their own numbers, words and lists that are others than at the beginning


def _digests(callback):
    return {name: _digest(value) for name, value in vars(callback).items() if _is_plain(value)}


def _digest(value):
    return hashlib.blake2b(pickle.dumps(value, 4)).digest()


def _changed(callback, at_begin):
    found = {
        name: value
        for name, value in vars(callback).items()
        if _is_plain(value) and _digest(value) != at_begin.get(name)
    }
    log = getattr(callback, "csv_file", None)
    if "CSVLogger" in [cls.__name__ for cls in type(callback).__mro__] and log is not None and not callback.append:
        with open(callback.filename, newline="") as file:
            found["_holter_log"] = file.read()
    return found


def _write_log(callback):
    """A CSVLogger has begun its file anew: what was in it is there again."""
    log = vars(callback).pop("_holter_log", None)
    if log is not None:
        callback.csv_file.write(log)
        callback.csv_file.flush()
        callback.append_header = False


def _is_plain(value, deep=0):
    kind = type(value)
    if kind in _VALUES:
        return True
    if kind.__module__ == "numpy" and hasattr(value, "dtype"):
        return value.nbytes <= _MAX_BYTES and not value.dtype.hasobject  # what is larger are data, and no count
    if kind not in _CONTAINERS or deep > 3 or len(value) > _MAX_ITEMS:
        return False
    inside = [*value, *value.values()] if kind is dict else value
    return all(_is_plain(one, deep + 1) for one in inside)


# --- which fit it is


def _whose(model, given, callbacks, at):
    """What a fit is known again by, and what proves it to be the same to the bit: None where not all can be seen."""
    layers, numpy = list(model._flatten_layers()), sys.modules["numpy"]
    # A layer or model of one's own may hold anything: that two of them do the same can't be seen, nor may it be asked.
    is_seen = all(_is_own(layer) and all(map(_is_own, vars(layer).values())) for layer in layers)
    if is_seen:
        settings = [whose.plain(layer.get_config()) for layer in layers if not hasattr(layer, "train_step")]
    else:
        settings = [_words_of(layer) for layer in layers]
    compiled = getattr(getattr(model, "_compile_config", None), "config", None) or {}
    compiled = [(name, _settings(compiled[name])) for name in sorted(compiled)]
    data = [whose.content(given.get(name), numpy) for name in _DATA]
    key = (
        at,
        [(type(layer).__name__, whose.numbers_of(layer)) for layer in layers],
        _graph(model),
        _structure(_variables(model)) if model.built else None,
        settings,
        compiled,
        whose.plain(getattr(model, "loss", None)),
        [_rate(one) for one in _optimizers(model)],
        whose.plain({name: given.get(name) for name in _GIVEN}, words=False),
        [(type(one).__name__, whose.numbers_of(one), _shown(one, words=False)) for one in callbacks],
        [_kind_of(given.get(name)) for name in _DATA],
        data,
    )
    if not is_seen or None in data or any(one is None for _, one in compiled) or not all(map(_is_all_shown, callbacks)):
        return key, None
    weights = [_some_of(_read(variable)) for variable in _variables(model)] if model.built else None
    return key, whose.digest(whose.random_now(), weights, [_shown(one) for one in callbacks])


def _shown(callback, words=True):
    """What of a callback's attributes can be told from their value: numbers, lists of them, functions."""
    held = ((name, value) for name, value in vars(callback).items() if whose.is_shown(value))
    return [(name, whose.plain(value, words)) for name, value in sorted(held, key=lambda pair: pair[0])]


def _is_all_shown(callback):
    """Tell whether nothing else is in it than that and what a library's callback holds of its own."""
    others = [value for value in vars(callback).values() if not whose.is_shown(value)]
    return _is_own(callback) and all(_is_own(value) and not hasattr(value, "nbytes") for value in others)


def _is_own(thing):
    """Tell whether a thing is of a library's making, and not a function or object of the script's."""
    if isinstance(thing, partial):
        return all(map(_is_own, (thing.func, *thing.args, *thing.keywords.values())))
    if isinstance(thing, MethodType):
        return _is_own(thing.__func__) and _is_own(thing.__self__)
    module = (thing.__module__ if isinstance(thing, FunctionType) else type(thing).__module__) or "__main__"
    file = getattr(sys.modules.get(module), "__file__", None)
    return module != "__main__" and (file is None or not is_user_file(file))


def _settings(thing):
    """What `compile` was given; None for what the script made itself, which can't be seen."""
    if isinstance(thing, (list, tuple)):
        found = [_settings(one) for one in thing]
        return None if None in found else found
    if isinstance(thing, dict):
        found = [(str(name), _settings(one)) for name, one in thing.items()]
        return None if any(one is None for _name, one in found) else found
    if isinstance(thing, (FunctionType, partial)) or not hasattr(type(thing), "get_config"):
        return whose.plain(thing) if whose.is_shown(thing) else None
    if _is_own(thing) and all(map(_is_own, vars(thing).values())):
        if _is_optimizer(thing):  # whose own way to ask for its rate warns of PyTorch's tensors
            return type(thing).__name__, whose.numbers_of(thing), _rate(thing)
        return whose.plain(thing.get_config())
    return None


def _words_of(layer):
    """The numbers and words among the attributes of a layer, but for its names, which Keras counts."""
    own = {name: repr(value) for name, value in vars(layer).items() if name not in _NAMES and _is_plain(value)}
    return sorted((name, value) for name, value in own.items() if layer.name not in value)


def _graph(model):
    """Which operation of a functional model takes what from which: not all of them are layers."""
    operations = list(vars(model).get("_operations") or ())
    places = {id(one): place for place, one in enumerate(operations)}
    found = []
    for one in operations:
        takes = [places.get(id(before.operation)) for node in one._inbound_nodes for before in node.parent_nodes]
        found.append((type(one).__name__, takes))
    return found


def _rate(optimizer):
    rate = vars(optimizer).get("_learning_rate")
    if hasattr(type(rate), "assign"):
        return repr(float(_read(rate)))
    return whose.plain(vars(rate)) if hasattr(rate, "__dict__") else None


def _kind_of(data):
    spec = getattr(data, "element_spec", None) if is_library_kind(data) else None
    return (type(data).__name__, repr(spec)) if spec is not None else whose.plain(data, words=False)


def _some_of(values):
    flat = values.reshape(-1)
    return flat[:: max(1, flat.size // _SEEN)].tobytes()
