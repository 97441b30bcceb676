"""Keras: a backup at the end of each epoch, as `BackupAndRestore` makes it, where the script makes none itself.

It lies in the run's own folder and goes with it. Two things are added: a backup is whole or it is not there, and with
the weights go the history and what callbacks such as EarlyStopping have counted, so that a script reads in the end
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

from ._checkpoints import Checkpoints

_OF_THE_TIME = 0.1
_KEPT, _OF_THE_DISK = 4 << 30, 0.1  # bytes of weights of fits that are done, and the share of what is free
_COUNTED = ("wait", "best", "best_epoch", "best_weights", "stopped_epoch", "cooldown_counter", "_current_epoch")
_BECAUSE = "data are drawn and shuffled anew"


def arm(guest, keras, owner):
    """Stand around `fit` of the class that defines it."""
    inner = owner.fit
    signature = inspect.signature(inner)
    notes = Checkpoints(guest, "keras")
    made = []

    @functools.wraps(inner)
    def fit(model, *args, **kwargs):
        try:
            notes.fits += 1
            bound = signature.bind(model, *args, **kwargs)
            theirs = bound.arguments.get("callbacks")
            if isinstance(theirs, keras.callbacks.CallbackList):
                because = "the script brings a CallbackList of its own"
                guest.say("declined", act="backup", step=guest.beat.steps + 1, because=because)
            elif notes.path is not None:
                if not made:
                    made.append(_backup_class(keras))
                listed = theirs if isinstance(theirs, (list, tuple)) else [theirs] if theirs is not None else []
                bound.arguments["callbacks"] = [*listed, made[0](guest, notes, listed)]
                args, kwargs = bound.args[1:], bound.kwargs
        except Exception as error:
            guest.guard.caught("backup", error)
        return inner(model, *args, **kwargs)

    owner.fit = fit


def _backup_class(keras):
    class Backup(keras.callbacks.Callback):
        """The last of the script's callbacks, so that what those do at the end of an epoch is done."""

        def __init__(self, guest, notes, others):
            super().__init__()
            self.guest, self.notes, self.others = guest, notes, others
            self.folder = os.path.join(os.path.dirname(notes.path), "keras-%d" % notes.fits)
            self.own = any("BackupAndRestore" in [cls.__name__ for cls in type(one).__mro__] for one in others)
            self.begun = 0  # epochs of the attempts before
            self.past = {}
            self.next = None

        def set_model(self, model):
            super().set_model(model)
            self.steps = self.guest.guard(_steps)(model) or 0  # before any callback has loaded anything

        def on_train_begin(self, logs=None):  # noqa: ARG002 - Keras's signature
            if self.notes.again:
                self.guest.guard(self._restore)()

        def on_epoch_end(self, epoch, logs=None):
            self.guest.guard(self._keep)(epoch + 1, dict(logs or {}))

        def on_train_end(self, logs=None):  # noqa: ARG002 - Keras's signature
            self.guest.guard(self._over)()

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
            if not model.built:
                model.build_from_config(saved["build"])
            before = model.get_weights()
            try:
                if model.optimizer is not None and not model.optimizer.built:
                    model.optimizer.build(model.trainable_variables)
                model.load_weights(weights)
                return True
            except Exception as error:
                model.set_weights(before)
                because = "the backup does not fit the model: %s" % str(error)[:200]
                self.guest.say("declined", act="resume", step=self.guest.beat.steps + 1, because=because)
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
                "history": self.past,
                "callbacks": [{k: v for k, v in vars(one).items() if k in _COUNTED} for one in self.others],
                "python": random.getstate(),
                "numpy": numpy.random.get_state() if numpy is not None else None,
            }
            path = os.path.join(self.folder, "backup")
            with open(path + ".part", "wb") as file:
                pickle.dump(saved, file, 4)
            os.replace(path + ".part", path)
            _drop_weights(self.folder, weights)

        def _over(self):
            if self.begun:
                self.model._initial_epoch = None  # or the next fit of this model would begin there too
                self.model.history.epoch[:0] = range(self.begun)
            # A last one, as of all epochs: a fit that is done is not done again when a later one is killed.
            if not self.own and self.past:
                self._write(max(self.params.get("epochs") or 0, *map(len, self.past.values())))
                _bound(os.path.dirname(self.folder), self.notes.fits)

    return Backup


def _read(path):
    if not os.path.exists(path):
        return None
    with open(path, "rb") as file:
        return pickle.load(file)


def _bound(folder, fits):
    """Drop the weights of the oldest fits, where all of them are too much."""
    sizes = []
    for number in range(1, fits + 1):
        own = os.path.join(folder, "keras-%d" % number)
        names = os.listdir(own) if os.path.isdir(own) else ()
        sizes.append((own, sum(os.path.getsize(os.path.join(own, name)) for name in names if name.endswith(".h5"))))
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
