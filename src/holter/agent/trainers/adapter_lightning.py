"""PyTorch Lightning: plan, epochs, validation, checkpoints and early stopping; the steps come from PyTorch.

What is patched: `on_run_start`, `on_advance_start` and `on_run_end` of the fit loop, since a callback of our own would
be listed and saved with the user's; `run` of the evaluation and prediction loops and `Trainer.save_checkpoint`.
"""

from ...record import ring_format as f
from ..observe import wrap
from ..observe.saves import saves_of
from ..observe.who_stopped import by_code, kinds
from .schedule import TrainerPlan

WAITS_FOR = ("lightning.pytorch", "pytorch_lightning")
_LIBRARY = ("lightning", "pytorch_lightning", "lightning_fabric", "torch")


def install(agent, lightning):
    """Patch this Lightning; returns the reason when it is too old to be known."""
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
        plan.ended(trainer.current_epoch, **(_who(trainer) if trainer.should_stop else {}))

    def patch_fit():
        fit_loop = _class(lightning, "fit_loop", "_FitLoop")
        wrap.after(fit_loop, "on_run_start", begins, agent.guard)
        wrap.after(fit_loop, "on_advance_start", epoch, agent.guard)
        wrap.after(fit_loop, "on_run_end", ended, agent.guard)

    def patch_phases():
        wrap.timed(_class(lightning, "evaluation_loop", "_EvaluationLoop"), "run", agent.beat, f.VALIDATION)
        wrap.timed(_class(lightning, "prediction_loop", "_PredictionLoop"), "run", agent.beat, f.VALIDATION)
        saves_of(agent).around(lightning.Trainer, "save_checkpoint", _where_saved)
        wrap.timed(lightning.Trainer, "save_checkpoint", agent.beat, f.CHECKPOINT)

    def arm_resume():
        from . import resume

        resume.arm(agent, lightning.Trainer, resume.Lightning)

    if agent.heal:
        agent.guard(arm_resume)()
    if not wrap.each_guarded(agent.guard, patch_fit, patch_phases):
        return "its loops are not the ones that are known"
    return None


def _where_saved(_trainer, filepath, *_args, **_kwargs):
    return filepath


def _class(lightning, module, name):
    from importlib import import_module

    return getattr(import_module("%s.loops.%s" % (lightning.__name__, module)), name)


def _who(trainer):
    """Who set `trainer.should_stop`."""
    for callback in trainer.callbacks:
        kind = kinds(callback)
        if "EarlyStopping" in kind and (callback.wait_count >= callback.patience or callback.stopped_epoch):
            return {"stopped_by": type(callback).__name__, "monitor": callback.monitor, "patience": callback.patience}
        if "Timer" in kind and callback.time_elapsed() >= (callback._duration or float("inf")):
            return {"stopped_by": type(callback).__name__}
    writers = by_code([*trainer.callbacks, trainer.lightning_module], "should_stop", _LIBRARY)
    return {"stopped_by": writers or "the script"}
