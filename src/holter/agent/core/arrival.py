"""The agent's arrival: called from sitecustomize in every Python that the command starts.

In a process that is no training it opens one empty file for stacks, watches for imports, and is silent.
"""

import os
import sys

from ...record import environment
from .exit_hooks import ExitHooks
from .guard import Guard
from .import_hook import ApiFinder, ImportHook
from .report import Say

# Variables that say which part a process plays; nothing else of the environment is ever recorded.
_PART = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
_EVER = float("inf")


class Agent:
    """All that one process's agent consists of; frameworks are handed this and nothing else."""

    def __init__(self, folder):
        self.folder = folder
        self.pid = os.getpid()
        self.say = Say(os.path.join(folder, "%d.jsonl" % self.pid))
        self.guard = Guard(self.say)
        self.exit_hooks = ExitHooks(self.say, self.guard)
        self.hook = ImportHook(self.guard)
        self.role = "python"
        self._heal = os.environ.get(environment.HEAL)
        self.loader_split = None  # under --heal: what hands out batches in chunks, where that is asked for
        self._beat = None
        self._census = None
        self._holdings = None
        self._greeted = False

    @property
    def heal(self):
        """Which acts are allowed: None, "safe" or "all". One of several ranks is only watched."""
        if self._heal:
            from .ranks import ranks

            several, rank = ranks()
            if several > 1:
                self._heal = None
                because = "%d ranks train together, and one of them may not be altered alone: " % several
                if rank == 0:
                    self.say("declined", act="heal", because=because + "this run is only watched")
        return self._heal

    @property
    def beat(self):
        """The heartbeat, made when the first adapter wants it."""
        if self._beat is None:
            from .heartbeat import Beat

            self._beat = Beat(self._make_ring)
            self.exit_hooks.last_acts.append(self.guard(self._beat.flush))
        return self._beat

    @property
    def census(self):
        if self._census is None:
            from .creation_sites import Census

            self._census = census = Census(self.say)
            self.exit_hooks.last_acts.append(self.guard(lambda: census.tell(_EVER)))
        return self._census

    @property
    def holdings(self):
        if self._holdings is None:
            from ..retained.growth import RetainedGrowth

            self._holdings = RetainedGrowth(self)
        return self._holdings

    def _make_ring(self):
        from .ring import Ring

        ring = Ring(self.folder)
        self.guard.words = ring.words
        return ring

    def greet(self, role=None):
        """Say hello, once for each part that this process turns out to play."""
        if self._greeted and (role is None or role == self.role):
            return
        self._greeted = True
        self.role = role or self.role
        if role is not None:
            self.answer()
        part = {name.lower(): os.environ[name] for name in _PART if name in os.environ}
        argv = getattr(sys, "argv", None) or [""]
        if argv[0].endswith(".py"):
            part["file"] = os.path.abspath(argv[0])
        version = "%d.%d.%d" % sys.version_info[:3]
        self.say("guest", ppid=os.getppid(), python=version, role=self.role, argv0=argv[0], **part)

    def adapter(self, framework, version, install):
        """Let an adapter in, or record why it was declined."""
        self.greet()
        self.answer()
        try:
            because = install()
        except Exception as error:
            because = "%s: %s" % (type(error).__name__, str(error)[:300])
        if because:
            self.say("adapter", framework=framework, version=version, state="declined", because=because)
        else:
            self.say("adapter", framework=framework, version=version, state="on")

    def answer(self):
        """From here on there is something in this process to ask for: a framework, or the part that it plays."""
        from . import stack_thread

        self.guard(stack_thread.start)(self.folder)

    def born_of_fork(self):
        """In a forked child: leave the parent's ring and files alone, and be an agent of this process's own."""
        self.pid = os.getpid()
        self.say.__init__(os.path.join(self.folder, "%d.jsonl" % self.pid))  # type: ignore[misc]
        self.exit_hooks.pid = self.pid  # a child that ends like a program of its own has its own last word
        self.role = "python"
        self._greeted = False
        if self._beat is not None:
            self.guard.words = None
            self._beat.reset(self._make_ring)
        if self._census is not None:
            self._census.born_of_fork()
        if self._holdings is not None:
            self._holdings.reset()
        from . import stack_dump, stack_thread

        stack_dump.born_of_fork(self.folder)
        stack_thread.born_of_fork()


def arrive(folder):
    """Set everything up; runs before the script's first line."""
    agent = Agent(folder)
    sys.modules["_holter"].agent = agent  # type: ignore[attr-defined]
    from . import import_hook, stack_dump

    agent.guard(stack_dump.arm)(folder)
    import_hook.wait_for_frameworks(agent)
    agent.hook.install()
    sys.meta_path.append(ApiFinder())
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=agent.guard(agent.born_of_fork))

    import atexit

    atexit.register(agent.guard(agent.exit_hooks.at_exit))
