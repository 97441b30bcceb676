"""Split at the loader (PyTorch): batches are handed out in chunks, and one update is made for all chunks of a batch.

For what runs out of memory outside of the model's forward, where nothing can be done in place: a loss, an augmentation,
a metric of the script's own. `HOLTER_LOADER=4` says so to a process that was started again after such an end. The
loader draws the batches that it always drew and cuts them afterwards: samplers, workers and their random numbers do
not notice. Gradients of the chunks are scaled as the loss asks for (`reduction`), and all that belongs to a batch
happens at its last chunk (`batch_calls`). Keeps: equivalent, since the loop sees an iteration for each chunk.

The first batch is where it is learned whether that is true. Where it is not, nothing has been updated yet: the batch
is handed out once more as it came, and the reason is reported. A model that is split in place may ask for chunks as
well, from the next pass on: nothing is computed twice then. Until chunks are wanted nothing of it is in place.
"""

import dis
import functools
import sys
import weakref

from ....record import environment
from ...core.ranks import ranks
from ...heal.counting_loop import who_counts
from ...heal.leaves import Unsplittable
from .batch_calls import BatchCalls, OncePerBatch, SoftNorms
from .loader_profile import LoaderPass, LoaderProfile, bounds_of
from .reduction import ScaledBackward
from .split import chunks_asked


class LoaderSplit:
    """Stands around every loader's `__next__` and around `backward`, from when chunks are wanted."""

    def __init__(self, agent, torch):
        self.agent, self.guard, self.torch = agent, agent.guard, torch
        self.chunks = self.wanted = chunks_asked(environment.LOADER)  # the present ones, and those to come
        self.needed = self.chunks > 1  # without them the run has died; otherwise they are only the faster way
        self.models = []  # weakly: those that an optimizer trains
        self.optimizers = []
        self.profiles = weakref.WeakKeyDictionary()  # by loader
        self.passes = weakref.WeakKeyDictionary()  # by iterator
        self.now = None  # the pass whose chunk the loop is at
        self.drawn = []  # passes drawn from since the last backward
        self.several = ranks()[0] > 1
        self.still = False  # batches are drawn to be passed over
        self.drawing = False
        self.backwards = 0  # of the present chunk
        self.reported = set()
        self.left_early = ""  # what is to be said of a pass that was left before its end
        self.batches_of = len
        self.norms = SoftNorms(torch)
        self.once = OncePerBatch(self)
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
            self.agent.exit_hooks.last_acts.append(self.guard(self._report_left_early))
            self.patch()

    def patch(self):
        loader_class = self.torch.utils.data.DataLoader
        iterator_class = sys.modules["torch.utils.data.dataloader"]._BaseDataLoaderIter
        inner_next, inner_len = iterator_class.__next__, loader_class.__len__
        self.batches_of, lengths = inner_len, Lengths(self)

        @functools.wraps(inner_next)
        def __next__(iterator):  # noqa: N807
            loader_pass = self.passes.get(iterator) if self.chunks > 1 else None
            if loader_pass is None or self.drawing:
                return inner_next(iterator)
            if self.still:
                batch = inner_next(iterator)
                loader_pass.drawn += 1
                return batch
            return self._next(loader_pass, iterator, inner_next)

        @functools.wraps(inner_len)
        def __len__(loader):  # noqa: N807
            return lengths.length(loader, inner_len(loader))

        iterator_class.__next__, loader_class.__len__ = __next__, __len__
        ScaledBackward(self).patch()
        BatchCalls(self).patch()

    def ask(self, times):
        """So many times the chunks, from the next pass on."""
        self.wanted = max(self.wanted, max(1, self.chunks) * times)
        self.guard(self.arm)()

    def begins(self, loader, iterator):
        """A pass over a loader begins, says the adapter."""
        self._report_left_early()
        if self.wanted != self.chunks and not any(one.open and one.cut for one in self.passes.values()):
            self.chunks = self.wanted
        if self.chunks < 2:
            return
        before = self.passes.get(iterator)
        if before is not None:
            self._closed(before)
        profile = self.profiles.get(loader)
        if profile is None:
            profile = self.profiles[loader] = LoaderProfile(self.torch, loader)
            profile.declined = "several ranks train together" if self.several else ""
        profile.begins()
        # One that keeps its workers refers to its iterator, and both would stay.
        loader_pass = self.passes[iterator] = LoaderPass(weakref.ref(loader), profile)
        loader_pass.abandoned = weakref.ref(iterator, lambda _ref: self.guard(self._abandoned)(loader_pass))

    def _next(self, loader_pass, iterator, inner):
        """What the loop is handed: a chunk of the batch in hand, or the first one of the next."""
        profile = loader_pass.profile
        if profile.redo and loader_pass is self.now:
            self._undo(profile)
        if loader_pass.rewound:
            self.drawn.append(loader_pass)
            return loader_pass.again(bool(profile.declined))
        if loader_pass.pending:
            if loader_pass in self.drawn:  # no backward followed the last chunk: the loop only looks at its data
                profile.not_trained()
                self._leave(loader_pass)
                return loader_pass.rest()
            return self._hand_out(loader_pass)
        loader_pass.drop()
        if self.now is loader_pass:
            self.once.new_batch()
        self.drawing = True
        try:
            batch = inner(iterator)
        except BaseException:
            profile.iterations = loader_pass.handed
            self._closed(loader_pass)
            raise
        finally:
            self.drawing = False
        loader_pass.drawn += 1
        try:
            if loader_pass in self.drawn:
                profile.not_trained()
            if self._trains(profile) and self._take(loader_pass, batch):
                return self._hand_out(loader_pass)
        except Exception as error:
            self.guard.caught("loader", error)
            loader_pass.drop()
        self._leave(loader_pass)
        self.drawn.append(loader_pass)
        loader_pass.handed += 1
        return batch

    def _hand_out(self, loader_pass):
        if self.now is None or not self.now.open or loader_pass is self.now or not self.drawn:
            self.now = loader_pass
            loader_pass.led = True
            self.backwards = 0
            self.once.stepped = False
        self.drawn.append(loader_pass)
        return loader_pass.next_chunk()

    def _take(self, loader_pass, batch):
        """Cut a batch; False where it is handed out as it came."""
        profile = loader_pass.profile
        try:
            if not profile.looked:
                profile.looked = True
                self.once.begin_anew()
                why = who_counts(sys._getframe(2), not self.needed)
                if why:
                    raise Unsplittable(why if self.needed else why + "; it goes on in place, which takes longer")
            size, leaves = profile.cutter.open(batch)
        except Unsplittable as error:
            self.decline(profile, str(error))
            return False
        bounds = bounds_of(size, self.chunks, self.min_rows(), not profile.settled)
        if len(bounds) < 2:
            return False
        loader_pass.take(batch, bounds, size, leaves)
        self.norms.soften(self.models, len(bounds))
        return True

    def _trains(self, profile):
        """Tell whether a backward is to be expected from the next batch."""
        if profile.declined or profile.trained is False or not self.optimizers or not self.torch.is_grad_enabled():
            return False
        models = [model for ref in self.models if (model := ref()) is not None]
        return not models or any(model.training for model in models)

    def min_rows(self):
        """BatchNorm can make nothing of a single sample."""
        return 2 if self.norms.of(self.models) else 1

    def _leave(self, loader_pass):
        if self.now is loader_pass:
            self.now = None

    def _closed(self, loader_pass):
        """A pass is over."""
        loader_pass.open = False
        loader_pass.drop()
        self.drawn = [one for one in self.drawn if one is not loader_pass]
        self._leave(loader_pass)
        if loader_pass.cut:
            self.norms.firm()

    def _abandoned(self, loader_pass):
        """A pass was left before its end: a loop that counts its iterations has counted chunks."""
        iterations = loader_pass.chunks_learnt if loader_pass.led and loader_pass.open else 0
        if iterations and not loader_pass.profile.declined:
            because = "the loop was left after %d iterations, which were %d batches: if it counts them, it ended early"
            self.left_early = self.left_early or because % (iterations, loader_pass.drawn)
        self._closed(loader_pass)

    def _report_left_early(self):
        """Once the run has gone on, or ended well: a loop that an error has left did not count."""
        if self.left_early and "abandoned" not in self.reported and getattr(sys, "last_type", None) is None:
            self.reported.add("abandoned")
            self._say("declined", because=self.left_early)

    def midway(self, iterator):
        """Tell whether a batch of this iterator is only handed out in part."""
        found = self.passes.get(iterator) if hasattr(iterator, "_next_data") else None
        return found is not None and (found.pending or (found.profile.redo and found is self.now))

    # --- what was learned ---------------------------------------------------------------------------------

    def cannot(self, profile, why):
        """What the first chunks have shown; where a changed result is allowed, it goes on all the same."""
        if self.agent.heal == "all" and not self.once.broken:
            profile.changed = profile.changed or why
        else:
            self.decline(profile, why)

    def decline(self, profile, why):
        """From the next batch on all is as it came; the present one too, if nothing has been updated yet."""
        if profile.declined:
            return
        profile.declined = why
        now = self.now
        profile.redo = now is not None and now.profile is profile and now.batch is not None and not profile.updates
        self._say("declined", because=why + ("; the batch is handed out once more, whole" if profile.redo else ""))

    def _undo(self, profile):
        for weight in self.weights():
            weight.grad = None
        for loader_pass in self.passes.values():
            loader_pass.rewound = loader_pass.batch is not None
        self.drawn, self.backwards = [], 0
        profile.forget()
        self.once.begin_anew()

    # --- reports ------------------------------------------------------------------------------------------

    def settle(self, loader_pass):
        """All chunks of a batch have been gone through for the first time."""
        loader_pass.profile.settled = True
        loader_pass.profile.readings = {}

    def report(self, loader_pass):
        """Into how many chunks, the first time and when there are more."""
        profile, chunks = loader_pass.profile, len(loader_pass.bounds)
        profile.reported_chunks = self.chunks
        if (chunks, profile.changed) in self.reported:
            return
        self.reported.add((chunks, profile.changed))
        because = profile.changed or "the loop sees %d iterations for each batch" % chunks
        if not profile.changed and self.norms.of(self.models):
            because += ", and BatchNorm the statistics of each chunk"
        text = "each batch of %d is handed out in %d chunks, with one update for all" % (loader_pass.size, chunks)
        keeps = "changed" if profile.changed else "equivalent"
        rows = loader_pass.rows
        self._say("intervention", keeps=keeps, text=text, because=because, batch=loader_pass.size, rows=rows)

    def _say(self, kind, **fields):
        self.agent.say(kind, act="split-loader", step=self.agent.beat.steps + 1, **fields)


# --- What `len(loader)` says where batches are handed out in chunks


class Lengths:
    """Asked in place of a loader's own `__len__`."""

    def __init__(self, split):
        self.split = split

    def length(self, loader, length):
        """While a pass is under way, its iterations; otherwise the batches, which schedules are made for.

        After a pass, a sum over its iterations is divided by as many.
        """
        for one in list(self.split.passes.values()):
            if one.open and one.loader() is loader and (one.cut or one.extra):
                self.split.once.asked_length = True
                return one.handed + one.to_come + self._still_to_draw(one, loader, length)
        profile = self.split.profiles.get(loader)
        if profile is not None and profile.iterations and is_divisor(sys._getframe(2)):
            return profile.iterations
        return length

    def _still_to_draw(self, loader_pass, loader, length):
        """Iterations of the batches that have not been drawn."""
        batches = length - loader_pass.drawn
        if batches < 1 or loader_pass.profile.declined:
            return batches
        return (batches - 1) * self.split.chunks + self._chunks_of_last(loader, length)

    def _chunks_of_last(self, loader, length):
        try:
            size = len(loader.dataset) - (length - 1) * loader.batch_size
        except TypeError:
            return self.split.chunks
        if loader.drop_last or not 0 < size < loader.batch_size:
            return self.split.chunks
        return len(bounds_of(size, self.split.chunks, self.split.min_rows(), False))


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
