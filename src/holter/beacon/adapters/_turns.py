"""Whose steps count where several optimizers or functions take turns."""

import weakref

_TURNS = 5  # steps that others may take in a row before the one that counted is thought to be done


class Turns:
    """Where several take turns, as in a GAN, the first counts; one that goes on alone has taken over."""

    def __init__(self):
        self.main_id = None
        self._main = None
        self.others = 0  # steps that others have taken since the last one that counted

    def counts(self, thing):
        """For how many steps this one counts; a newcomer that took over counts for what it had done before, too."""
        if id(thing) == self.main_id:
            self.others = 0
            return 1
        n = 1
        if self.main_id is not None:
            self.others += 1
            if self.others <= _TURNS:
                return 0
            n = self.others
        self.others = 0
        self.main_id = id(thing)
        try:
            self._main = weakref.ref(thing, self._died)
        except TypeError:
            self._main = thing
        return n

    def _died(self, reference):
        if reference is self._main:
            self.main_id = None
