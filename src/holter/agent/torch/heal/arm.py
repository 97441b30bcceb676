"""The reflexes of PyTorch that `--heal` arms, in the order in which they must stand around each other.

Each is imported where it is armed: without `--heal` nothing of them is wanted.
"""

import functools
import inspect
import os

from ....record import environment


class Healing:
    """What is armed in this process."""

    def __init__(self, adapter):
        self.adapter, self.agent, self.torch, self.guard = adapter, adapter.agent, adapter.torch, adapter.guard
        self.collect = None
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

    def watch(self, models, optimizer):
        """An optimizer trains these models."""
        self.split.watch(models, optimizer)

    def rarely(self):
        """Once a second, between two steps."""
        if self.collect is not None:
            self.collect.look()

    def _arm_nan(self):
        from .nonfinite import NanHeal

        NanHeal(self.agent, self.torch, self.adapter).patch()
        self.agent.say("armed", act="hold-update")

    def _arm_workers(self):
        _without_workers(self.agent, self.torch)

    def _arm_collect(self):
        from ...heal.collect import collect_of

        self.collect = collect_of(self.agent)


# --- No data workers: in a process that was started again since its workers hung or found no memory
# `HOLTER_WORKERS=0` says so. Every DataLoader then loads in the trainer: the same samples in the same order. What the
# dataset draws at random it draws from the trainer's generators. Keeps: equivalent. A loader whose workers are set up
# by a function of the script's is left as it is: without them that function would never run.


def _without_workers(agent, torch):
    """Stand around `DataLoader.__init__`, where a restart asks for it."""
    if os.environ.get(environment.WORKERS) != "0":
        return
    loader_class = torch.utils.data.DataLoader
    inner = loader_class.__init__
    signature = inspect.signature(inner)
    reported = set()

    @functools.wraps(inner)
    def __init__(loader, *args, **kwargs):  # noqa: N807
        try:
            args, kwargs = _without(agent, signature, reported, loader, args, kwargs)
        except Exception as error:
            agent.guard.caught("workers", error)
        inner(loader, *args, **kwargs)

    loader_class.__init__ = __init__


def _without(agent, signature, reported, loader, args, kwargs):
    given = signature.bind(loader, *args, **kwargs).arguments
    given.pop("self", None)
    workers = given.get("num_workers") or 0
    if not workers:
        return args, kwargs
    step = agent.beat.steps + 1
    if given.get("worker_init_fn") is not None:
        if "init" not in reported:
            reported.add("init")
            because = "the loader's workers are set up by a function of the script's (worker_init_fn)"
            agent.say("declined", act="no-workers", step=step, because=because)
        return args, kwargs
    for name in ("num_workers", "prefetch_factor", "persistent_workers", "timeout", "multiprocessing_context"):
        given.pop(name, None)
    if workers not in reported:
        reported.add(workers)
        text = "data are loaded in the trainer instead of in %d workers" % workers
        because = "what the data draw at random, they draw in the trainer"
        agent.say("intervention", act="no-workers", keeps="equivalent", step=step, text=text, because=because)
    return (), dict(given)
