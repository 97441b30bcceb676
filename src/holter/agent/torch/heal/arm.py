"""The reflexes of PyTorch that `--heal` arms, in the order in which they must stand around each other.

Each is imported where it is armed: without `--heal` nothing of them is wanted.
"""


class Healing:
    """What is armed in this process."""

    def __init__(self, adapter):
        self.adapter, self.agent, self.torch, self.guard = adapter, adapter.agent, adapter.torch, adapter.guard
        self.loader = self.collect = None
        self.guard(self._arm_nan)()
        from ...heal.soft_limit import wall_of
        from .split import Split

        wall_of(self.agent)  # whoever knows of it writes there
        self.agent.say("armed", act="split-batch")
        self.split = Split(self.agent, self.torch, adapter.is_compiling)

    def begin(self):
        """Before the adapter's own patches."""
        self.guard(self._arm_workers)()
        self.guard(self._arm_collect)()

    def end(self):
        """After them."""
        self.guard(self._arm_loader)()

    def watch(self, models, optimizer):
        """An optimizer trains these models."""
        self.split.watch(models)
        if self.loader is not None:
            self.loader.watch(models, optimizer)

    def pass_begins(self, loader, iterator):
        """A pass over a loader."""
        if self.loader is not None:
            self.loader.begins(loader, iterator)

    def rarely(self):
        """Once a second, between two steps."""
        if self.collect is not None:
            self.collect.look()

    def _arm_nan(self):
        from .nonfinite import NanHeal

        NanHeal(self.agent, self.torch, self.adapter).patch()
        self.agent.say("armed", act="hold-update")

    def _arm_workers(self):
        from . import workers

        workers.arm(self.agent, self.torch)

    def _arm_collect(self):
        from ...heal.collect import collect_of

        self.collect = collect_of(self.agent)

    def _arm_loader(self):
        """Around what is timed: a chunk of a batch is no step, and drawing one takes no time."""
        from .loader import LoaderSplit

        self.loader = self.agent.loader_split = LoaderSplit(self.agent, self.torch)
        if self.loader.needed:
            self.loader.arm()
        self.split.loader = self.loader
