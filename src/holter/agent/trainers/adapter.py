"""What a Trainer on top of PyTorch knows better than its loop shows: plan, epochs, validation, checkpoints, the end.

The steps come from PyTorch. What is patched: methods of Lightning's fit loop and of the callback handler of the Hugging
Face Trainer, since a callback of our own would be listed and saved with the user's; the loops that evaluate or predict;
what writes a checkpoint. Accelerate needs nothing.
"""

import functools
import os

from ...record import ring_format as f
from ..observe import wrap
from ..observe.saves import saves_of
from ..observe.who_stopped import by_code, kinds

WAITS_FOR = ("lightning.pytorch", "pytorch_lightning", "transformers.trainer")
# Packages whose own code is not the script's.
_LIGHTNING = ("lightning", "pytorch_lightning", "lightning_fabric", "torch")
_TRANSFORMERS = ("transformers", "torch")


def install(agent, module):
    """Patch this Trainer; returns the reason when it is another than the ones that are known."""
    if module.__name__ == "transformers.trainer":
        return _install_transformers(agent, module)
    return _install_lightning(agent, module)


class TrainerPlan:
    """Reports for one Trainer; steps and phases within them come from the PyTorch adapter."""

    def __init__(self, agent, source):
        self.agent = agent
        self.beat = agent.beat
        self.source = source
        self.first_step = 0
        self.planned = self.epochs = 0

    def begins(self, steps, epochs, per_epoch, done_before=0):
        """The training begins; `steps` counts from its start, of which a checkpoint may hold `done_before`."""
        beat, plan = self.beat, getattr(self.agent, "plan", None)
        self.agent.greet("trainer")
        beat.open()
        self.first_step = beat.steps
        self.planned = max(_as_int(steps) - done_before, 0)
        self.epochs = _as_int(epochs)
        total = self.first_step + self.planned if self.planned else 0
        if plan is not None:
            plan.known = True  # for good: a Trainer also draws from loaders before and after it trains
            plan.reported = (self.epochs, _as_int(per_epoch), total)
        beat.plan(steps=total, per_epoch=_as_int(per_epoch), epochs=self.epochs)
        self.agent.say("plan", steps=total, epochs=self.epochs, steps_per_epoch=_as_int(per_epoch), source=self.source)

    def epoch(self, epoch):
        """Epoch number `epoch` begins, counted from 1."""
        self.beat.new_epoch(epoch)
        self.agent.say("epoch", epoch=epoch, step=self.beat.steps)

    def ended(self, epochs_done, stopped_by=None, **more):
        """The training has returned; `stopped_by` names who ended it on purpose."""
        if self.beat.phase == f.VALIDATION:
            self.beat.enter(f.OTHER)
        if stopped_by:
            self.agent.say("early-stop", by=stopped_by, epoch=self.beat.epoch, **more)
        self.agent.say(
            "fit-end",
            epochs=epochs_done,
            epochs_planned=self.epochs,
            steps=self.beat.steps - self.first_step,
            steps_planned=self.planned,
            stopped=bool(stopped_by),
            source=self.source,
        )


def _as_int(number):
    """A count as an int; 0 for what is unknown or without end."""
    return int(number) if number is not None and 0 < number < 1 << 60 else 0


# --- Lightning ------------------------------------------------------------------------------------------------------


def _install_lightning(agent, lightning):
    if int(lightning.__version__.split(".")[0]) < 2:
        return "Lightning %s is older than 2" % lightning.__version__
    plan = TrainerPlan(agent, "lightning")

    def begins(loop):
        trainer = loop.trainer
        plan.begins(trainer.estimated_stepping_batches, trainer.max_epochs, loop.max_batches, trainer.global_step)

    def epoch(loop):
        plan.epoch(loop.trainer.current_epoch + 1)

    def ended(loop):
        trainer = loop.trainer
        plan.ended(trainer.current_epoch, **(_who_stopped_lightning(trainer) if trainer.should_stop else {}))

    def patch_fit():
        fit_loop = _loop_class(lightning, "fit_loop", "_FitLoop")
        wrap.after(fit_loop, "on_run_start", begins, agent.guard)
        wrap.after(fit_loop, "on_advance_start", epoch, agent.guard)
        wrap.after(fit_loop, "on_run_end", ended, agent.guard)

    def patch_phases():
        wrap.timed(_loop_class(lightning, "evaluation_loop", "_EvaluationLoop"), "run", agent.beat, f.VALIDATION)
        wrap.timed(_loop_class(lightning, "prediction_loop", "_PredictionLoop"), "run", agent.beat, f.VALIDATION)
        saves_of(agent).around(lightning.Trainer, "save_checkpoint", _lightning_saved)
        wrap.timed(lightning.Trainer, "save_checkpoint", agent.beat, f.CHECKPOINT)

    def arm_resume():
        from . import resume

        resume.arm(agent, lightning.Trainer, resume.Lightning)

    if agent.heal:
        agent.guard(arm_resume)()
    if not wrap.each_guarded(agent.guard, patch_fit, patch_phases):
        return "its loops are not the ones that are known"
    return None


def _lightning_saved(_trainer, filepath, *_args, **_kwargs):
    return filepath


def _loop_class(lightning, module, name):
    from importlib import import_module

    return getattr(import_module("%s.loops.%s" % (lightning.__name__, module)), name)


def _who_stopped_lightning(trainer):
    """Who set `trainer.should_stop`."""
    for callback in trainer.callbacks:
        kind = kinds(callback)
        if "EarlyStopping" in kind and (callback.wait_count >= callback.patience or callback.stopped_epoch):
            return {"stopped_by": type(callback).__name__, "monitor": callback.monitor, "patience": callback.patience}
        if "Timer" in kind and callback.time_elapsed() >= (callback._duration or float("inf")):
            return {"stopped_by": type(callback).__name__}
    writers = by_code([*trainer.callbacks, trainer.lightning_module], "should_stop", _LIGHTNING)
    return {"stopped_by": writers or "the script"}


# --- the Hugging Face Trainer ---------------------------------------------------------------------------------------


def _install_transformers(agent, trainer_module):
    plan = TrainerPlan(agent, "transformers")
    trainer_class = trainer_module.Trainer

    def begins(_handler, _args, state, _control):
        per_epoch = state.max_steps / state.num_train_epochs if state.num_train_epochs else 0
        plan.begins(state.max_steps, state.num_train_epochs, per_epoch, state.global_step)

    def epoch(_handler, _args, state, _control):
        plan.epoch(int(state.epoch or 0) + 1)

    def ended(handler, _args, state, control):
        # The flag is also set when all is done, and by the Trainer itself when its data has run out.
        early = control.should_training_stop and state.global_step < state.max_steps
        plan.ended(int(state.epoch or 0), **(_who_stopped_transformers(handler.callbacks) if early else {}))

    def patch_handler():
        handler_class = trainer_module.CallbackHandler
        for name, act in (("on_train_begin", begins), ("on_epoch_begin", epoch), ("on_train_end", ended)):
            _after_event(handler_class, name, act, agent.guard)

    def patch_phases():
        wrap.timed(trainer_class, "evaluation_loop", agent.beat, f.VALIDATION)
        for name in ("_save_checkpoint", "save_model"):
            if hasattr(trainer_class, name):
                saves_of(agent).around(trainer_class, name, _transformers_saved)
                wrap.timed(trainer_class, name, agent.beat, f.CHECKPOINT)

    def arm_resume():
        from . import resume

        resume.arm(agent, trainer_class, resume.Transformers)

    if agent.heal:
        agent.guard(arm_resume)()
    if not wrap.each_guarded(agent.guard, patch_handler, patch_phases):
        return "its Trainer is not the one that is known"
    return None


def _transformers_saved(trainer, *args, **_kwargs):
    if args and isinstance(args[0], str):  # save_model
        return args[0]
    return os.path.join(trainer.args.output_dir, "checkpoint-%d" % trainer.state.global_step)


def _after_event(handler_class, name, act, guard):
    inner = vars(handler_class)[name]

    @functools.wraps(inner)
    def event(handler, args, state, control, **kwargs):
        result = inner(handler, args, state, control, **kwargs)
        try:
            act(handler, args, state, result or control)
        except Exception as error:
            guard.caught(name, error)
        return result

    setattr(handler_class, name, event)


def _who_stopped_transformers(callbacks):
    """Who set `control.should_training_stop`; nobody, when the Trainer itself did."""
    for callback in callbacks:
        if "EarlyStoppingCallback" in kinds(callback):
            patience = callback.early_stopping_patience
            if callback.early_stopping_patience_counter >= patience:
                return {"stopped_by": type(callback).__name__, "patience": patience}
    writers = by_code(callbacks, "should_training_stop", _TRANSFORMERS)
    return {"stopped_by": writers} if writers else {}
