"""Errors that leave a step: told in case the script catches them and nobody ever shows them."""

from ..core.exit_hooks import describe
from .wrap import drop_own_frame

_MOST = 20


class StepErrors:
    """To be called in a wrapper's `except` block, before a bare `raise`."""

    def __init__(self, agent, beat):
        self.agent = agent
        self.beat = beat
        self.count = 0
        self.told = None

    def left_by(self, error):
        """Keep the wrapper's own line out of the traceback, and note the error once, whatever wrappers it passes."""
        drop_own_frame(error)
        if isinstance(error, StopIteration) or not isinstance(error, Exception) or self.told == id(error):
            return
        self.told = id(error)
        self.count += 1
        if self.count <= _MOST:
            try:
                self.agent.say("step-error", step=self.beat.steps + 1, **describe(error, above=3))
            except Exception as own:
                self.agent.guard.caught("step-error", own)
