"""`holter.resumable`: a plain loop that goes on where a killed process left it.

    for epoch in holter.resumable(range(10), model=model, optimizer=optimizer):
        for batch in holter.resumable(loader):

The outermost call names what is to be kept; calls within it only have a place of their own. Whenever a pass of the
innermost loop has made its step, and some seconds have gone by, the state is copied: what was named, the random
generators, and the place in each loop. In a process that was started again the state is put back, what was done is
passed over, and the loop goes on. Keeps: exact, as far as the script keeps nothing else from step to step.
"""

import os
import sys
from math import nan
from time import monotonic, thread_time
from zlib import crc32

from ...record import ring_format as f
from ._loop_state import Snapshot, can_be_kept, cooked, generators_of, put_back, put_back_random, random_state, raw
from ._state_store import Store

_OF_THE_TIME = 0.02  # what copying may take


def loops_of(guest):
    """The loops of this process."""
    loops = getattr(guest, "resumes", None)
    if loops is None:
        loops = guest.resumes = Loops(guest)
    return loops


class Loops:
    """All resumable loops of a process; those that are under way form a stack."""

    def __init__(self, guest):
        self.guest = guest
        self.attempt = int(os.environ.get("HOLTER_ATTEMPT") or 1)
        self.sessions = []  # of the outermost loops so far
        self.session = None  # the present one
        self.levels = []
        self.steps_before = 0  # of earlier attempts

    def run(self, items, every, things):
        """The loop itself: a generator, so that the loop's body stands between its steps."""
        guard, beat = self.guest.guard, self.guest.beat
        level, outermost = Level(items), not self.levels
        if outermost:
            self.session = guard(self._begin)(every, things)
        session = self.session
        self.levels.append(level)
        try:
            if session is not None:
                if session.over:
                    return
                guard(session.enter)(self.levels)
            source = iter(items)
            if level.skip:
                previous = beat.enter(f.DATA)
                self._whole_batches(True)
                for _ in range(level.skip):
                    next(source, None)
                    beat.alive()
                self._whole_batches(False)
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
                guard(session.finished)(self.levels)
        finally:
            while self.levels and self.levels.pop() is not level:
                pass  # loops within, left by an exception
            if self.levels:
                self.levels[-1].within = True
            else:
                self.session = None

    def _whole_batches(self, still):
        if self.guest.parts is not None:
            self.guest.parts.still = still

    def _midway(self, source):
        """A loader that hands out its batches in parts: only a whole one counts."""
        return self.guest.parts is not None and self.guest.parts.midway(source)

    def _begin(self, every, things):
        name = "loop-%08x-%d" % (crc32("\0".join(sys.argv).encode("utf-8", "replace")), len(self.sessions))
        unknown = [word for word, thing in things.items() if not can_be_kept(thing)]
        because = ""
        if unknown:
            because = "%s has no state_dict that could be copied" % ", ".join(unknown)
        elif int(os.environ.get("WORLD_SIZE") or 1) > 1:
            because = "there are several ranks, which would have to be copied at the same step"
        elif not self._claim(name):
            because = "another process of this run has the same command line and a loop of the same number"
        session = None
        if because:
            self.guest.say("declined", act="resumable", step=self.guest.beat.steps + 1, because=because)
        else:
            session = Session(self, name, every, things)
        self.sessions.append(session)
        if len(self.sessions) > 2 and self.sessions[-3] is not None:
            self.sessions[-3].store.forget()  # a script with a loop per epoch would fill the disk
            self.sessions[-3] = None
        if session is not None and self.attempt > 1:
            session.restore()
        return session

    def _claim(self, name):
        folder = os.environ.get("HOLTER_STATE") or os.environ.get("HOLTER_STATE_DISK")
        if not folder:
            return False
        try:
            os.close(os.open(os.path.join(folder, "%s.%d.taken" % (name, self.attempt)), os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return False
        return True

    def _stepped(self, before):
        beat = self.guest.beat
        if beat.steps == before:  # no framework has counted it
            self.guest.greet("trainer")
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

    def __init__(self, loops, name, every, things):
        self.loops, self.guest, self.every, self.things = loops, loops.guest, every, things
        self.store = Store(self.guest, name)
        self.next_copy = 0.0
        self.saved = self.tensors = None  # until the loops are where they were
        self.over = False  # an earlier attempt has left this loop behind

    def restore(self):
        """Put back the newest state; if that fails, all is as the script made it."""
        found = self.store.newest()
        if found is None:
            self.over = self.store.over()
            return
        saved, tensors, where = found
        beat = self.guest.beat
        made = Snapshot(self.things)
        made.wait()
        try:
            put_back(self.things, saved["things"], tensors)
        except Exception as error:
            put_back(self.things, made.things, made.tensors)
            because = "the state of the attempt before does not fit: %s" % str(error)[:200]
            self.guest.say("declined", act="resume", step=beat.steps + 1, because=because)
            return
        self.saved, self.tensors = saved, tensors
        passed = saved["steps"] - self.loops.steps_before - beat.steps
        self.loops.steps_before += passed
        self.guest.greet("trainer")
        text = "goes on after step %d, from the state %s" % (saved["steps"], where)
        because = "data workers that outlive an epoch draw anew" if saved["lasting"] else ""
        self.guest.say(
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
        if len(levels) < len(self.saved["at"]):
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
        first, began = not self.next_copy, thread_time()
        self.copy(levels)
        # The first one also imports what it is made with: that says nothing of the others.
        took = 0.0 if first else thread_time() - began
        self.next_copy = now + max(self.every, took / _OF_THE_TIME)

    def copy(self, levels):
        """Copy the state as it is now, and have it written."""
        beat = self.guest.beat
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

    def finished(self, levels):
        """The outermost loop is done: a process that is killed after it need not train again."""
        if self.saved is None:
            self.copy(levels)
