"""Whose steps count where several optimizers or functions take turns: a step is one round of them."""

import weakref

_ALONE = 5  # rounds of a newcomer's own after which those before it are thought to be done


class Turns:
    """The first of a round counts; a round is over when one of it comes again, or when the one that counted is gone."""

    def __init__(self):
        self.alone = 0  # the id of one that makes up the rounds by itself, else 0
        self.newcomer = False  # the one that was counted last has not been the first of a round before it
        self.round = set()  # what those of this round work on
        self._first = _nothing
        self._owed = None  # a newcomer whose first turn was taken for a part of an older one's round
        self._own = 0

    def counts(self, thing):
        """For how many steps this one counts."""
        role = _role(thing)
        if role not in self.round and self._first() is not None:
            self.alone = self._own = 0
            self._owed = role
            self.round.add(role)
            return 0
        self.newcomer = self._first() is not thing
        is_alone, self.round = len(self.round) < 2, {role}
        try:
            self._first = weakref.ref(thing, self._gone)
        except TypeError:
            self._first = _something
        self._own += 1
        waits = self._owed == role and self._own <= _ALONE
        paid = self._owed == role and not waits
        if paid:
            self._owed = None
        self.alone = id(thing) if is_alone and not waits else 0  # who is alone is not asked again
        return 2 if paid else 1

    def _gone(self, reference):
        if reference is self._first:
            self.alone = 0


def _role(thing):
    """What an optimizer works on, by its first parameter: one that is made anew takes the place of the one before."""
    groups = getattr(thing, "param_groups", None)
    first = groups[0]["params"] if groups else None
    return id(first[0]) if first else id(thing)


def _nothing():
    return None


def _something():
    return True
