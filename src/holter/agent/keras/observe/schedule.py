"""How many steps a TensorFlow loop of the user's means to take: the `range`s around it, and how long a pass was."""

import sys
from math import prod

from ...torch.observe.schedule import loops_around


class LoopPlan:
    """Counts the passes over datasets that training draws from, and looks for the loops around a step."""

    def __init__(self, loop):
        self.loop = loop
        self.looked = False
        self.from_dataset = False  # a pass over a dataset is an epoch, else the loops tell all there is
        self.epoch = self.epochs = 0
        self.first_step = 0  # of the loop that is planned
        self.planned = 0  # the step at which it will be done
        self.pass_began = 0
        loop.rarely.append(self.look)

    def pass_begins(self):
        """A dataset gives its first batch to a loop of the user's: an epoch, if a step follows."""
        self.pass_began = self.loop.beat.steps
        self.loop.before_step = self._trains
        self.from_dataset = True

    def _trains(self):
        beat = self.loop.beat
        if self.planned and beat.steps >= self.planned:
            self.looked, self.planned, self.epoch, self.first_step = False, 0, 0, beat.steps  # another loop
        self.epoch += 1
        beat.new_epoch(self.epoch)
        self.loop.say("epoch", epoch=self.epoch, step=beat.steps)

    def pass_ended(self):
        """A dataset is exhausted: if steps were taken, they are what an epoch has."""
        length = self.loop.beat.steps - self.pass_began
        if length > 0 and self.epoch == 1:
            self.look()
            self._tell(per_epoch=length)

    def look(self):
        """After a step: the lengths of the loops around it, unless Keras's own `fit` runs it."""
        loop = self.loop
        if self.looked or not loop.beat.steps or loop.in_fit:
            return
        self.looked = True
        loops = loops_around(sys._getframe(1))
        if self.from_dataset:
            outer = loops[:-1] if loops and not loops[-1] else loops  # the loop over the dataset itself
            self.epochs = prod(outer) if outer else 0
            self._tell()
        elif prod(loops):
            self.epochs = loops[0] if len(loops) > 1 else 0
            self._tell(steps=prod(loops))

    def _tell(self, steps=0, per_epoch=0):
        steps = steps or self.epochs * per_epoch
        self.planned = self.first_step + steps if steps else 0
        if steps or self.epochs or per_epoch:
            # A loop's own numbers are a guess: the header holds only what a Trainer has said.
            self.loop.beat.plan(per_epoch=per_epoch, epochs=self.epochs)
            self.loop.say("plan", steps=self.planned, epochs=self.epochs, steps_per_epoch=per_epoch, source="loop")
