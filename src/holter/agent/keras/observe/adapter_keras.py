"""Keras 3: `fit` and its kin through the callback list, `train_on_batch`, eager optimizers, models and checkpoints.

What is patched, and why nothing gentler does:
- the methods of `CallbackList`, see `fit`: a callback of our own would show in `model.history` and callbacks.
- `fit`, `evaluate`, `predict`: an error that leaves them is reported to no callback.
- `train_on_batch`, `test_on_batch`, `predict_on_batch`: they report to no callback.
- `Optimizer.apply`: the step of a loop with a tape; under tracing it only marks the function as one that trains.
- `Trainer.__init__`, `Optimizer.__init__`: who was made where.
- `Model.__call__`: a loop that only calls a model is alive; layers stay untouched.
- `Model.save`, `save_weights`, `export` and the library beneath: checkpoints.
Works with each backend as far as what it sees is the same; eager steps are known for TensorFlow and PyTorch.
"""

import functools
import sys
import weakref
from math import nan
from threading import get_ident

from ....record import ring_format as f
from ...core.user_frame import is_library_kind, user_frame
from ...observe import wrap
from ...observe.saves import saves_of
from .fit import Fits
from .loop import EVALUATING, TRAINING, loop_of

WAITS_FOR = ("keras",)


def install(agent, keras):
    """Patch this Keras; returns the reason when it is one of the old ones."""
    if int(keras.__version__.split(".")[0]) < 3:
        return "Keras %s is older than 3" % keras.__version__
    adapter = _Adapter(agent, keras)
    wrap.each_guarded(
        agent.guard,
        adapter.patch_callbacks,
        adapter.patch_fit,
        adapter.patch_batches,
        adapter.arm,
        adapter.patch_optimizers,
        adapter.patch_births,
        adapter.patch_calls,
        adapter.patch_saves,
        adapter.arm_backup,
    )
    return None


class _Adapter:
    def __init__(self, agent, keras):
        self.agent = agent
        self.keras = keras
        self.loop = loop_of(agent)
        self.raised_through = wrap.StepErrors(agent, self.loop.beat).raised_through
        self.newborn = []
        self.is_eager = _eagerness(keras.backend.backend())
        self.loop.at_begin.append(self.count_models)
        self.loop.rarely.append(self.read_learning_rate)
        self.loop.rarely.append(saves_of(agent).look)

    def patch_callbacks(self):
        Fits(self.loop).patch(self.keras.callbacks.CallbackList)

    def patch_fit(self):
        """An error that leaves `fit` may be caught by the script and never be shown; its batch is over then."""
        for name, report in (
            ("fit", self.raised_through), ("evaluate", wrap.drop_own_frame), ("predict", wrap.drop_own_frame),
        ):  # fmt: skip
            self._patch_entry(wrap.owner_of(self.keras.Model, name), name, report)

    def _patch_entry(self, owner, name, report):
        inner, loop, beat = getattr(owner, name), self.loop, self.loop.beat

        @functools.wraps(inner)
        def call(*args, **kwargs):
            before, phase = (loop.busy, loop.in_fit), beat.phase
            try:
                return inner(*args, **kwargs)
            except BaseException as error:
                report(error)
                if loop.mine():
                    loop.busy, loop.in_fit = before
                    beat.enter(phase)
                raise

        setattr(owner, name, call)

    def arm(self):
        """Under --heal: nothing is put around anything; `fit` and the methods below ask what to do."""
        if self.agent.heal and self.keras.backend.backend() == "tensorflow":
            from ..heal.healer import Healer

            self.loop.healer = Healer(self.agent, self.loop, self.keras, sys.modules["tensorflow"])

    def arm_backup(self):
        if self.agent.heal:
            from ..heal.resume import Backups

            self.loop.backups = Backups(self.agent)

    # --- one batch by hand --------------------------------------------------------------------------------

    def patch_batches(self):
        for name, busy in (
            ("train_on_batch", TRAINING),
            ("test_on_batch", EVALUATING),
            ("predict_on_batch", EVALUATING),
        ):
            self._patch_batch(wrap.owner_of(self.keras.Model, name), name, busy)

    def _patch_batch(self, owner, name, busy):
        inner = getattr(owner, name)
        loop, enter, guard, raised_through = self.loop, self.loop.beat.enter, self.loop.guard, self.raised_through
        phase = f.FORWARD if busy == TRAINING else f.VALIDATION
        before_it = guard(self._before_batch)

        @functools.wraps(inner)
        def on_batch(model, *args, **kwargs):
            ours = get_ident() == loop.thread or loop.claim(busy)
            if ours:
                outer, loop.busy = loop.busy, busy
                before = enter(phase)
                if busy == TRAINING and loop.healer is not None:
                    before_it(model)
            try:
                result = inner(model, *args, **kwargs)
            except BaseException as error:
                raised_through(error)
                raise
            finally:
                if ours:
                    loop.busy = outer
                    enter(before)
            if ours:
                try:
                    if busy == TRAINING:
                        self._trained(model, args or tuple(kwargs.values()), result)
                    else:
                        loop.sign()
                except Exception as error:
                    guard.caught(name, error)
            return result

        setattr(owner, name, on_batch)

    def _before_batch(self, model):
        if model.train_function is None and model.optimizer is not None:
            self.loop.begin()
            self.loop.healer.batch_begins(model)

    def _trained(self, model, data, result):
        loop = self.loop
        if isinstance(result, dict):
            result = result.get("loss", nan)
        elif isinstance(result, (list, tuple)):
            result = result[0] if result else nan
        loop.saw_loss(result)
        if loop.loss_known:
            loop.nan.loss(loop.loss, "keras")
            if loop.healer is not None:
                loop.healer.step_ended(model, None, None)
        arrays = [one for one in data[:2] if is_library_kind(one) and hasattr(one, "shape") and hasattr(one, "dtype")]
        shapes = [array.shape for array in arrays]
        if shapes and shapes != loop.shape:
            loop.shape = shapes
            loop.batch = int(shapes[0][0]) if len(shapes[0]) else 0
            loop.report_batch(arrays)
        loop.use(model.optimizer)
        if loop.look.on:
            loop.describe(model)
        loop.step()

    # --- eager optimizers ---------------------------------------------------------------------------------

    def patch_optimizers(self):
        owner = wrap.owner_of(self.keras.optimizers.Optimizer, "apply")
        inner = owner.apply
        loop, beat, enter, guard = self.loop, self.loop.beat, self.loop.beat.enter, self.loop.guard
        is_eager = self.is_eager
        tape_applies = guard(loop.healer.tape_applies) if loop.healer is not None else None

        def born(optimizer):
            loop.optimizers += 1
            if beat.phase == f.CHECKPOINT:
                return  # saving a model makes some for a moment
            self.agent.census.born("optimizer", optimizer, wrap.maker_of(optimizer, 2))

        wrap.after(wrap.owner_of(owner, "__init__"), "__init__", born, guard)
        if is_eager is None:
            return

        @functools.wraps(inner)
        def apply(optimizer, *args, **kwargs):
            before = -1
            ours = False
            if not is_eager():
                loop.applied += 1
                if not beat.open_:
                    guard(loop.begin)()
            elif get_ident() == loop.thread or loop.claim(TRAINING):
                ours = not loop.busy
                if not beat.skim:
                    before = enter(5)  # OPTIMIZER
            if tape_applies is not None and not loop.busy:
                tape_applies()
            try:
                result = inner(optimizer, *args, **kwargs)
            except BaseException as error:
                wrap.drop_own_frame(error)
                raise
            finally:
                if before >= 0:
                    enter(before or 1)
            if ours:
                try:
                    loop.applied_eagerly = True
                    n = loop.counts(optimizer)
                    if n:
                        if loop.optimizer_id != id(optimizer):
                            loop.use(optimizer)
                        loop.step(n)
                except Exception as error:
                    guard.caught("apply", error)
            return result

        owner.apply = apply

    def read_learning_rate(self):
        """The rate, where it is a variable whose reading makes nothing wait."""
        optimizer = self.loop.optimizer() if self.loop.optimizer is not None else None
        rate = getattr(optimizer, "_learning_rate", None)
        value = getattr(rate, "_value", None)
        if value is None or not self.loop.cpu_only or self.is_eager is None or not self.is_eager():
            return
        self.loop.lr = float(value.numpy())

    # --- who was made where -------------------------------------------------------------------------------

    def patch_births(self):
        base = next(cls for cls in self.keras.Model.__mro__ if cls.__name__ == "Trainer")
        wrap.after(base, "__init__", self._model_born, self.loop.guard)
        wrap.after(base, "compile", self._model_compiled, self.loop.guard)

    def _model_compiled(self, model):
        if self.loop.traces is not None:
            self.loop.traces.model_compiled(model)

    def _model_born(self, model):
        frame, within_init = sys._getframe(2), False
        user = user_frame(2)
        while frame is not user and frame is not None:
            if frame.f_code.co_filename.endswith("sequential.py") and type(model).__name__ == "Functional":
                return  # the graph that a Sequential keeps inside
            frame = frame.f_back
        if user is None:
            return
        while frame is not None and not within_init:
            within_init = frame.f_code.co_name == "__init__"
            frame = frame.f_back
        if not within_init:
            self.count_models()  # those before this one are complete
        self.newborn.append((weakref.ref(model), wrap.maker_of(model, 2)))

    def count_models(self):
        """Take the new models into the census, but for those that are layers of another by now."""
        newborn, self.newborn = self.newborn, []
        alive = [(model, site) for model, site in ((ref(), site) for ref, site in newborn) if model is not None]
        layers = {id(layer) for model, _ in alive for layer in model._flatten_layers(include_self=False)}
        for model, site in alive:
            if id(model) not in layers:
                self.agent.census.born("model", model, site)

    # --- calls and checkpoints ----------------------------------------------------------------------------

    def patch_calls(self):
        model_class = self.keras.Model
        inner = model_class.__call__
        loop, guard, beat = self.loop, self.loop.guard, self.loop.beat
        is_eager = self.is_eager or (lambda: True)

        @functools.wraps(inner)
        def __call__(model, *args, **kwargs):  # noqa: N807
            # within a batch, a tape or a trace there are better signs
            if not loop.busy and not loop.tracing and beat.phase != 3 and get_ident() == loop.thread:
                try:
                    if is_eager() and args and args[0].__class__.__name__ != "KerasTensor":
                        loop.sign()
                except Exception as error:
                    guard.caught("Model.__call__", error)
            try:
                return inner(model, *args, **kwargs)
            except BaseException as error:
                wrap.drop_own_frame(error)
                raise

        model_class.__call__ = __call__

    def patch_saves(self):
        model_class, loop = self.keras.Model, self.loop
        for name in ("save", "save_weights", "export"):
            if hasattr(model_class, name):
                owner = wrap.owner_of(model_class, name)
                saves_of(self.agent).around(owner, name, _where_saved)
                wrap.timed(owner, name, loop.beat, f.CHECKPOINT, loop.mine)
        library = sys.modules.get("keras.src.saving.saving_lib")
        for name in ("save_model", "save_weights_only"):
            if hasattr(library, name):
                saves_of(self.agent).around(library, name, _where_saved)
                wrap.timed(library, name, loop.beat, f.CHECKPOINT, loop.mine)


def _where_saved(_model, filepath, *_args, **_kwargs):
    return filepath


def _eagerness(backend):
    """How to ask whether an operation runs now or is only being traced; None where it can't be asked."""
    if backend == "tensorflow":
        return sys.modules["tensorflow.python.eager.context"].executing_eagerly
    if backend == "torch":
        is_compiling = sys.modules["torch"].compiler.is_compiling
        return lambda: not is_compiling()
    return None
