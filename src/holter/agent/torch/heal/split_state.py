"""What is known of one model that is watched over: how many samples fit at once, and how its outputs join."""

import weakref
from contextlib import contextmanager

from ...heal.leaves import Unsplittable, elements
from ...heal.out_of_memory import broke_onednn, is_oom
from ..observe.visibility import modules_of, weights_of
from . import proof
from .stand_ins import StandIns

_SPARE_SHARE = 0.85  # of the free memory: chunks are not made to fit to the last byte
_COMFORT_SHARE = 0.75  # of the limit: a call that leaves more than the rest is left alone
_CALLS_BEFORE_RELAXED = 2  # calls in chunks of one size, after which memory that is free again may be kept
_CALLS_BEFORE_LARGER = 200  # and after which larger ones may be tried
_MAX_SHAPES = 1000
LOSS_PER_OUTPUT = 3.0  # the outputs, times this: their gradients and what a loss keeps of them
_WORKSPACE = 1.5  # what a chunk takes while it runs, against what its graph keeps


class SplitState:
    """One model; made when it is first called."""

    def __init__(self, split, module):
        self.split, self.torch, self.is_tensor = split, split.torch, split.is_tensor
        self.module, self.name = weakref.ref(module), type(module).__name__
        self.weights = None  # stand-ins, made before the first act
        first = next(weights_of(module), None)
        self.device = first.device if first is not None else self.torch.device("cpu")
        self.budget = split.memory_budget(self.device)
        self.axis = 0  # along which the samples lie
        self.draws = False  # whether a call draws random numbers
        self.declined = None
        self.comfortable = 0  # elements of inputs with which there was memory to spare
        self.comfortable_evaluation = 0  # the same of a call without gradients
        self.rows = {}  # shapes without the batch -> how many samples fit at once
        self.calls = {}  # the same and the batch's size -> calls in chunks
        self.norms = [m for m in modules_of(module) if isinstance(m, self.torch.nn.modules.batchnorm._BatchNorm)]
        self.seed = None  # the gradient that a loss was given last, where that was asked for before its backward
        self._kinds, self._rebuilds, self._told_apart = {}, {}, {}
        self.gone = None  # tells when the model is

    @property
    def keeps(self):
        """What a split keeps of the result."""
        return "equivalent" if self.because else "exact"

    @property
    def because(self):
        """Why it is not exact, in words."""
        if any(norm.training for norm in self.norms):
            return "BatchNorm sees the statistics of each chunk"
        return "random numbers are drawn for each chunk" if self.draws else ""

    def decline(self, why):
        """No call of this model is cut from here on."""
        if self.declined is None:
            self.declined = why
            self.split.report_declined(self, why)

    def refresh(self):
        """Before a cut: the weights may be others by now, or lie elsewhere."""
        if self.weights is None or not self.weights.still_true():
            proof.refuse(self.torch, self.module())
            self.weights = StandIns(self.torch, self.module())
        device = self.weights.weights[0].device if self.weights.weights else self.device
        if device != self.device:
            self.device, self.budget = device, self.split.memory_budget(device)

    def kinds(self, call, anew=False):
        """How the outputs of chunks join, and the labels that are left out: proven once for each structure of inputs.

        Raises where they do not.
        """
        key = self._key(call)
        if key not in self._kinds or anew:
            if len(self._kinds) >= _MAX_SHAPES:
                self._kinds.clear()
                self._rebuilds.clear()
            try:
                kinds, self._rebuilds[key] = proof.prove(self, call)
            except Unsplittable as error:
                if not call.program:
                    raise
                kinds = str(error)
            self._kinds[key] = kinds, call.ignored
            self._told_apart[key] = call.told_apart
        if isinstance(self._kinds[key][0], str):
            raise Unsplittable(self._kinds[key][0])
        return self._kinds[key]

    def is_told_apart(self, call):
        """Tell whether it was proven with two samples of which one has more labels than the other."""
        return self._told_apart[self._key(call)]

    def _key(self, call):
        return tuple(call.axes), len(call.leaves), call.with_graph, call.module.training, self._mixed(), call.program

    def rebuild(self, call):
        """What makes of its outputs' tensors that which the model returns."""
        return self._rebuilds[self._key(call)]

    def has_statistics(self):
        """Tell whether a call moves the running statistics of a BatchNorm."""
        return any(norm.training for norm in self.norms)

    def is_updated_by_hand(self):
        """Tell whether its weights are changed by others than optimizers."""
        trained = {
            id(weight) for optimizer in self.split.optimizers for group in optimizer.param_groups
            for weight in group["params"]
        }  # fmt: skip
        return any(id(weight) not in trained for weight in weights_of(self.module()) if weight.requires_grad)

    # --- is it near the limit? ----------------------------------------------------------------------------

    def is_calm(self, args, kwargs):
        """Tell whether a call is no larger than one that left memory to spare."""
        if self.rows or self.split.asked > 1:
            return False
        return self._elements(args, kwargs) <= self.comfortable

    def is_calm_evaluation(self, args, kwargs):
        """The same of a call without gradients."""
        return not self.rows and self._elements(args, kwargs) <= max(self.comfortable, self.comfortable_evaluation)

    def _elements(self, args, kwargs):
        is_plain = self.split.unseen.is_plain  # to ask a tensor of another kind is an operation of its owner's
        size = elements(args, is_plain)
        return size + elements(kwargs.values(), is_plain) if kwargs else size

    def was_evaluated(self, args, kwargs):
        """A call without gradients went through: with memory to spare those of this size are let pass from here on."""
        if self.budget.used() < _COMFORT_SHARE * self.budget.limit:
            self.comfortable_evaluation = max(self.comfortable_evaluation, self._elements(args, kwargs))

    def went_at_once(self, call, cost, output_bytes):
        """A full forward went through: with memory to spare calls of this size are let pass from here on."""
        still = self.gradient_bytes() + cost * (_WORKSPACE - 1) + LOSS_PER_OUTPUT * output_bytes
        if call.shapes in self.rows and cost + still < _COMFORT_SHARE * (self.budget.free() + cost):
            self.budget.relax()
        if self.budget.used() + still < _COMFORT_SHARE * self.budget.limit:
            self.comfortable = max(self.comfortable, call.elements)

    def look_again(self):
        """Now and then, where nothing is watched: does it still fit with memory to spare?"""
        if self.budget.used() > _COMFORT_SHARE * self.budget.limit:
            self.comfortable = self.comfortable_evaluation = 0

    # --- while it is called -------------------------------------------------------------------------------

    @contextmanager
    def inside(self):
        """Calls within this one are its own affair."""
        before, self.split.inside = self.split.inside, True
        try:
            yield
        finally:
            self.split.inside = before

    @contextmanager
    def at_work(self, share, with_graph, first):
        """The stand-ins are in place, and running statistics move by a chunk's share; the first counts as a batch."""
        momenta = [(norm, norm.momentum) for norm in self.norms if norm.momentum is not None and share < 1]
        counts = [norm.num_batches_tracked for norm, _ in momenta if not first and norm.track_running_stats]
        before = [count.clone() for count in counts]
        for norm, momentum in momenta:
            norm.momentum = 1.0 - (1.0 - momentum) ** share
        try:
            with self.inside():
                if with_graph:
                    with self.weights:
                        yield
                else:
                    yield
        finally:
            for norm, momentum in momenta:
                norm.momentum = momentum
            for count, was in zip(counts, before):  # noqa: B905
                count.copy_(was)

    def _mixed(self):
        torch, kind = self.torch, self.device.type
        if hasattr(torch, "get_autocast_dtype"):
            return torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
        if kind == "cpu":  # PyTorch before 2.4 asks for each device by a name of its own
            return torch.is_autocast_cpu_enabled(), torch.get_autocast_cpu_dtype()
        return torch.is_autocast_enabled(), torch.get_autocast_gpu_dtype()

    def is_mixed(self):
        return self._mixed()[0]

    def is_mixed_with(self, dtype, autocast):
        """The same, and with numbers of this kind, under what re-enters it."""
        with autocast():
            return self._mixed() == (True, dtype)

    def autocast(self):
        """What re-enters the mixed precision that is on now."""
        torch, kind, (on, dtype) = self.torch, self.device.type, self._mixed()
        cached = torch.is_autocast_cache_enabled()
        return lambda: torch.autocast(kind, dtype=dtype, enabled=on, cache_enabled=cached)

    def release_failed_backward(self, error):
        """Give back all that an attempt at a backward has left."""
        self.split.cache_release[self.device].empty()
        self.weights.forget()
        self.ran_out(error)

    def is_oom(self, error):
        """Tell whether memory ran out, by the error or since our wall stood around what failed."""
        return is_oom(error) or (broke_onednn(error) and bool(self.budget.wall.at()))

    def ran_out(self, error):
        """After an attempt that failed: its memory is to be had again, and what it has broken is not used any more."""
        if broke_onednn(error):
            self.split.without_onednn()
        self.budget.ran_out()

    def gradient_bytes(self):
        """What the gradients of the model will take."""
        weights = (weight for weight in weights_of(self.module()) if weight.requires_grad)
        return sum(weight.numel() * weight.element_size() for weight in weights)

    # --- how many samples at once -------------------------------------------------------------------------

    def rows_for(self, call):
        """How many samples to run at once: all (0), or so many."""
        known = self.rows.get(call.shapes)
        if known is None and self.split.asked > 1 and call.with_graph:
            known = max(self.min_rows, -(-call.size // self.split.asked))
        if known is None or call.size <= known:
            return 0
        chunks = -(-call.size // known)
        return -(-call.size // chunks)  # chunks of one size

    def rows_that_fit(self, each, remaining, to_come):
        """The samples of a chunk, by what one takes and what is still to come after the forward."""
        fit = (self.budget.free() * _SPARE_SHARE - to_come) / (each * _WORKSPACE)
        rows = max(self.min_rows, int(fit * self.budget.chunk_share))
        chunks = max(1, -(-remaining // rows))
        return max(self.min_rows, -(-remaining // chunks))

    @property
    def min_rows(self):
        """The samples that a chunk must have: BatchNorm can make nothing of a single one."""
        return 2 if self.norms else 1

    def end_of_chunk(self, begin, rows, size):
        """Where a chunk ends that begins there; what remains is never less than the fewest."""
        end = min(size, begin + rows)
        return size if 0 < size - end < self.min_rows else end

    def halve(self, rows):
        if rows // 2 < self.min_rows:
            raise Unsplittable("%d of its samples do not fit" % rows if rows > 1 else "a single sample does not fit")
        return rows // 2

    def learned(self, call, rows, asked, each=None, to_come=0):
        """A batch went through in chunks of so many samples, where so many were asked for; each one took so much."""
        if len(self.rows) >= _MAX_SHAPES:
            self.rows.clear()  # each batch has a shape of its own: only the last ones are remembered
            self.calls.clear()
        known = self.rows.get(call.shapes)
        if known is None or rows < asked:
            self.rows[call.shapes] = rows
            self.calls.clear()
            self.split.report_split(self, call.size, rows, call.trains)
        elif each is not None and call.with_graph:
            self._settled(call, rows, each, to_come)

    def _settled(self, call, rows, each, to_come):
        """Chunks of this size fit; now and then it is tried whether larger ones do, too."""
        key = call.shapes, call.size
        self.calls[key] = calls = self.calls.get(key, 0) + 1
        if calls == _CALLS_BEFORE_RELAXED:
            self.budget.relax()
        if calls % _CALLS_BEFORE_LARGER == 0 and rows < self.rows_that_fit(each, call.size, to_come):
            self.rows[call.shapes] = min(call.size, 2 * rows)
