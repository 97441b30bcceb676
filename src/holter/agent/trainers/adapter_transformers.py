"""Hugging Face Trainer: plan, epochs, evaluation, checkpoints and early stopping; the steps come from PyTorch.

What is patched: `on_train_begin`, `on_epoch_begin` and `on_train_end` of the callback handler, since a callback of our
own would be listed with the user's; `evaluation_loop`, `_save_checkpoint` and `save_model` of the Trainer.
"""

import functools
import os

from ...record import ring_format as f
from ..observe import wrap
from ..observe.saves import saves_of
from ..observe.who_stopped import by_code, kinds
from .schedule import TrainerPlan

WAITS_FOR = ("transformers.trainer",)
_LIBRARY = ("transformers", "torch")


def install(agent, trainer_module):
    """Patch this Trainer; returns the reason when it is another than the one that is known."""
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
        plan.ended(int(state.epoch or 0), **(_who(handler.callbacks) if early else {}))

    def patch_handler():
        handler_class = trainer_module.CallbackHandler
        for name, act in (("on_train_begin", begins), ("on_epoch_begin", epoch), ("on_train_end", ended)):
            _after_event(handler_class, name, act, agent.guard)

    def patch_phases():
        wrap.timed(trainer_class, "evaluation_loop", agent.beat, f.VALIDATION)
        for name in ("_save_checkpoint", "save_model"):
            if hasattr(trainer_class, name):
                saves_of(agent).around(trainer_class, name, _where_saved)
                wrap.timed(trainer_class, name, agent.beat, f.CHECKPOINT)

    def arm_resume():
        from . import resume

        resume.arm(agent, trainer_class, resume.Transformers)

    if agent.heal:
        agent.guard(arm_resume)()
    if not wrap.each_guarded(agent.guard, patch_handler, patch_phases):
        return "its Trainer is not the one that is known"
    return None


def _where_saved(trainer, *args, **_kwargs):
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


def _who(callbacks):
    """Who set `control.should_training_stop`; nobody, when the Trainer itself did."""
    for callback in callbacks:
        if "EarlyStoppingCallback" in kinds(callback):
            patience = callback.early_stopping_patience
            if callback.early_stopping_patience_counter >= patience:
                return {"stopped_by": type(callback).__name__, "patience": patience}
    writers = by_code(callbacks, "should_training_stop", _LIBRARY)
    return {"stopped_by": writers} if writers else {}
