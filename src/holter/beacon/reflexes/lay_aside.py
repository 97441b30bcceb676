"""Models that a script keeps and no longer trains are laid aside on disk when memory runs out.

The folds of a cross-validation that are to vote in the end, the trials of a search: each keeps its weights, their
gradients and the optimizer's state. They stay where they are, with all that refers to them (`_on_disk_linux`); only the
kernel no longer has to hold them. What Keras has traced for them is dropped, and traced again when they are used.
Keeps: exact, since nothing is changed; what is used again is read again.
"""

import os
import sys
import tempfile
import weakref
from importlib import import_module
from time import monotonic

from ._heap_glibc import map_by_themselves
from ._host_free import held, left
from ._host_room import raise_the_wall
from .collect import collect_of, let_all_go, megabytes

_SOON, _NEAR = 0.45, 0.3  # of the memory that this process has or may still have
_ENOUGH = 0.5  # of it, that is to be left after
_IDLE, _OTHERS = 1.5, 10  # seconds in which others were trained, or their steps
_PAUSE = 30.0  # seconds after one that gave nothing
_LARGE = 1 << 20


def aside_of(guest):
    """The one of this process, whichever framework comes first; None where it can't be done."""
    if guest.aside is None:
        try:
            disk = import_module("._on_disk_" + sys.platform, __package__)
        except ImportError:
            return None
        guest.aside = LayAside(guest, disk.OnDisk)
    return guest.aside


class LayAside:
    """Asked about once a second, between two steps."""

    def __init__(self, guest, on_disk):
        self.guest, self.on_disk = guest, on_disk
        self.kept = []  # what is or was trained, by the order in which it began
        self.known = weakref.WeakKeyDictionary()  # by what trains it
        self.disk = None
        self.off = self.ready = False
        self.next_at = 0.0
        self.told = 0

    def watch(self, trainer, one):
        """Know of something that is trained: `mark()` changes when it is, `blocks()` is what it holds."""
        before = self.known.get(trainer)
        if before is None:
            before = self.known[trainer] = Kept(one)
            self.kept.append(before)
        before.one = one

    def look(self):
        """Lay aside what was not trained of late, the oldest first, where memory is running out."""
        if self.off:
            return
        now, steps = monotonic(), self.guest.beat.steps
        self.kept = [one for one in self.kept if one.lives()]
        idle = [one for one in self.kept if one.is_idle(now, steps)]
        if not idle:
            return
        mine, room = held(), left()
        if mine is None or room is None or room > _SOON * (mine + room):
            return
        if not self.ready:
            self.ready = True
            map_by_themselves(_LARGE)  # only such blocks can be put on disk one by one
        if room >= _NEAR * (mine + room) or now < self.next_at:
            return
        collect_of(self.guest).collect(now, mine, room)  # what is only garbage needs no disk
        idle, mine, room = [one for one in idle if one.lives()], held(), left()
        if idle and room < _NEAR * (mine + room):
            self._lay_aside(idle, mine, room)

    def _lay_aside(self, idle, mine, room):
        try:
            if self.disk is None or self.disk.pid != os.getpid():
                self.disk = self.on_disk([os.environ.get("HOLTER_STATE_DISK"), tempfile.gettempdir()])
            moved = models = shrunk = 0
            for one in idle:
                if room + moved > _ENOUGH * (mine + room):
                    break
                shrunk += one.shrink()
                gone = self.disk.put(one.blocks())
                one.is_aside = True
                moved, models = moved + gone, models + bool(gone)
        except OSError as error:
            self.off = True
            self._say("declined", because="idle models could not be put on disk: %s" % error)
            return
        if shrunk:
            let_all_go()
        if not moved:
            self.next_at = monotonic() + _PAUSE
            return
        raise_the_wall(moved)
        self._tell(models, room)

    def _tell(self, models, room):
        """The first time, and whenever it has become twice as much."""
        if self.told and self.disk.at < 2 * self.told:
            return
        self.told = self.disk.at
        who = "%d models that are kept and not trained any more were" % models
        if models == 1:
            who = "1 model that is kept and not trained any more was"
        text = "%s were left before the limit: %s laid aside on disk, %s so far"
        text = text % (megabytes(room), who, megabytes(self.disk.at))
        self._say("intervention", keeps="exact", text=text, because="")

    def _say(self, kind, **fields):
        self.guest.say(kind, act="lay-aside", step=self.guest.beat.steps + 1, **fields)


class Kept:
    """Something that is trained, and since when it is not."""

    def __init__(self, one):
        self.one = one
        self.mark = None
        self.since, self.steps = 0.0, 0
        self.is_aside = self.rests = False

    def lives(self):
        return self.one.lives()

    def shrink(self):
        return self.one.shrink()

    def blocks(self):
        return self.one.blocks()

    def is_idle(self, now, steps):
        """True where others were trained for a while and it was not, and it is not laid aside already."""
        mark = self.one.mark()
        if mark != self.mark:
            self.mark, self.since, self.steps = mark, now, steps
            self.is_aside = self.rests = False
            return False
        others = steps - self.steps - 1  # its own last one may have come after the look
        if others < 1 or (others < _OTHERS and now - self.since < _IDLE):
            return False
        if not self.rests:
            self.rests = True
            self.one.rests()
        return not self.is_aside
