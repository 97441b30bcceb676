"""`holter.resumable`: a plain loop that goes on where a killed process left it.

    for epoch in holter.resumable(range(10), model=model, optimizer=optimizer):
        for batch in holter.resumable(loader):

The outermost call names what is to be kept; calls within it only have a place of their own. Whenever a pass of the
innermost loop has made its step, and some seconds have gone by, the state is copied: what was named, the random
generators, and the place in each loop. In a process that was started again the state is put back, what was done is
passed over, and the loop goes on, where it is known to be the same one (`state_owner`). A loop that was done is run
again: what it draws from is not seen before it is under way, and it may be another one's turn. Keeps: exact, as far as
the script keeps nothing else from step to step.
"""

import sys
from math import nan
from time import monotonic, thread_time

from ...record import ring_format as f
from ..torch.heal.loop_state import (
    Snapshot,
    can_be_kept,
    cooked,
    generators_of,
    put_back,
    put_back_random,
    random_state,
    raw,
)
from . import state_owner as whose
from .state_store import Store

_OF_THE_TIME = 0.02  # what copying may take


def loops_of(agent):
    """The loops of this process."""
    loops = getattr(agent, "resumes", None)
    if loops is None:
        loops = agent.resumes = Loops(agent)
    return loops


class Loops:
    """All resumable loops of a process; those that are under way form a stack."""

    def __init__(self, agent):
        self.agent = agent
        self.trainings = whose.Trainings(agent, "loop")
        self.session = None  # of the present outermost loop
        self.kept = []  # the last two, also those that were left by a `break`
        self.levels = []
        self.steps_before = 0  # of earlier attempts

    def run(self, items, every, things):
        """The loop itself: a generator, so that the loop's body stands between its steps."""
        guard, beat = self.agent.guard, self.agent.beat
        level, outermost = Level(items), not self.levels
        if outermost:
            self.session = guard(self._begin)(items, every, things)
        session = self.session
        self.levels.append(level)
        try:
            if session is not None:
                guard(session.enter)(self.levels)
            source = iter(items)
            if level.skip:
                previous = beat.enter(f.DATA)
                self._full_batches(True)
                for _ in range(level.skip):
                    next(source, None)
                    beat.alive()
                self._full_batches(False)
                beat.enter(previous)
                guard(session.arrived)(self.levels)
            for item in source:
                before = beat.steps
                yield item
                level.done += not self._midway(source)
                if not level.within:
                    guard(self._stepped)(before)
                level.within = False
                if session is not None:
                    guard(session.boundary)(self.levels, beat.steps != before)
            if outermost and session is not None:
                guard(session.finished)()
        finally:
            while self.levels and self.levels.pop() is not level:
                pass  # loops within, left by an exception
            if self.levels:
                self.levels[-1].within = True
            else:
                self.session = None

    def _full_batches(self, still):
        if self.agent.loader_split is not None:
            self.agent.loader_split.still = still

    def _midway(self, source):
        """A loader that hands out its batches in chunks: only a full one counts."""
        return self.agent.loader_split is not None and self.agent.loader_split.midway(source)

    def _begin(self, items, every, things):
        unknown = [word for word, thing in things.items() if not can_be_kept(thing)]
        because = ""
        if not self.agent.heal:
            return None  # it has become one of several ranks since, and that was said
        if unknown:
            because = "%s has no state_dict that could be copied" % ", ".join(unknown)
        elif self.trainings.path is None:
            because = "there is no folder to keep it in"
        if because:
            self.agent.say("declined", act="resumable", step=self.agent.beat.steps + 1, because=because)
            return None
        at = whose.place(sys._getframe(1))
        length = len(items) if hasattr(items, "__len__") else None
        key = at, type(items).__name__, length, [(word, _described(thing)) for word, thing in things.items()]
        training = self.trainings.begin(key, None, at)
        session = Session(self, training, every, things)
        self.kept.append(session)
        for old in self.kept[:-2]:
            old.store.forget()  # a script with a loop per epoch would fill the disk
        del self.kept[:-2]
        if training.again:
            session.restore()
        return session

    def _stepped(self, before):
        beat = self.agent.beat
        if beat.steps == before:  # no framework has counted it
            self.agent.greet("trainer")
            beat.open()
            beat.step(nan, nan, nan, 0, 0)


class Level:
    """One loop: its place, and the random state before it drew its first item."""

    def __init__(self, items):
        self.items = items
        self.done = self.skip = 0
        self.within = False  # the present pass has had a resumable loop in it
        self.random = self.generators = None


class Session:
    """One outermost loop with all that is in it: its state, and what is still to be gone through after a restart."""

    def __init__(self, loops, training, every, things):
        self.loops, self.agent, self.every, self.things = loops, loops.agent, every, things
        self.training = training
        self.store = Store(self.agent, "loop-" + training.number)
        self.next_copy = 0.0
        self.saved = self.tensors = None  # until the loops are where they were

    def restore(self):
        """Put back the newest state; if that fails, all is as the script made it."""
        found = self.store.newest()
        if found is None:
            return
        saved, tensors, where = found
        beat = self.agent.beat
        made = Snapshot(self.things)
        made.wait()
        try:
            put_back(self.things, saved["things"], tensors)
        except Exception as error:
            put_back(self.things, made.things, made.tensors)
            because = "the state of the attempt before does not fit: %s" % str(error)[:200]
            self.agent.say("declined", act="resume", step=beat.steps + 1, because=because)
            return
        self.saved, self.tensors = saved, tensors
        passed = saved["steps"] - self.loops.steps_before - beat.steps
        self.loops.steps_before += passed
        self.agent.greet("trainer")
        text = "goes on after step %d, from the state %s" % (saved["steps"], where)
        because = "data workers that outlive an epoch draw anew" if saved["lasting"] else ""
        self.agent.say(
            "intervention", act="resume", keeps="equivalent" if because else "exact", step=beat.steps + 1,
            because=because, source="resumable", from_step=saved["steps"], passed=passed, text=text,
        )  # fmt: skip

    def enter(self, levels):
        """A loop begins: note where its draws begin, or have it go to where the attempt before left it."""
        level, depth, saved = levels[-1], len(levels) - 1, self.saved
        if saved is None or depth >= len(saved["at"]):
            level.random = random_state()
            level.generators = [raw(generator.get_state()) for generator in generators_of(level.items)]
            return
        level.random, level.generators = saved["random"][depth], saved["generators"][depth]
        put_back_random(level.random)
        for generator, state in zip(generators_of(level.items), level.generators):  # noqa: B905 - newer than 3.9
            generator.set_state(cooked(state))
        level.done = level.skip = saved["at"][depth]
        if not level.skip:
            self.arrived(levels)

    def arrived(self, levels):
        """A loop has passed over what was done; after the innermost one all is as it was."""
        if self.saved is None or len(levels) < len(self.saved["at"]):
            return
        # Again, for what the script has done on the way to this loop.
        put_back(self.things, self.saved["things"], self.tensors)
        put_back_random(self.saved["now"])
        self.saved = self.tensors = None

    def boundary(self, levels, stepped):
        """A pass is done: copy the state when it is time, after a step, when no gradients are half gathered."""
        now = monotonic()
        if now < self.next_copy or not stepped or self.store.busy or self.saved is not None:
            return
        if not self.store.fits_in_memory():
            self.next_copy = now + max(1.0, self.every)
            return
        first, began = not self.next_copy, thread_time()
        self.copy(levels)
        # The first one also imports what it is made with: that says nothing of the others.
        took = 0.0 if first else thread_time() - began
        self.next_copy = now + max(self.every, took / _OF_THE_TIME)

    def copy(self, levels):
        """Copy the state as it is now, and have it written."""
        beat = self.agent.beat
        previous = beat.enter(f.CHECKPOINT)
        try:
            taken = Snapshot(self.things)
            frame = {
                "things": taken.things,
                "now": random_state(),
                "at": [level.done for level in levels],
                "random": [level.random for level in levels],
                "generators": [level.generators for level in levels],
                "lasting": any(getattr(level.items, "persistent_workers", False) for level in levels),
                "steps": self.loops.steps_before + beat.steps,
                "epoch": levels[0].done + 1,
            }
            self.store.put(frame, taken)
        finally:
            beat.enter(previous)

    def finished(self):
        """The outermost loop is done, and its states are of no use."""
        self.loops.trainings.over(self.training)
        self.store.forget()


def _described(thing):
    """What something is known again by: its kind, its structure and its numbers."""
    if hasattr(thing, "modules") and hasattr(thing, "state_dict"):
        return type(thing).__name__, whose.structure(thing)
    groups = getattr(thing, "param_groups", None)
    if groups is not None:
        return type(thing).__name__, whose.plain(groups, words=False)
    return type(thing).__name__, whose.numbers_of(thing) if hasattr(thing, "state_dict") else None
