"""`fit`, `evaluate` and `predict` of Keras 3, seen through the list of callbacks that they all report to.

`CallbackList` has had the same methods since Keras 3.0 and calls nothing of the model's, so what is put around it
stands in no traceback and in no traced graph.
"""

import functools
import sys
import weakref
from math import isfinite
from threading import get_ident

from ....record import ring_format as f
from ...core import frame_locals
from ...core.user_frame import is_library_kind, is_user_file
from ...observe.who_stopped import by_code, kinds
from ...observe.wrap import drop_own_frame
from .loop import EVALUATING, loss_name


class _Fit:
    """One `fit` under way."""

    def __init__(self, ref, driven, steps_before):
        self.ref = ref  # to its CallbackList, which goes with the call of `fit`, also where an exception ends it
        self.driven = driven  # by Keras's own fit; a loop of the user's may use a CallbackList as well
        self.first_step = steps_before
        self.first_epoch = None
        self.epoch = 0
        self.epochs_done = 0
        self.epochs = 0
        self.per_epoch = 0
        self.planned = 0
        self.at_once = 1  # steps_per_execution
        self.is_healed = False  # --heal may have to act on its model
        self.backup = None  # of --heal
        self.batch = 0
        self.steps = steps_before
        self.loss_name = ""


class Fits:
    """Turns callbacks into steps, epochs, plan and evaluation."""

    def __init__(self, loop):
        self.loop = loop
        self.running = {}  # id of a CallbackList -> _Fit
        self.evaluations = []  # phase and `busy` before each evaluation that is under way

    def patch(self, list_class):
        self._around(list_class, "on_train_begin", before=self._train_begins, then=self._steps_begin)
        self._around(list_class, "on_train_end", then=self._train_ended)
        self._around(list_class, "on_epoch_begin", then=self._epoch_begins)
        self._around(list_class, "on_epoch_end", before=self._epoch_ends, then=self._epoch_ended)
        self._around_batches(list_class)
        for kind in ("test", "predict"):
            self._around(list_class, "on_%s_begin" % kind, before=self._evaluation_begins)
            self._around(list_class, "on_%s_batch_end" % kind, then=self._evaluation_goes_on)
            self._around(list_class, "on_%s_end" % kind, then=self._evaluation_ended)

    def _around(self, list_class, name, before=None, then=None):
        inner = getattr(list_class, name)
        guard = self.loop.guard

        @functools.wraps(inner)
        def call(callbacks, *args, **kwargs):
            if before is not None:
                try:
                    before(callbacks, *args)
                except Exception as error:
                    guard.caught(name, error)
            try:
                result = inner(callbacks, *args, **kwargs)
            except BaseException as error:
                drop_own_frame(error)
                raise
            if then is not None:
                try:
                    then(callbacks, *args)
                except Exception as error:
                    guard.caught(name, error)
            return result

        setattr(list_class, name, call)

    # --- training -----------------------------------------------------------------------------------------

    def _train_begins(self, callbacks, *_args):
        loop = self.loop
        caller = sys._getframe(2)
        driven = caller.f_code.co_name == "fit" and not is_user_file(caller.f_code.co_filename)
        if driven:
            loop.thread = get_ident()
            loop.busy = 0
            loop.in_fit = 1
            self.evaluations = []
        loop.begin()
        number, running = id(callbacks), self.running
        fit = _Fit(weakref.ref(callbacks, lambda _ref: running.pop(number, None)), driven, loop.beat.steps)
        running[number], model = fit, _model_of(callbacks)
        fit.at_once = int(getattr(model, "steps_per_execution", 1) or 1)
        loop.describe(model, fit.at_once)
        loop.use(getattr(model, "optimizer", None))
        params = getattr(callbacks, "params", None) or {}
        fit.epochs, fit.per_epoch = params.get("epochs") or 0, params.get("steps") or 0
        if driven:
            given = frame_locals.read(caller, "epochs", "epoch_iterator", "x", "y")
            iterator, x, y = given.get("epoch_iterator"), given.get("x"), given.get("y")
            fit.epochs = given.get("epochs") or fit.epochs
            fit.per_epoch = getattr(iterator, "num_batches", None) or fit.per_epoch
            self._describe_batch(getattr(iterator, "data_adapter", None), x, y)
            if loop.feed is not None:
                loop.feed.fit_begins(iterator, x)
            if loop.backups is not None and model is not None:
                fit.backup = loop.guard(loop.backups.begin)(callbacks.callbacks, model, caller)

    def _steps_begin(self, callbacks, *_args):
        """After the script's callbacks have had their say."""
        fit, loop = self.running.get(id(callbacks)), self.loop
        if fit is not None and fit.backup is not None:
            loop.guard(fit.backup.restore)(callbacks, _model_of(callbacks))
        if loop.healer is not None and fit is not None and fit.driven:
            model = _model_of(callbacks)
            if model is not None and model.optimizer is not None:
                fit.is_healed = True
                loop.healer.fit_begins(model, callbacks.callbacks, bool(fit.per_epoch))

    def _describe_batch(self, source, *arrays):
        loop = self.loop
        loop.batch = int(getattr(source, "batch_size", None) or 0)
        if loop.batch and is_library_kind(arrays[0]) and len(getattr(arrays[0], "shape", ())):
            loop.batch = min(loop.batch, int(arrays[0].shape[0]))
        shapes = [
            [[loop.batch or None, *array.shape[1:]], str(getattr(array.dtype, "name", array.dtype))]
            for array in arrays
            if is_library_kind(array) and hasattr(array, "shape") and hasattr(array, "dtype")
        ]
        if shapes and shapes != loop.shape:
            loop.shape = shapes
            loop.say("batch", step=loop.beat.steps + 1, shapes=shapes)

    def _epoch_begins(self, callbacks, epoch=0, *_args):
        fit, loop = self.running.get(id(callbacks)), self.loop
        if fit is None or not loop.mine():
            return
        beat = loop.beat
        fit.epoch = int(epoch) + 1
        if fit.backup is not None:
            fit.backup.epoch_begins(_model_of(callbacks))
        if fit.first_epoch is None:
            fit.first_epoch = int(epoch)
            self._plan(fit)
        beat.new_epoch(fit.epoch)
        loop.say("epoch", epoch=fit.epoch, step=beat.steps)
        if fit.driven:
            beat.enter(f.DATA)

    def _plan(self, fit):
        epochs = fit.epochs - (fit.first_epoch or 0)
        fit.planned = max(epochs, 0) * fit.per_epoch
        # The ring counts the steps of the process, of which this fit may not be the first.
        total = fit.first_step + fit.planned if fit.planned else 0
        self.loop.beat.plan(steps=total, per_epoch=fit.per_epoch, epochs=fit.epochs)
        plan = {"steps": total, "epochs": fit.epochs, "steps_per_epoch": fit.per_epoch, "source": "keras"}
        self.loop.say("plan", **plan)

    def _around_batches(self, list_class):
        inner_begin, inner_end = list_class.on_train_batch_begin, list_class.on_train_batch_end
        running, loop, beat, guard = self.running, self.loop, self.loop.beat, self.loop.guard
        enter, step_ended = beat.enter, self._step_ended

        @functools.wraps(inner_begin)
        def on_train_batch_begin(callbacks, batch, logs=None):
            try:
                result = inner_begin(callbacks, batch, logs)
            except BaseException as error:
                drop_own_frame(error)
                raise
            fit = running.get(id(callbacks))
            if fit is not None and get_ident() == loop.thread:
                fit.batch = batch
                fit.steps = beat.steps
                if fit.driven:
                    loop.busy = 1  # TRAINING
                if beat.skim:
                    beat.skim -= 1
                else:
                    enter(3)  # FORWARD: Keras runs all of the step, often its data too, as one function
            return result

        @functools.wraps(inner_end)
        def on_train_batch_end(callbacks, batch, logs=None):
            fit = running.get(id(callbacks))
            ours = fit is not None and get_ident() == loop.thread
            try:
                logs = step_ended(callbacks, fit, logs) if ours else logs
            except Exception as error:
                guard.caught("on_train_batch_end", error)
            try:
                result = inner_end(callbacks, batch, logs)
            except BaseException as error:
                drop_own_frame(error)
                raise
            if ours and fit.driven and not beat.skim:
                enter(2)  # DATA
            return result

        list_class.on_train_batch_begin = on_train_batch_begin
        list_class.on_train_batch_end = on_train_batch_end

    def _step_ended(self, callbacks, fit, logs):
        """Count the batch; gives the logs that the callbacks are to see."""
        loop, beat = self.loop, self.loop.beat
        if fit.driven:
            loop.busy = 0
        if beat.steps == fit.steps:  # in a loop of the user's, whatever ran the step may have counted it
            n = fit.at_once
            if n > 1 and fit.per_epoch:
                n = max(1, min(n, fit.per_epoch - fit.batch))
            if logs:
                name = fit.loss_name
                if name == "":
                    name = fit.loss_name = loss_name(logs)
                if name is not None:
                    loop.saw_loss(logs[name])
                    if loop.loss_known:
                        loop.nan.mean(fit.batch, loop.loss)
                        if fit.is_healed:
                            logs = loop.healer.step_ended(_model_of(callbacks), logs, fit.epoch)
            loop.step(n)
        return logs

    def _epoch_ends(self, callbacks, *_args):
        fit, loop = self.running.get(id(callbacks)), self.loop
        if fit is None or not loop.mine():
            return
        loop.busy = 0
        loop.beat.enter(f.OTHER)
        fit.epochs_done += 1
        if not fit.per_epoch and fit.epochs_done == 1:
            fit.per_epoch = loop.beat.steps - fit.first_step  # a generator is as long as its first epoch was
            self._plan(fit)

    def _epoch_ended(self, callbacks, epoch=0, logs=None):
        fit = self.running.get(id(callbacks))
        if fit is not None and fit.backup is not None:
            fit.backup.epoch_ended(callbacks, _model_of(callbacks), int(epoch), logs)

    def _train_ended(self, callbacks, *_args):
        fit, loop = self.running.pop(id(callbacks), None), self.loop
        if fit is not None and fit.backup is not None:
            loop.guard(fit.backup.over)(callbacks, _model_of(callbacks), int(fit.epochs or 0))
        if fit is None or not loop.mine():
            return
        loop.busy = loop.in_fit = 0
        loop.beat.enter(f.OTHER)
        if loop.feed is not None and fit.driven:
            loop.feed.fit_ends()
        loop.nan.rarely()
        stopped = bool(getattr(_model_of(callbacks), "stop_training", False))
        if stopped:
            loop.say("early-stop", epoch=fit.epoch, **_who(callbacks.callbacks, loop.loss))
        loop.say(
            "fit-end",
            epochs=fit.epochs_done,
            # A fit that was done before a restart begins no epoch: nothing of it is missing.
            epochs_planned=max(fit.epochs - fit.first_epoch, 0) if fit.first_epoch is not None else 0,
            steps=loop.beat.steps - fit.first_step,
            steps_planned=fit.planned,
            stopped=stopped,
            source="keras",
        )

    # --- evaluation ---------------------------------------------------------------------------------------

    def _evaluation_begins(self, _callbacks, *_args):
        loop = self.loop
        if not loop.mine():
            return
        if not loop.beat.open_:
            loop.begin()
        self.evaluations.append((loop.beat.phase, loop.busy))
        loop.look.end()  # no step follows that it could end with
        loop.busy = EVALUATING
        loop.beat.enter(f.VALIDATION)

    def _evaluation_goes_on(self, _callbacks, *_args):
        if self.loop.mine():
            self.loop.sign()

    def _evaluation_ended(self, _callbacks, *_args):
        loop = self.loop
        if loop.mine() and self.evaluations:
            phase, loop.busy = self.evaluations.pop()
            loop.beat.enter(phase)


def _model_of(callbacks):
    return getattr(callbacks, "model", None) or getattr(callbacks, "_model", None)


def _who(callbacks, loss):
    """Who set `model.stop_training`, and what it went by where that is known."""
    for callback in callbacks:
        kind = kinds(callback)
        if "EarlyStopping" in kind and (callback.wait >= callback.patience or callback.stopped_epoch):
            return {"by": type(callback).__name__, "monitor": callback.monitor, "patience": callback.patience}
        if "TerminateOnNaN" in kind and not isfinite(loss):
            return {"by": type(callback).__name__}
    return {"by": by_code(callbacks, "stop_training", ("keras",)) or "the script"}
