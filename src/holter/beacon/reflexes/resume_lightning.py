"""Lightning: a run that was started again goes on from the newest checkpoint that this run has written.

`Trainer.fit` is given that `ckpt_path` where the script gives none. Nothing is written that the script's own callbacks
would not write. Keeps: equivalent, since random generators begin anew.
"""

import functools
import inspect
import os
import zipfile

from ._checkpoints import Checkpoints

_BECAUSE = "random generators begin anew"


def arm(guest, lightning):
    """Stand around `fit` and `save_checkpoint`."""
    notes = Checkpoints(guest, "lightning")
    trainer_class = lightning.Trainer
    inner_fit, inner_save = trainer_class.fit, trainer_class.save_checkpoint
    signature = inspect.signature(inner_fit)

    @functools.wraps(inner_fit)
    def fit(trainer, *args, **kwargs):
        try:
            notes.fits += 1
            given = signature.bind(trainer, *args, **kwargs).arguments
            found = notes.last(_whole) if given.get("ckpt_path") is None else None
            if found is not None:
                args, kwargs = (), {**{k: v for k, v in given.items() if k != "self"}, "ckpt_path": found["path"]}
                if "weights_only" in signature.parameters:
                    kwargs.setdefault("weights_only", False)  # this run's own file
                notes.say_goes_on(found, _BECAUSE)
        except Exception as error:
            guest.guard.caught("fit", error)
        return inner_fit(trainer, *args, **kwargs)

    @functools.wraps(inner_save)
    def save_checkpoint(trainer, filepath, *args, **kwargs):
        result = inner_save(trainer, filepath, *args, **kwargs)
        try:
            weights_only = kwargs.get("weights_only", args[0] if args else None)
            if trainer.is_global_zero and not weights_only:
                notes.note(filepath, trainer.global_step, trainer.current_epoch + 1)
        except Exception as error:
            guest.guard.caught("save_checkpoint", error)
        return result

    trainer_class.fit, trainer_class.save_checkpoint = fit, save_checkpoint


def _whole(path):
    """True for a file that was written to its end, or a folder of shards."""
    return os.path.isdir(path) or zipfile.is_zipfile(path)
