"""Who was made where: live models, optimizers, loaders and traced functions by the user's line that made them."""

import time
import weakref

from .user_frame import place_of, user_frame

_MAX_SITES = 200  # a script that makes things on more lines than this is counted, not listed


def site_of(frame):
    """A frame as the line that made something: file, line, function; None without a frame."""
    return None if frame is None else (frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


class _Site:
    __slots__ = ("alive", "made", "reported", "reported_at", "where")

    def __init__(self, where):
        self.where = where
        self.made = 0
        self.alive = 0
        self.reported = (0, 0)
        self.reported_at = 0.0


class Census:
    """Counts births by line and deaths through weak references; it never keeps anything alive."""

    def __init__(self, say):
        self.say = say
        self.sites = {}
        self._refs = {}

    def born(self, what, thing, site=None, **facts):
        """Note a new object; `site` is the user's line that made it, as `site_of` gives it, where it is known.

        `facts` are reported with it: what it was made with, of the first that was made on that line.
        """
        site = site or site_of(user_frame(2))
        if site is None:
            return
        key = (what, type(thing).__name__, site[0], site[1])
        entry = self.sites.get(key)
        if entry is None:
            if len(self.sites) >= _MAX_SITES:
                return
            where = dict(place_of(*site), what=what, name=type(thing).__name__, **facts)
            entry = self.sites[key] = _Site(where)
        number = id(thing)
        known = self._refs.get(number)
        if known is not None and known() is thing:
            return  # initialised a second time, but born once

        def died(_ref, entry=entry, number=number, refs=self._refs):
            entry.alive -= 1
            refs.pop(number, None)

        self._refs[number] = weakref.ref(thing, died)
        entry.made += 1
        entry.alive += 1
        # The first is reported at once, so that a run that dies early has it; the rest at the pace of `report`.
        if entry.made == 1:
            self._report(entry, time.monotonic())

    def born_of_fork(self):
        """In a forked child: what the parent made is the parent's to report."""
        self.sites = {}

    def report(self, now):
        """Say what has changed, at most once a second per line; called now and then from a step."""
        for site in list(self.sites.values()):
            if (site.made, site.alive) != site.reported and now - site.reported_at >= 1.0:
                self._report(site, now)

    def _report(self, site, now):
        site.reported = (site.made, site.alive)
        site.reported_at = now
        self.say("made", made=site.made, alive=site.alive, **site.where)
