"""Hugging Face Trainer: a run that was started again goes on from the newest checkpoint that this run has written.

`Trainer.train` is given that `resume_from_checkpoint` where the script gives none; the Trainer itself passes over the
data that were seen, and puts the random generators back. Keeps: equivalent.
"""

import functools
import inspect
import os
import sys

from ..heal import state_owner as whose
from ..heal.checkpoints import Checkpoints

_BECAUSE = "what the checkpoint does not hold begins anew"


def arm(agent, trainer_class):
    """Stand around `train` and `_save_checkpoint`."""
    notes = Checkpoints(agent, "transformers")
    inner_train, inner_save = trainer_class.train, trainer_class._save_checkpoint
    signature = inspect.signature(inner_train)

    @functools.wraps(inner_train)
    def train(trainer, *args, **kwargs):
        mine = None
        try:
            notes.training = found = None
            if agent.heal and trainer.args.world_size == 1:
                bound = signature.bind(trainer, *args, **kwargs)
                at = whose.place(sys._getframe(1))
                mine = notes.training = notes.trainings.begin(_key(trainer, at), None, at)
                found = notes.last(_whole) if not bound.arguments.get("resume_from_checkpoint") else None
            if found is not None:
                bound.arguments["resume_from_checkpoint"] = found["path"]
                args, kwargs = bound.args[1:], bound.kwargs
                notes.say_goes_on(found, _BECAUSE)
        except Exception as error:
            agent.guard.caught("train", error)
        result = inner_train(trainer, *args, **kwargs)
        notes.done(mine)
        return result

    @functools.wraps(inner_save)
    def _save_checkpoint(trainer, *args, **kwargs):
        result = inner_save(trainer, *args, **kwargs)
        try:
            state = trainer.state
            if notes.training is not None and not getattr(trainer.args, "save_only_model", False):
                path = os.path.join(trainer.args.output_dir, "checkpoint-%d" % state.global_step)
                notes.note(path, state.global_step, int(state.epoch or 0) + 1)
        except Exception as error:
            agent.guard.caught("_save_checkpoint", error)
        return result

    trainer_class.train, trainer_class._save_checkpoint = train, _save_checkpoint


def _key(trainer, at):
    """What a training is known again by: its data can't be seen, so nothing proves it to be the same to the bit."""
    model = trainer.model
    model = whose.structure(model) if model is not None else "made by model_init"
    kinds = type(trainer.model).__name__, type(trainer.optimizer).__name__, str(getattr(trainer.args, "optim", ""))
    return at, kinds, model, whose.numbers_of(trainer.args)


def _whole(path):
    return os.path.exists(os.path.join(path, "trainer_state.json"))
