"""What a Trainer on top of PyTorch knows better than its loop shows: plan, epochs, and how the training ended."""

from ...record import ring_format as f


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
            plan.told = (self.epochs, _as_int(per_epoch), total)
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
