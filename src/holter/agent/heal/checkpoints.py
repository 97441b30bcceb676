"""Checkpoints that a Trainer has written in this run, by the training they belong to: noted when they are complete."""

import json
import os
import weakref
from time import monotonic

from ...record import environment
from .state_owner import Trainings

_SAY_EVERY = 60.0


class Checkpoints:
    """The notes on one framework's checkpoints, which outlast the process."""

    def __init__(self, agent, source):
        self.agent, self.source = agent, source
        folder = os.environ.get(environment.STATE_DISK)
        self.path = os.path.join(folder, source + ".checkpoints") if folder else None
        self.again = int(os.environ.get(environment.ATTEMPT) or 1) > 1
        self.trainings = Trainings(agent, source)
        self.present = weakref.WeakKeyDictionary()  # Trainer -> the training that it is at
        self.reported_at = None

    def note(self, training, path, step, epoch):
        """A checkpoint is written; `step` and `epoch` are the framework's own."""
        if self.path is None:
            return
        known = {"path": os.path.abspath(str(path)), "step": int(step), "epoch": int(epoch)}
        line = {"training": training.number, **known}
        with open(self.path, "a") as file:
            file.write(json.dumps(line) + "\n")
        self.say_state(step, epoch)

    def done(self, training):
        """A training is done; it is not gone on from again."""
        try:
            if training is not None:
                self.trainings.over(training)
        except Exception as error:
            self.agent.guard.caught("done", error)

    def say_state(self, step, epoch):
        """Tell that there is a state to go on from: the first time, and now and then."""
        now = monotonic()
        if self.reported_at is None or now >= self.reported_at + _SAY_EVERY:
            self.reported_at = now
            self.agent.say("state", source=self.source, step=int(step), epoch=int(epoch))

    def last(self, training, is_complete):
        """The newest of a training's checkpoints that is still its own, there and complete, or None."""
        if self.path is None or not training.again or not os.path.exists(self.path):
            return None
        with open(self.path) as file:
            lines = [json.loads(line) for line in file if line.endswith("\n")]
        newest = {line["path"]: line for line in lines}  # another training may have written over it
        found = [one for one in lines if newest[one["path"]] is one and one["training"] == training.number]
        return next((one for one in reversed(found) if is_complete(one["path"])), None)

    def say_goes_on(self, found, because):
        """Tell that a checkpoint of this run is gone on from."""
        text = "goes on after step %d, from %s" % (found["step"], os.path.basename(found["path"]))
        self.say_resumed(found["step"], found["step"], text, because)

    def say_resumed(self, step, passed, text, because):
        """Tell from where this process goes on, and how many steps it passes over by that."""
        self.agent.say(
            "intervention", act="resume", keeps="equivalent", step=self.agent.beat.steps + 1, because=because,
            source=self.source, from_step=int(step), passed=int(passed), text=text,
        )  # fmt: skip
