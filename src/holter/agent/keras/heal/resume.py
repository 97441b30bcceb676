"""Keras: a backup at the end of each epoch, as `BackupAndRestore` makes it, where the script makes none itself.

It lies in the run's own folder and goes with it. Two things are added: a backup is complete or it is not there, and
with the weights go the history and what callbacks such as EarlyStopping have counted, so that a script reads in the end
what it would have read. Keeps: equivalent, since data are drawn and shuffled anew. At most a tenth of the time is
spent on it.
"""

import functools
import inspect
import os
import pickle
import random
import shutil
import sys
from time import monotonic

from ...heal import state_owner as whose
from ...heal.checkpoints import Checkpoints

_OF_THE_TIME = 0.1
_KEPT, _OF_THE_DISK = 4 << 30, 0.1  # bytes of weights of fits that are done, and the share of what is free
_COUNTED = ("wait", "best", "best_epoch", "best_weights", "stopped_epoch", "cooldown_counter", "_current_epoch")
_BECAUSE = "data are drawn and shuffled anew"
_DATA = ("x", "y", "sample_weight", "validation_data")
_NOT_GIVEN = (*_DATA, "self", "callbacks", "verbose")
_SEEN = 1 << 12  # elements of each weight that are looked at


def arm(agent, keras, owner):
    """Stand around `fit` of the class that defines it."""
    inner = owner.fit
    signature = inspect.signature(inner)
    notes = Checkpoints(agent, "keras")
    made = []

    @functools.wraps(inner)
    def fit(model, *args, **kwargs):
        try:
            bound = signature.bind(model, *args, **kwargs)
            theirs = bound.arguments.get("callbacks")
            if isinstance(theirs, keras.callbacks.CallbackList):
                because = "the script brings a CallbackList of its own"
                agent.say("declined", act="backup", step=agent.beat.steps + 1, because=because)
            elif notes.path is not None:
                if not made:
                    made.append(_backup_class(keras))
                listed = theirs if isinstance(theirs, (list, tuple)) else [theirs] if theirs is not None else []
                at = whose.place(sys._getframe(1))
                key, proof = _whose(model, bound.arguments, listed, at)
                training = notes.trainings.begin(key, proof, at)
                shapes = agent.guard(_shapes)(bound.arguments.get("x"))
                bound.arguments["callbacks"] = [*listed, made[0](agent, notes, listed, training, shapes)]
                args, kwargs = bound.args[1:], bound.kwargs
        except Exception as error:
            agent.guard.caught("backup", error)
        return inner(model, *args, **kwargs)

    owner.fit = fit


def _backup_class(keras):
    class Backup(keras.callbacks.Callback):  # type: ignore[name-defined, misc]
        """The last of the script's callbacks, so that what those do at the end of an epoch is done."""

        def __init__(self, agent, notes, others, training, shapes):
            super().__init__()
            self.agent, self.notes, self.others = agent, notes, others
            self.training, self.shapes = training, shapes
            self.folder = os.path.join(os.path.dirname(notes.path), "keras-" + training.number)
            self.own = any("BackupAndRestore" in [cls.__name__ for cls in type(one).__mro__] for one in others)
            self.begun = 0  # epochs of the attempts before
            self.past = {}
            self.next = None

        def set_model(self, model):
            super().set_model(model)
            self.steps = self.agent.guard(_steps)(model) or 0  # before any callback has loaded anything

        def on_train_begin(self, logs=None):  # noqa: ARG002 - Keras's signature
            if self.training.again or (self.own and self.notes.again):
                self.agent.guard(self._restore)()

        def on_epoch_end(self, epoch, logs=None):
            self.agent.guard(self._keep)(epoch + 1, dict(logs or {}))

        def on_train_end(self, logs=None):  # noqa: ARG002 - Keras's signature
            self.agent.guard(self._over)()

        def _restore(self):
            model, steps = self.model, self.steps
            if self.own:
                begun = getattr(model, "_initial_epoch", None)
                if begun:
                    self._tell(steps, "goes on after epoch %d, from the script's own backup" % begun)
                return
            saved = _read(os.path.join(self.folder, "backup"))
            if saved is None or not self._load(saved):
                return
            self.begun = model._initial_epoch = saved["epoch"]
            self.past = saved["history"]
            model.history.history.update({name: list(values) for name, values in self.past.items()})
            for callback, counted in zip(self.others, saved["callbacks"]):  # noqa: B905 - newer than 3.9
                vars(callback).update(counted)
            random.setstate(saved["python"])
            if saved["numpy"] is not None:
                sys.modules["numpy"].random.set_state(saved["numpy"])
            self._tell(steps, "goes on after epoch %d, from its backup" % saved["epoch"], saved["steps"])

        def _load(self, saved):
            """Put the weights back; where that fails all is as the script made it."""
            model, weights = self.model, os.path.join(self.folder, saved["weights"])
            if not os.path.exists(weights):
                return False  # one of many fits, whose weights were too much to keep: it is done again
            if not model.built and (self.shapes is None or self.shapes != saved["shapes"]):
                # To build it by what was saved would make another model of it, where the data have another shape.
                return self._decline("the model is not built yet, and the shape of its data can't be told")
            before = None
            try:
                if not model.built:
                    model.build_from_config(saved["build"])
                before = [(variable, variable.numpy()) for variable in _variables(model)]
                if model.optimizer is not None and not model.optimizer.built:
                    model.optimizer.build(model.trainable_variables)
                if _structure(_variables(model)) != saved["structure"]:
                    raise ValueError("its weights have other shapes")
                model.load_weights(weights)
                return True
            except Exception as error:
                for variable, value in before or ():
                    variable.assign(value)
                return self._decline("the backup does not fit the model: %s" % str(error)[:200])

        def _decline(self, because):
            self.agent.say("declined", act="resume", step=self.agent.beat.steps + 1, because=because)
            return False

        def _tell(self, before, text, saved=0):
            now = _steps(self.model)
            self.notes.say_resumed(now, max(0, saved, now - before), text, _BECAUSE)

        def _keep(self, epoch, logs):
            for name, value in logs.items():
                self.past.setdefault(name, []).append(value)
            now = monotonic()
            if self.own:
                self.notes.say_state(_steps(self.model), epoch)
            elif self.next is None or now >= self.next:
                self._write(epoch)
                # The first one also imports what it is written with: that says nothing of the others.
                self.next = 0.0 if self.next is None else monotonic() + (monotonic() - now) / _OF_THE_TIME
                self.notes.say_state(_steps(self.model), epoch)

        def _write(self, epoch):
            os.makedirs(self.folder, exist_ok=True)
            weights = "%d.weights.h5" % epoch
            self.model.save_weights(os.path.join(self.folder, weights), overwrite=True)
            numpy = sys.modules.get("numpy")
            saved = {
                "epoch": epoch,
                "steps": _steps(self.model) - self.steps,
                "weights": weights,
                "build": self.model.get_build_config(),
                "shapes": self.shapes,
                "structure": _structure(_variables(self.model)),
                "history": self.past,
                "callbacks": [{k: v for k, v in vars(one).items() if k in _COUNTED} for one in self.others],
                "python": random.getstate(),
                "numpy": numpy.random.get_state() if numpy is not None else None,
            }
            path = os.path.join(self.folder, "backup")
            with open(path + ".new", "wb") as file:
                pickle.dump(saved, file, 4)
            os.replace(path + ".new", path)
            _drop_weights(self.folder, weights)

        def _over(self):
            if self.begun:
                self.model._initial_epoch = None  # or the next fit of this model would begin there too
                self.model.history.epoch[:0] = range(self.begun)
            # A last one, as of all epochs: a fit that is done is not done again when a later one is killed.
            if not self.own and self.past:
                self._write(max(self.params.get("epochs") or 0, *map(len, self.past.values())))
                _bound(os.path.dirname(self.folder))
            self.notes.trainings.over(self.training)

    return Backup


def _read(path):
    if not os.path.exists(path):
        return None
    with open(path, "rb") as file:
        return pickle.load(file)


def _whose(model, given, callbacks, at):
    """What a fit is known again by, and what proves it to be the same to the bit: None where not all can be seen."""
    layers, numpy = list(model._flatten_layers()), sys.modules["numpy"]
    # A layer or model of one's own may hold anything: that two of them do the same can't be seen.
    seen = all(type(layer).__module__.startswith(("keras.", "tf_keras.")) for layer in layers)
    settings = []
    for setting in (model.get_compile_config, *(layer.get_config for layer in layers if layer is not model)):
        try:
            settings.append(whose.plain(setting()))
        except Exception:  # one that can't be written down
            settings.append(None)
    data = [whose.sample(given.get(name), numpy) for name in _DATA]
    key = (
        at,
        [(type(layer).__name__, whose.numbers_of(layer)) for layer in layers],
        _structure(_variables(model)) if model.built else None,
        settings,
        whose.plain(getattr(model, "loss", None)),
        whose.plain({name: value for name, value in given.items() if name not in _NOT_GIVEN}, words=False),
        [(type(one).__name__, whose.numbers_of(one)) for one in callbacks],
        [_kind_of(given.get(name)) for name in _DATA],
        data,
    )
    if not seen or None in settings or None in data:
        return key, None
    weights = [_some_of(variable.numpy()) for variable in _variables(model)] if model.built else None
    return key, whose.digest(whose.random_now(), weights)


def _kind_of(data):
    spec = getattr(data, "element_spec", None)
    return (type(data).__name__, repr(spec)) if spec is not None else whose.plain(data, words=False)


def _some_of(values):
    flat = values.reshape(-1)
    return flat[:: max(1, flat.size // _SEEN)].tobytes()


def _variables(model):
    return [*model.variables, *(model.optimizer.variables if model.optimizer is not None else ())]


def _structure(variables):
    return [(tuple(variable.shape), str(variable.dtype)) for variable in variables]


def _shapes(x):
    """The shape of one sample; None where only drawing one would show it."""
    if isinstance(x, (list, tuple)):
        return [_shapes(one) for one in x]
    if isinstance(x, dict):
        return {name: _shapes(one) for name, one in x.items()}
    spec = getattr(x, "element_spec", None)
    if spec is not None:
        return repr(spec)
    shape = getattr(x, "shape", None)
    return None if shape is None else tuple(shape[1:])


def _bound(folder):
    """Drop the weights of the oldest fits, where all of them are too much."""
    sizes = []
    for own in (os.path.join(folder, name) for name in os.listdir(folder) if name.startswith("keras-")):
        names = os.listdir(own) if os.path.isdir(own) else ()
        sizes.append((own, sum(os.path.getsize(os.path.join(own, name)) for name in names if name.endswith(".h5"))))
    sizes.sort(key=lambda one: os.path.getmtime(one[0]))
    over = sum(size for _, size in sizes) - min(_KEPT, int(_OF_THE_DISK * shutil.disk_usage(folder).free))
    for own, size in sizes[:-1]:
        if over > 0 and size:
            _drop_weights(own)
            over -= size


def _drop_weights(folder, but=""):
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        if name.endswith(".h5") and name != but:
            os.unlink(os.path.join(folder, name))


def _steps(model):
    """Steps since the optimizer was made."""
    iterations = getattr(model.optimizer, "iterations", None)
    return 0 if iterations is None else int(iterations.numpy() if hasattr(iterations, "numpy") else iterations)
