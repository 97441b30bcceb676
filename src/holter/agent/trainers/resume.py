"""Lightning and the Hugging Face Trainer: a run that was started again goes on from its newest checkpoint.

Only from one that this run has written, and only where the script gives none itself: the path is handed to
`Trainer.fit` or `Trainer.train`, whose own code does the rest. Nothing is written that the script's own settings would
not write. Keeps: equivalent. Imported under --heal alone.
"""

import functools
import inspect
import os
import sys
import zipfile

from ..heal import state_owner as whose
from ..observe.wrap import drop_own_frame


class Lightning:
    """How `lightning.pytorch.Trainer` trains, saves, and takes the path to go on from."""

    source, train, save, argument = "lightning", "fit", "save_checkpoint", "ckpt_path"
    because = "random generators begin anew"
    more = (("weights_only", False),)  # what the checkpoint holds is this run's own

    @staticmethod
    def ranks(trainer):
        return trainer.world_size

    @staticmethod
    def key(trainer, given, at):
        numbers = [getattr(trainer, name, None) for name in ("max_epochs", "max_steps", "accumulate_grad_batches")]
        own = vars(given["model"]).get("_hparams")  # of `save_hyperparameters`: a rate, a seed
        return at, type(given["model"]).__name__, whose.structure(given["model"]), whose.plain([numbers, own])

    @staticmethod
    def saved(trainer, filepath, weights_only=None, *_args, **_kwargs):
        """Path, step and epoch of a checkpoint just written; None for one that can't be gone on from."""
        return None if weights_only else (filepath, trainer.global_step, trainer.current_epoch + 1)

    @staticmethod
    def is_complete(path):
        """True for a file that was written to its end, or a folder of shards."""
        return os.path.isdir(path) or zipfile.is_zipfile(path)


class Transformers:
    """The same of `transformers.Trainer`, which passes over the data that were seen and restores random generators."""

    source, train, save, argument = "transformers", "train", "_save_checkpoint", "resume_from_checkpoint"
    because = "what the checkpoint does not hold begins anew"
    more = ()

    @staticmethod
    def ranks(trainer):
        return trainer.args.world_size

    @staticmethod
    def key(trainer, _given, at):
        model = whose.structure(trainer.model) if trainer.model is not None else "made by model_init"
        kinds = type(trainer.model).__name__, type(trainer.optimizer).__name__, str(getattr(trainer.args, "optim", ""))
        groups = whose.plain(getattr(trainer.optimizer, "param_groups", None), words=False)
        return at, kinds, model, whose.numbers_of(trainer.args), groups

    @staticmethod
    def saved(trainer, *_args, **_kwargs):
        if getattr(trainer.args, "save_only_model", False):
            return None
        step = trainer.state.global_step
        path = os.path.join(trainer.args.output_dir, "checkpoint-%d" % step)
        return path, step, int(trainer.state.epoch or 0) + 1

    @staticmethod
    def is_complete(path):
        return os.path.exists(os.path.join(path, "trainer_state.json"))


def arm(agent, trainer_class, way):
    """Stand around the method that trains and the one that saves.

    A training is known again by its `key`: its data can't be seen, so nothing proves it to be the same to the bit.
    """
    notes = whose.Checkpoints(agent, way.source)
    inner_train, inner_save = getattr(trainer_class, way.train), getattr(trainer_class, way.save)
    signature = inspect.signature(inner_train)

    @functools.wraps(inner_train)
    def train(trainer, *args, **kwargs):
        mine = found = None
        try:
            if agent.heal and way.ranks(trainer) == 1:
                bound = signature.bind(trainer, *args, **kwargs)
                at = whose.place(sys._getframe(1))
                mine = notes.trainings.begin(way.key(trainer, bound.arguments, at), None, at)
                notes.present[trainer] = mine
                found = notes.last(mine, way.is_complete) if not bound.arguments.get(way.argument) else None
            if found is not None:
                bound.arguments[way.argument] = found["path"]
                for name, value in way.more:
                    if name in signature.parameters:
                        bound.arguments.setdefault(name, value)
                args, kwargs = bound.args[1:], bound.kwargs
                notes.report_going_on(found, way.because)
        except Exception as error:
            agent.guard.caught(way.train, error)
        try:
            result = inner_train(trainer, *args, **kwargs)
        except BaseException as error:
            drop_own_frame(error)
            raise
        finally:
            notes.present.pop(trainer, None)
        notes.done(mine)
        return result

    @functools.wraps(inner_save)
    def save(trainer, *args, **kwargs):
        try:
            result = inner_save(trainer, *args, **kwargs)
        except BaseException as error:
            drop_own_frame(error)
            raise
        try:
            training = notes.present.get(trainer)
            saved = way.saved(trainer, *args, **kwargs) if training is not None else None
            if saved is not None:
                notes.note(training, *saved)
        except Exception as error:
            agent.guard.caught(way.save, error)
        return result

    setattr(trainer_class, way.train, train)
    setattr(trainer_class, way.save, save)
