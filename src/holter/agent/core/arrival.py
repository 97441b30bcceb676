"""The agent's arrival: called from sitecustomize in every Python that the command starts.

In a process that is no training it opens one empty file for stacks, watches for imports, and is silent.
"""

import os
import sys
import time

from ...record import environment
from .exit_hooks import ExitHooks
from .guard import Guard
from .import_hook import ApiFinder, ImportHook

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
        self._heal = bool(os.environ.get(environment.HEAL))
        self.forks = 0
        self._beat = None
        self._census = None
        self._retained = None
        self._greeted = False

    @property
    def heal(self):
        """Whether we may act. One of several ranks is only watched."""
        if self._heal:
            from .ranks import ranks

            several, rank = ranks()
            if several > 1:
                self._heal = False
                because = "%d ranks train together and can't be changed one by one: " % several
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
            self.exit_hooks.last_acts.append(self.guard(lambda: census.report(_EVER)))
        return self._census

    @property
    def retained(self):
        if self._retained is None:
            from ..retained.growth import RetainedGrowth

            self._retained = RetainedGrowth(self)
        return self._retained

    def _make_ring(self):
        from .heartbeat import Ring

        ring = Ring(self.folder)
        self.guard.words = ring.words
        return ring

    def greet(self, role=None):
        """Say hello, once for each role that this process turns out to have."""
        if self._greeted and (role is None or role == self.role):
            return
        self._greeted = True
        self.role = role or self.role
        if role is not None:
            self.answer()
        if role == "trainer":
            from ..observe.caught_errors import CaughtErrors

            self.guard(CaughtErrors(self).begin)()
        # Which role a process has, in which job; nothing else of the environment is ever recorded.
        from ...facts.job import job_of

        job = job_of(os.environ)
        facts = {str(name): job[name] for name in ("rank", "world") if name in job}
        if job:
            facts["job"] = job
        if role == "worker" and self._retained is not None and self._retained.inherited:
            facts["inherited"] = self._retained.inherited
        argv = getattr(sys, "argv", None) or [""]
        if argv[0].endswith(".py"):
            facts["file"] = os.path.abspath(argv[0])
        version = "%d.%d.%d" % sys.version_info[:3]
        self.say("guest", ppid=os.getppid(), python=version, role=self.role, **facts)

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
        """From here on there is something in this process to ask for: a framework, or the role that it has."""
        from . import stacks

        self.guard(stacks.start)(self.folder)

    def before_fork(self):
        """Count the forks: the child inherits its number."""
        self.forks += 1

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
        if self._retained is not None:
            self._retained.born_of_fork(self.forks)
        from . import stacks

        stacks.born_of_fork(self.folder)


def arrive(folder):
    """Set everything up; runs before the script's first line."""
    agent = Agent(folder)
    sys.modules["_holter"].agent = agent  # type: ignore[attr-defined]
    from . import import_hook, stacks

    agent.guard(stacks.arm)(folder)
    import_hook.wait_for_frameworks(agent)
    agent.hook.install()
    sys.meta_path.append(ApiFinder())
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=agent.guard(agent.before_fork), after_in_child=agent.guard(agent.born_of_fork))

    import atexit

    atexit.register(agent.guard(agent.exit_hooks.at_exit))


# --- Rare facts from inside the process: JSON lines appended to a file of this process's own

# An agent that talks too much is cut off: the record stays bounded whatever the script does.
_MAX_LINES = 5000
_MAX_BYTES = 4 << 20


class Say:
    """Appends one line per fact with a single write, so that a kill leaves at most one torn line at the end."""

    def __init__(self, path):
        self.path = path
        self.pid = os.getpid()
        self.lines = 0
        self.bytes = 0
        self.torn = False

    def __call__(self, kind, /, **fields):
        if self.lines >= _MAX_LINES or self.bytes >= _MAX_BYTES:
            return
        self.lines += 1
        try:
            data = self._line(kind, fields)
        except Exception:
            return  # something that can't be written down: the rest still can
        try:
            self._append(data)
        except OSError:
            self.lines = _MAX_LINES  # a full or vanished folder: fall silent, the training goes on

    def _line(self, kind, fields):
        import json  # not before there is something to say: a script may bring a module of that name itself

        line = {"k": kind, "t": time.time(), "m": time.monotonic(), "pid": self.pid}
        line.update(fields)
        return json.dumps(line, default=str, separators=(",", ":")).encode("utf-8", "replace") + b"\n"

    def _append(self, data):
        # Opened for each line: a script that closes all files may have been given our number for one of its own.
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            if self.torn:
                data = b"\n" + data
            self.bytes += len(data)
            self.torn = os.write(fd, data) != len(data)
        finally:
            os.close(fd)
