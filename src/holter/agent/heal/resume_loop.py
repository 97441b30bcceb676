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

import ctypes
import os
import pickle
import struct
import sys
import threading
from math import nan
from time import monotonic, thread_time

from ...facts import host_memory
from ...record import environment
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
from . import copy_budget as budget
from . import state_owner as whose

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
                for _ in range(level.skip):
                    next(source, None)
                    beat.alive()
                beat.enter(previous)
                guard(session.arrived)(self.levels)
            for item in source:
                before = beat.steps
                yield item
                level.done += 1
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


# --- Where a loop's states are kept: written by a thread, whole or not at all, the last two of them
# Small states lie in shared memory, larger ones on disk; a copy goes to the disk now and then in any case. What a
# process has written is still there after a SIGKILL, in either place.

_MAX_KEPT = 2
_MEMORY_SHARE = 0.05  # of the memory there is, for all that lies in shared memory
_DISK_EVERY_SECONDS = 60.0
_END = ".state"


class Store:
    """The states of one loop, by rising numbers."""

    def __init__(self, agent, name):
        self.agent, self.name = agent, name
        self.fast = os.environ.get(environment.STATE)
        self.disk = os.environ.get(environment.STATE_DISK)
        self.number = 0
        self.size = 0
        self.reported_at = self.next_disk = 0.0
        self.lock = threading.Lock()
        self.waiting = None
        self.busy = False

    def put(self, frame, snapshot):
        """Have a state written as soon as its copies have arrived."""
        with self.lock:
            self.waiting = frame, snapshot
            if not self.busy:
                self.busy = True
                # No daemon: one that is cut off at the end of the interpreter, in the middle of PyTorch, aborts it.
                threading.Thread(target=self._work, name="holter-state").start()

    def newest(self):
        """The newest state that can be read as (frame, tensors, where it lay), or None."""
        found = [(number, os.path.dirname(path) == self.fast, path) for number, path in self._paths()]
        for number, fast, path in sorted(found, reverse=True):
            self.number = max(self.number, number)
            try:
                return (*read(path), "in shared memory" if fast else "on disk")
            except Exception as error:  # one that a crash of the machine has torn: the one before it is whole
                self.agent.guard.caught("state", error)
        return None

    def forget(self):
        """Drop all states of a loop that is done with, also the one that is still to be written."""
        folders = self._folders()
        with self.lock:
            self.waiting, self.disk, self.fast = None, None, None
        for _number, path in self._paths(folders):
            _drop(path)

    def _folders(self):
        return [folder for folder in (self.fast, self.disk) if folder and os.path.isdir(folder)]

    def _paths(self, folders=None):
        start = self.name + "."
        for folder in self._folders() if folders is None else folders:
            for name in os.listdir(folder):
                if name.startswith(start) and name.endswith(_END):
                    yield int(name[len(start) : -len(_END)]), os.path.join(folder, name)

    def _work(self):
        while True:
            with self.lock:
                taken, self.waiting = self.waiting, None
                if taken is None:
                    self.busy = False
                    return
            try:
                frame, snapshot = taken
                snapshot.wait()
                self._keep(frame, snapshot.tensors)
            except Exception as error:
                self.agent.guard.caught("state", error)
            taken = frame = snapshot = None

    def _keep(self, frame, tensors):
        self.number += 1
        self.size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        kept = self._fits() and self._write(self.fast, frame, tensors, False)
        now = monotonic()
        if not kept or now >= self.next_disk:
            self.next_disk = now + _DISK_EVERY_SECONDS
            kept = self._write(self.disk, frame, tensors, kept) or kept
        if kept and (not self.reported_at or now >= self.reported_at + _DISK_EVERY_SECONDS):
            self.reported_at = now
            self.agent.say("state", source="resumable", step=frame["steps"], epoch=frame["epoch"], bytes=self.size)

    def _fits(self):
        """Shared memory counts as the run's own: only as much of it is taken as will not be missed."""
        try:
            there = os.statvfs(self.fast or "")
        except OSError:
            return False
        most = min(_MEMORY_SHARE * _memory(), there.f_bavail * there.f_frsize / 2)
        return (_MAX_KEPT + 1) * self.size <= most and self.fits_in_memory()

    def fits_in_memory(self):
        """A copy of the state is taken from what the training has left: never more than a tenth of it."""
        free = budget.free()
        return free is None or self.size <= free // budget.SHARE

    def _write(self, folder, frame, tensors, lasting):
        if not folder:
            return False
        path = os.path.join(folder, "%s.%d%s" % (self.name, self.number, _END))
        try:
            write(path, frame, tensors, lasting)
        except OSError as error:
            self.agent.guard.caught("state", error)
            return False
        if folder not in (self.fast, self.disk):
            _drop(path)  # the loop was done with while this was written
            return False
        for _number, old in sorted(self._paths([folder]))[:-_MAX_KEPT]:
            _drop(old)
        return True


def _drop(path):
    """Remove a state, which the training's thread and the one that writes may both do at once."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _memory():
    """The memory that this process may take: the machine's, or its control groups'."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([total, *(limit for _folder, limit in host_memory.groups())])


# --- A state as a file: a pickled frame, then the tensors' bytes as they lie in memory
# Not `torch.save`: that one computes checksums while it holds the interpreter's lock, and the training would wait for
# it. A plain write lets go of the lock. The file is the user's own and private; nobody else's is ever read.

_HEAD = struct.Struct("<8sQ")
_MAGIC = b"HOLTSTAT"


def write(path, frame, tensors, lasting):
    """Write to a new file and put it in its place; returns its size."""
    rows = [(str(tensor.dtype).partition(".")[2], tuple(tensor.shape), _bytes(tensor)) for tensor in tensors]
    head = pickle.dumps((frame, rows), 4)
    unfinished = path + ".part"
    try:
        with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb", 0) as file:
            _all(file, _HEAD.pack(_MAGIC, len(head)))
            _all(file, head)
            for tensor, row in zip(tensors, rows):  # noqa: B905 - newer than 3.9
                if row[2]:
                    _all(file, (ctypes.c_char * row[2]).from_address(tensor.data_ptr()))
            if lasting:
                os.fsync(file.fileno())
            size = file.tell()
        os.replace(unfinished, path)
        return size
    except OSError:
        if os.path.exists(unfinished):
            os.unlink(unfinished)  # half of it would only hold the space that is missing
        raise


def read(path):
    """The frame and the tensors of a file; raises where it is not whole."""
    torch = sys.modules.get("torch")
    with open(path, "rb") as file:
        magic, length = _HEAD.unpack(file.read(_HEAD.size))
        if magic != _MAGIC:
            raise ValueError("not a state")
        frame, rows = pickle.loads(file.read(length))
        tensors = []
        for dtype, shape, size in rows:
            held = bytearray(file.read(size))
            if len(held) != size:
                raise ValueError("cut off")
            kind = getattr(torch, dtype)
            flat = torch.frombuffer(held, dtype=kind) if size else torch.empty(0, dtype=kind)
            tensors.append(flat.reshape(shape))
    return frame, tensors


def _bytes(tensor):
    return tensor.numel() * tensor.element_size()


def _all(file, data):
    view = memoryview(data).cast("B")
    while view:
        view = view[file.write(view) :]
