"""Split at the loader (PyTorch): batches are handed out in parts, and the update is made once for all parts of a batch.

For what runs out of memory outside of the model's call, where nothing can be done in place: a loss, an augmentation, a
metric of the script's own. `HOLTER_LOADER=4` says so to a process that was started again after such an end. The loader
draws the batches that it always drew and cuts them afterwards: samplers, workers and their random numbers do not
notice. Gradients of the parts are weighed as the loss asks for (`reduction`), and all that belongs to a batch
happens at its last part (`batch_calls`). Keeps: equivalent, since the loop sees an iteration for each part.

The first batch is where it is learned whether that is true. Where it is not, nothing has been updated yet: the batch
is handed out once more as it came, and the reason is told. Until parts are wanted nothing of it is in place.
"""

import dis
import functools
import sys
import weakref

from ....record import environment
from ...core.ranks import ranks
from ...heal.counting_loop import who_counts
from ...heal.leaves import Unsplittable
from .batch_calls import BatchCalls, Once, SoftNorms
from .loader_profile import LoaderPass, LoaderProfile, MidEpochSwitch, bounds_of
from .reduction import ScaledBackward
from .split import chunks_asked


class LoaderSplit:
    """Stands around every loader's `__next__` and around `backward`, from when parts are wanted."""

    def __init__(self, agent, torch):
        self.agent, self.guard, self.torch = agent, agent.guard, torch
        self.parts = self.wanted = chunks_asked(environment.LOADER)  # the present ones, and those to come
        self.needed = self.parts > 1  # without them the run has died; otherwise they are only the faster way
        self.handover = MidEpochSwitch()
        self.passes = weakref.WeakKeyDictionary()  # by iterator: what tells its loader
        self.models = []  # weakly: those that an optimizer trains
        self.optimizers = []
        self.lessons = weakref.WeakKeyDictionary()  # by loader
        self.courses = weakref.WeakKeyDictionary()  # by iterator
        self.now = None  # the course whose part the loop is at
        self.drawn = []  # courses drawn from since the last backward
        self.several = ranks()[0] > 1
        self.still = False  # batches are drawn to be passed over
        self.drawing = False
        self.backwards = 0  # of the present part
        self.told = set()
        self.batches_of = len
        self.norms = SoftNorms(torch)
        self.once = Once(self)
        self.armed = False

    def watch(self, models, optimizer):
        """Know what is trained: models, and the optimizer that does it."""
        known = {id(ref()) for ref in self.models}
        self.models = [ref for ref in self.models if ref() is not None]
        self.models += [weakref.ref(model) for model in models if id(model) not in known]
        self.optimizers = [ref for ref in self.optimizers if ref() is not None]
        if all(ref() is not optimizer for ref in self.optimizers):
            self.optimizers.append(weakref.ref(optimizer))

    def weights(self):
        optimizers = [one for ref in self.optimizers if (one := ref()) is not None]
        return [p for one in optimizers for group in one.param_groups for p in group["params"]]

    # --- drawing ------------------------------------------------------------------------------------------

    def arm(self):
        """Stand where a loop's batches and updates go by; once."""
        if not self.armed:
            self.armed = True
            self.agent.say("armed", act="split-loader")
            self.patch()

    def patch(self):
        loader_class = self.torch.utils.data.DataLoader
        iterator_class = sys.modules["torch.utils.data.dataloader"]._BaseDataLoaderIter
        inner_next, inner_len = iterator_class.__next__, loader_class.__len__
        self.batches_of, lengths = inner_len, Lengths(self)

        @functools.wraps(inner_next)
        def __next__(iterator):  # noqa: N807
            if self.waits and self.handover.drew(iterator):
                self.guard(self._begins_midway)(iterator)
            if self.parts < 2:
                return inner_next(iterator)
            course = self.courses.get(iterator)
            if course is None or self.drawing:
                return inner_next(iterator)
            if self.still:
                batch = inner_next(iterator)
                course.number += 1
                return batch
            return self._next(course, iterator, inner_next)

        @functools.wraps(inner_len)
        def __len__(loader):  # noqa: N807
            return lengths.length(loader, inner_len(loader))

        iterator_class.__next__, loader_class.__len__ = __next__, __len__
        ScaledBackward(self).patch()
        BatchCalls(self).patch()

    def ask(self, times):
        """So many times the parts, from the next pass on or where this one can be gone on with so."""
        self.wanted = max(self.wanted, max(1, self.parts) * times)
        self.guard(self.arm)()

    @property
    def waits(self):
        """Whole batches are handed out, and parts are wanted."""
        return self.parts < self.wanted and self.parts < 2

    def begins(self, loader, iterator):
        """A pass over a loader; told by the adapter, from the first one on."""
        # One that keeps its workers refers to its iterator, and both would stay; another may be nobody else's.
        self.passes[iterator] = weakref.ref(loader) if loader.persistent_workers else lambda: loader
        if self.wanted != self.parts and not any(course.open and course.cut for course in self.courses.values()):
            self.parts = self.wanted
        if self.parts > 1:
            self._course(loader, iterator, 0)

    def _begins_midway(self, iterator):
        """The loop has used what it was handed: the rest of the pass comes in parts."""
        loader, frame = self.passes[iterator](), sys._getframe(1)
        if loader is None or self.still:
            return
        if who_counts(frame, True, True) and not who_counts(frame, True):
            self.handover.waits_for_the_next(iterator)
            return
        self.parts = self.wanted
        self._course(loader, iterator, iterator._num_yielded)

    def _more_parts(self, course):
        """Between two batches, when no gradients are waiting and the loop does not go by the length."""
        others = (one for one in self.courses.values() if one is not course)
        if not self.once.gathered and not self.once.asked_length and not any(one.open and one.cut for one in others):
            self.parts = self.wanted

    def _course(self, loader, iterator, drawn):
        before = self.courses.get(iterator)
        if before is not None:
            self._closed(before)
        lesson = self.lessons.get(loader)
        if lesson is None:
            lesson = self.lessons[loader] = LoaderProfile(self.torch, loader)
            lesson.off = "several ranks train together" if self.several else ""
        lesson.begins()
        course = self.courses[iterator] = LoaderPass(weakref.ref(loader), lesson, drawn)
        course.left = weakref.ref(iterator, lambda _ref: self.guard(self._left)(course))

    def _next(self, course, iterator, inner):
        """What the loop is handed: a part of the batch in hand, or the first one of the next."""
        if course.lesson.redo and course is self.now:
            self._undo(course.lesson)
        if course.rewound:
            self.drawn.append(course)
            return course.again(bool(course.lesson.off))
        if course.pending:
            if course in self.drawn:  # no backward followed the last part: the loop only looks at its data
                course.lesson.in_vain()
                self._leave(course)
                return course.rest()
            return self._hand_out(course)
        course.drop()
        if self.now is course:
            self.once.new_batch()
            if self.wanted != self.parts:
                self._more_parts(course)
        self.drawing = True
        try:
            batch = inner(iterator)
        except BaseException:
            course.lesson.iterations = course.handed
            self._closed(course)
            raise
        finally:
            self.drawing = False
        course.number += 1
        try:
            if course in self.drawn:
                course.lesson.in_vain()
            if self._trains(course.lesson) and self._take(course, batch):
                return self._hand_out(course)
        except Exception as error:
            self.guard.caught("loader", error)
            course.drop()
        self._leave(course)
        self.drawn.append(course)
        course.handed += 1
        return batch

    def _hand_out(self, course):
        if self.now is None or not self.now.open or course is self.now or not self.drawn:
            self.now = course
            course.led = True
            self.backwards = 0
            self.once.stepped = False
        self.drawn.append(course)
        return course.next_part()

    def _take(self, course, batch):
        """Cut a batch; False where it is handed out as it came."""
        lesson = course.lesson
        try:
            if not lesson.looked:
                lesson.looked = True
                self.once.begin_anew()
                why = who_counts(sys._getframe(2), not self.needed, bool(course.before))
                if why:
                    raise Unsplittable(why if self.needed else why + "; it goes on in place, which takes longer")
            size, leaves = lesson.cutter.open(batch)
        except Unsplittable as error:
            self.decline(lesson, str(error))
            return False
        bounds = bounds_of(size, self.parts, self.fewest(), not lesson.settled)
        if len(bounds) < 2:
            return False
        course.take(batch, bounds, size, leaves)
        self.norms.soften(self.models, len(bounds))
        return True

    def _trains(self, lesson):
        """Tell whether a backward is to be expected from the next batch."""
        if lesson.off or lesson.trained is False or not self.optimizers or not self.torch.is_grad_enabled():
            return False
        models = [model for ref in self.models if (model := ref()) is not None]
        return not models or any(model.training for model in models)

    def fewest(self):
        """BatchNorm can make nothing of a single sample."""
        return 2 if self.norms.of(self.models) else 1

    def _leave(self, course):
        if self.now is course:
            self.now = None

    def _closed(self, course):
        """A pass is over."""
        course.open = False
        course.drop()
        self.drawn = [one for one in self.drawn if one is not course]
        self._leave(course)
        if course.cut:
            self.norms.firm()

    def _left(self, course):
        """A pass was left before its end: a loop that counts its iterations has counted parts."""
        if course.led and course.open and course.serial and "left" not in self.told and not course.lesson.off:
            self.told.add("left")
            because = "the loop was left after %d iterations, which were %d batches: if it counts them, it ended early"
            self._say("declined", because=because % (course.serial, course.number))
        self._closed(course)

    def midway(self, iterator):
        """Tell whether a batch of this iterator is only handed out in part."""
        course = self.courses.get(iterator) if hasattr(iterator, "_next_data") else None
        return course is not None and (course.pending or (course.lesson.redo and course is self.now))

    # --- what was learned -------------------------------------------------------------------------------------

    def cannot(self, lesson, why):
        """What the first parts have shown; where a changed result is allowed, it goes on all the same."""
        if self.agent.heal == "all" and not self.once.broken:
            lesson.changed = lesson.changed or why
        else:
            self.decline(lesson, why)

    def decline(self, lesson, why):
        """From the next batch on all is as it came; the present one too, if nothing has been updated yet."""
        if lesson.off:
            return
        lesson.off = why
        now = self.now
        lesson.redo = now is not None and now.lesson is lesson and now.batch is not None and not lesson.updates
        self._say("declined", because=why + ("; the batch is handed out once more, whole" if lesson.redo else ""))

    def _undo(self, lesson):
        for weight in self.weights():
            weight.grad = None
        for course in self.courses.values():
            course.rewound = course.batch is not None
        self.drawn, self.backwards = [], 0
        lesson.forget()
        self.once.begin_anew()

    # --- telling ------------------------------------------------------------------------------------------

    def settle(self, course):
        """All parts of a batch have been gone through for the first time."""
        course.lesson.settled = True
        course.lesson.readings = {}

    def tell(self, course):
        """Into how many parts, the first time and when there are more."""
        lesson, parts = course.lesson, len(course.bounds)
        lesson.told_of = self.parts
        if (parts, lesson.changed) in self.told:
            return
        self.told.add((parts, lesson.changed))
        because = lesson.changed or "the loop sees %d iterations for each batch" % parts
        if not lesson.changed and self.norms.of(self.models):
            because += ", and BatchNorm the statistics of each part"
        text = "each batch of %d is handed out in %d parts, with one update for all" % (course.size, parts)
        keeps = "changed" if lesson.changed else "equivalent"
        self._say("intervention", keeps=keeps, text=text, because=because, batch=course.size, rows=course.rows)

    def _say(self, kind, **fields):
        self.agent.say(kind, act="split-loader", step=self.agent.beat.steps + 1, **fields)


# --- What `len(loader)` says where batches are handed out in parts


class Lengths:
    """Asked in place of a loader's own `__len__`."""

    def __init__(self, split):
        self.split = split

    def length(self, loader, length):
        """While a pass is under way, its iterations; otherwise the batches, which schedules are made for.

        After a pass, a sum over its iterations is divided by as many.
        """
        for course in list(self.split.courses.values()):
            if course.open and course.loader() is loader and (course.cut or course.extra):
                self.split.once.asked_length = True
                return course.handed + course.to_come + self._still(course, loader, length)
        lesson = self.split.lessons.get(loader)
        if lesson is not None and lesson.iterations and is_divisor(sys._getframe(2)):
            return lesson.iterations
        return length

    def _still(self, course, loader, length):
        """Iterations of the batches that have not been drawn."""
        batches = length - course.drawn
        if batches < 1 or course.lesson.off:
            return batches
        return (batches - 1) * self.split.parts + self._parts_of_last(loader, length)

    def _parts_of_last(self, loader, length):
        try:
            size = len(loader.dataset) - (length - 1) * loader.batch_size
        except TypeError:
            return self.split.parts
        if loader.drop_last or not 0 < size < loader.batch_size:
            return self.split.parts
        return len(bounds_of(size, self.split.parts, self.split.fewest(), False))


# --- Whether a call's result is what something is divided by at once: `total / len(loader)`

_NOTHING = ("CACHE", "NOP", "EXTENDED_ARG")


def is_divisor(frame):
    """Tell it of the call that a frame is at."""
    called = False
    for one in dis.get_instructions(frame.f_code):
        if one.offset < frame.f_lasti or one.opname in _NOTHING:
            continue
        if not called:
            called = one.opname.startswith("CALL")  # Python 3.11 may be at what comes before it
            continue
        named = one.opname in ("BINARY_TRUE_DIVIDE", "INPLACE_TRUE_DIVIDE")  # before Python 3.11
        return named or (one.opname == "BINARY_OP" and one.argrepr in ("/", "/="))
    return False
