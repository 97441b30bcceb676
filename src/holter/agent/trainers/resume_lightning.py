"""Lightning: a run that was started again goes on from the newest checkpoint that this run has written.

`Trainer.fit` is given that `ckpt_path` where the script gives none. Nothing is written that the script's own callbacks
would not write. Keeps: equivalent, since random generators begin anew.
"""

import functools
import inspect
import os
import sys
import zipfile

from ..heal import state_owner as whose
from ..heal.checkpoints import Checkpoints

_BECAUSE = "random generators begin anew"


def arm(agent, lightning):
    """Stand around `fit` and `save_checkpoint`."""
    notes = Checkpoints(agent, "lightning")
    trainer_class = lightning.Trainer
    inner_fit, inner_save = trainer_class.fit, trainer_class.save_checkpoint
    signature = inspect.signature(inner_fit)

    @functools.wraps(inner_fit)
    def fit(trainer, *args, **kwargs):
        mine = None
        try:
            notes.training = found = None
            if agent.heal and trainer.world_size == 1:
                given = signature.bind(trainer, *args, **kwargs).arguments
                at = whose.place(sys._getframe(1))
                mine = notes.training = notes.trainings.begin(_key(trainer, given, at), None, at)
                found = notes.last(_whole) if given.get("ckpt_path") is None else None
            if found is not None:
                args, kwargs = (), {**{k: v for k, v in given.items() if k != "self"}, "ckpt_path": found["path"]}
                if "weights_only" in signature.parameters:
                    kwargs.setdefault("weights_only", False)  # this run's own file
                notes.say_goes_on(found, _BECAUSE)
        except Exception as error:
            agent.guard.caught("fit", error)
        result = inner_fit(trainer, *args, **kwargs)
        notes.done(mine)
        return result

    @functools.wraps(inner_save)
    def save_checkpoint(trainer, filepath, *args, **kwargs):
        result = inner_save(trainer, filepath, *args, **kwargs)
        try:
            weights_only = kwargs.get("weights_only", args[0] if args else None)
            if notes.training is not None and not weights_only:
                notes.note(filepath, trainer.global_step, trainer.current_epoch + 1)
        except Exception as error:
            agent.guard.caught("save_checkpoint", error)
        return result

    trainer_class.fit, trainer_class.save_checkpoint = fit, save_checkpoint


def _key(trainer, given, at):
    """What a fit is known again by: its data can't be seen, so nothing proves it to be the same to the bit."""
    numbers = [getattr(trainer, name, None) for name in ("max_epochs", "max_steps", "accumulate_grad_batches")]
    return at, type(given["model"]).__name__, whose.structure(given["model"]), whose.plain(numbers)


def _whole(path):
    """True for a file that was written to its end, or a folder of shards."""
    return os.path.isdir(path) or zipfile.is_zipfile(path)
