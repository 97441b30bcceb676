"""When a call that belongs to a whole batch acts: with the last of its parts, and not before.

A loop that accumulates by itself calls `step` every few iterations: then it acts every so many batches. What is called
outside of a pass over the loader, such as a schedule of epochs, acts as ever. While the first batch is gone through it
is watched whether the loop does anything that parts would spoil.
"""

from ...heal.leaves import Unsplittable

_SEVERAL = "several updates are made with each batch"
_BY_HAND = "gradients or weights are changed by hand between backward and the update"
_RATE = "the loop sets the learning rate by its own count of iterations"


class Gate:
    """The calls of one thing: every how many iterations it is called."""

    def __init__(self):
        self.course = None
        self.last = 0
        self.every = None
        self.verdict = True


class Once:
    """Knows who has called what, and when it is due."""

    def __init__(self, split):
        self.split = split
        self.passing = False  # within a call that was let through
        self.begin_anew()

    def begin_anew(self):
        """Nothing is gathered yet, and nothing known of who calls how often."""
        self.gates = {}
        self.gathered = self.stepped = False
        self.asked_length = False  # the loop asks for the pass's length, and goes by that
        self.broken = False  # what was learned can't be gone on with, whatever is allowed
        self.marks = self.rates = None

    # --- who may act --------------------------------------------------------------------------------------

    def due(self, kind, thing):
        """Tell whether a call acts now."""
        course = self.split.now
        if self.passing or course is None or course.batch is None:
            return True
        gate = self.gates.setdefault((kind, id(thing)), Gate())
        if gate.course is not course:
            gate.course, gate.last = course, 0
        if course.serial != gate.last:
            self._judge(gate, kind, course)
        return gate.verdict and not course.lesson.redo

    def _judge(self, gate, kind, course):
        gap, gate.last = course.serial - gate.last, course.serial
        final = course.at_last and self._ends_pass(course)
        if gate.every is None:
            gate.every = gap
        if gap != gate.every and not final:
            words = "%s is called after %d iterations here and after %d there"
            self.split.decline(course.lesson, words % (kind, gate.every, gap))
        gate.verdict = course.at_last and (course.number % gate.every == 0 or final)

    def _ends_pass(self, course):
        try:
            return course.drawn == self.split.batches_of(course.loader())
        except (TypeError, AttributeError):
            return False

    def new_batch(self):
        """Where each batch has its update, what is left of one without it is not carried on."""
        every = [gate.every for (kind, _), gate in self.gates.items() if kind == "optimizer.step"]
        if not every or every == [1] * len(every):
            self.gathered = False

    def gathered_by(self, course):
        """After a backward."""
        if course is None or course.batch is None:
            return
        self.gathered = True
        if not course.lesson.settled:
            self.marks = _marks(self.split.weights())
            self.rates = self._rates() if course.at == 0 else self.rates

    def before_backward(self, course):
        """While it is learned: is all as the part before has left it?"""
        if self.split.backwards:
            if self.stepped:
                self._broken(_SEVERAL)
        elif not course.lesson.settled and course.at:
            if self.marks is not None and _marks(self.split.weights()) != self.marks:
                self._broken(_BY_HAND)
            by_length = self.asked_length and not course.before  # the same place of the pass, in either count
            if self.rates is not None and self._rates() != self.rates and not by_length:
                self._broken(_RATE)

    def _broken(self, why):
        self.broken = True
        raise Unsplittable(why)

    def _rates(self):
        optimizers = [one for ref in self.split.optimizers if (one := ref()) is not None]
        return [group.get("lr") for one in optimizers for group in one.param_groups]


def _marks(weights):
    """What changes when a gradient or a weight is written to, or replaced."""
    return [(id(w.grad), w.grad._version if w.grad is not None else 0, w._version) for w in weights]
