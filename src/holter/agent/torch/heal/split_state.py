"""What is known of one model that is watched over: how large a batch fits, how its outputs join, what it draws."""

import math
import weakref
from contextlib import contextmanager
from time import monotonic

from ...heal.chunk_tuning import Tuning
from ...heal.leaves import Unsplittable, elements, take_out
from ...heal.out_of_memory import is_oom, let_go
from . import joining as joining
from . import proof as proof
from .memory_budget import UNLIMITED
from .random_numbers import Draws, put_back, same, states_of
from .weight_proxies import StandIns, trained_bytes

_SPARE = 0.85  # of the room that is left: parts are not made to fit to the last byte
_TRY_LARGER = 200  # calls in parts after which a larger part may be tried
_PAUSE = 60.0  # seconds between two calls that are no longer two steps in a row
_SHAPES = 1000
_COMFORT = 0.75  # of the room: below this a call is left alone
_TWICE = 0.3  # of the parts computed a second time in backward: a tenth of the step
LOSS = 3.0  # the outputs, times this: their gradients and what a loss keeps of them
_WORKSPACE = 1.5  # what a part takes while it runs, against what its graph keeps


class SplitState:
    """One model; made when it first runs out of memory or comes near to it."""

    def __init__(self, split, module):
        self.split, self.torch = split, split.torch
        self.module, self.name = weakref.ref(module), type(module).__name__
        self.is_tensor = split.is_tensor
        self.weights = None  # made before the first act
        first = next(module.parameters(), None)
        self.device = first.device if first is not None else self.torch.device("cpu")
        self.room = split.room(self.device)
        self.kept = 0, 0  # graphs that were kept in the last call, of how many parts
        self.outside = None  # what the loss was seen to hold between forward and backward
        self.axis = 0
        self.draws = True  # until a call shows that it draws no random numbers
        self.exact_draws = True
        self.declined = None
        self.comfortable = 0  # elements of inputs with which there was room to spare
        self.sizes = {}  # shapes without the batch -> how many samples to run at once
        self.calls = {}  # the same -> calls in parts since that was last changed
        self.outputs = {}  # the same -> shapes, dtypes and devices of a part's outputs
        self.costs = {}  # the same -> what a sample's graph takes, and what is still to come after the forward
        self.began = 0.0  # the last call in parts
        self.left = 0  # the room before it
        self.evaluated = {}  # shapes -> how many samples of a call without gradients fit
        self.alone = {}  # shapes -> how many samples are thought to fit where the loader hands out no more
        self.norms = [m for m in module.modules() if isinstance(m, self.torch.nn.modules.batchnorm._BatchNorm)]
        self.through = {}  # shapes and samples that went forward and back near the limit -> the least room before
        self._kinds = {}
        self._alone = {}
        self.gone = None  # tells when the model is

    @property
    def keeps(self):
        """What a split keeps of the result."""
        mixes = any(norm.training and norm.track_running_stats is not None for norm in self.norms)
        return "equivalent" if mixes or not self.exact_draws else "exact"

    @property
    def because(self):
        """Why it is not exact, in words."""
        if any(norm.training for norm in self.norms):
            return "BatchNorm sees the statistics of each part"
        return "" if self.exact_draws else "random numbers inside a kernel are drawn anew"

    def decline(self, why):
        """No call of this model is cut from here on."""
        if self.declined is None:
            self.declined = why
            self.split.tell_declined(self, why)

    def refresh(self):
        """Before a cut: the weights may be others by now, or lie elsewhere."""
        if self.weights is None or not self.weights.still_true():
            self.weights = StandIns(self.torch, self.module())
        device = self.weights.weights[0].device if self.weights.weights else self.device
        if device != self.device:
            self.device, self.room = device, self.split.room(device)

    def is_calm(self, args, kwargs):
        """Tell whether a call is no larger than one that left room to spare."""
        if self.sizes or self.split.asked > 1:
            return False
        is_plain = self.split.unseen.is_plain  # to ask a tensor of another kind is an operation of its owner's
        size = elements(args, is_plain)
        return (size + elements(kwargs.values(), is_plain) if kwargs else size) <= self.comfortable

    def other_axis(self, call):
        """After samples turned out not to lie along the first axis: try the second, once."""
        if self.axis or not any(leaf.dim() > 1 for leaf in call.leaves):
            return False
        self.axis = 1
        return True

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
    def at_work(self, share):
        """The stand-ins are in place, and running statistics move by a part's share."""
        momenta = [(norm, norm.momentum) for norm in self.norms if norm.momentum is not None and share < 1]
        for norm, momentum in momenta:
            norm.momentum = 1.0 - (1.0 - momentum) ** share
        try:
            with self.inside(), self.weights:
                yield
        finally:
            for norm, momentum in momenta:
                norm.momentum = momentum

    def _mixed(self):
        torch, kind = self.torch, self.device.type
        if hasattr(torch, "get_autocast_dtype"):
            return torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
        if kind == "cpu":  # PyTorch before 2.4 asks for each device by a name of its own
            return torch.is_autocast_cpu_enabled(), torch.get_autocast_cpu_dtype()
        return torch.is_autocast_enabled(), torch.get_autocast_gpu_dtype()

    def is_mixed(self):
        return self._mixed()[0]

    def autocast(self):
        """What re-enters the mixed precision that is on now."""
        torch, kind, (on, dtype) = self.torch, self.device.type, self._mixed()
        cached = torch.is_autocast_cache_enabled()
        return lambda: torch.autocast(kind, dtype=dtype, enabled=on, cache_enabled=cached)

    def buffers(self):
        """Copies of what a second pass would change again: running statistics."""
        return [(b, b.clone()) for norm in self.norms for b in norm.buffers(recurse=False) if b is not None]

    def put_buffers_back(self, copies):
        with self.torch.no_grad():
            for buffer, copy in copies:
                buffer.copy_(copy)

    # --- sizes --------------------------------------------------------------------------------------------

    def knows(self, call):
        return call.shapes in self.sizes

    def rows_for(self, call):
        """How many samples to run at once: all (-1), so many, or not known (0)."""
        known = self.sizes.get(call.shapes)
        if known is None and self.split.asked > 1:
            return max(self.fewest, -(-call.size // self.split.asked))
        if known is None or call.size <= self._fits_at_once(call, known):
            return -1
        now = monotonic()
        before = known.parts
        if now - self.began < _PAUSE and call.size == known.size:
            known.took(now - self.began, lambda rows: self._might_fit(call, rows))
        self.began, self.left = now, self.room.left()
        if known.parts != before:
            self.room.other_parts()
        parts = -(-call.size // (known.rows if call.size == known.size else known.fits))
        return -(-call.size // parts)  # parts of one size

    def _fits_at_once(self, call, known):
        if call.size == known.size:
            return known.fits
        return max(known.fits, self.alone.get(call.shapes, 0)) + 1  # the loader's parts differ by a sample

    def _might_fit(self, call, rows):
        """Before a call, with nothing of it there yet: is there room for so many samples at once?"""
        each, to_come = self.costs.get(call.shapes, (0, 0))
        return rows * each * self.room.workspace + to_come < self.room.left()

    def rows_that_fit(self, each, remaining, to_come):
        """The samples of a part, by what one takes."""
        room = self.room.left() * _SPARE - to_come
        rows = max(self.fewest, int(room / (each * _WORKSPACE)))
        parts = max(1, -(-remaining // rows))
        return max(self.fewest, -(-remaining // parts))

    @property
    def fewest(self):
        """The samples that a part must have: BatchNorm can make nothing of a single one."""
        return 2 if self.norms else 1

    def end_of_part(self, begin, rows, size):
        """Where a part ends that begins there; what remains is never less than the fewest."""
        end = min(size, begin + rows)
        return size if 0 < size - end < self.fewest else end

    def wholes(self, call):
        """Room for the outputs of a whole batch, by the last one's: made before any part, it cuts up no free block."""
        like = self.outputs.get(call.shapes)
        if like is None or len(like) != len(call.kinds):
            return None
        samples = [self.torch.empty(0, dtype=dtype, device=device) for _, dtype, device in like]
        try:
            return [kind.room(one, how[0], call.size) for kind, one, how in zip(call.kinds, samples, like)]  # noqa: B905
        except Exception as error:
            if not is_oom(error):
                raise
        self.room.ran_out()
        return None

    def wholes_like(self, call, outputs, whole):
        """The same by a first part's outputs, unless it is there already and right."""
        like = [(tuple(output.shape), output.dtype, output.device) for output in outputs]
        if whole is not None and self._fits(call, like):
            return whole
        self.outputs[call.shapes] = like
        pairs = zip(call.kinds, outputs, like)  # noqa: B905
        return [kind.room(one, how[0], call.size) for kind, one, how in pairs]

    def _fits(self, call, like):
        """Outputs may have other shapes each time, by what is in the batch."""

        def bare(kind, shape):
            axis = getattr(kind, "axis", None)
            return [n for d, n in enumerate(shape) if d != axis]

        return all(
            bare(kind, one[0]) == bare(kind, two[0]) and one[1:] == two[1:]
            for kind, one, two in zip(call.kinds, like, self.outputs[call.shapes])  # noqa: B905
        )

    def halve(self, rows):
        if rows // 2 < self.fewest:
            raise Unsplittable("%d of its samples do not fit" % rows if rows > 1 else "a single sample does not fit")
        return rows // 2

    def learned(self, call, rows, asked=0):
        """A batch of this shape went through, in parts of so many samples; so many were asked for."""
        key = call.shapes
        known = self.sizes.get(key)
        thought_to_fit = known is not None and call.size <= self._fits_at_once(call, known)
        # Parts that came out smaller than they were asked for did not fit; those of an odd batch are only what it left.
        smaller = known is not None and call.size != known.size and rows < min(known.fits, asked or call.size)
        if known is None or smaller or thought_to_fit:
            self.alone.pop(key, None)
            if len(self.sizes) >= _SHAPES:
                self.sizes.clear()  # each batch has a shape of its own: only the last ones are remembered
            known = self.sizes[key] = Tuning(call.size, rows, self.fewest)
        elif rows < asked:
            known.did_not_fit(asked, rows)
        self.calls[key] = self.calls.get(key, 0) + 1
        if known.done or not known.tried:
            self.split.tell_split(self, call.size, rows)
        if known.done and call.size == known.size:
            self._spare_the_second_pass(call.shapes, known)

    def _spare_the_second_pass(self, shapes, known):
        """Where most parts are computed twice, the loader hands out parts as soon as it can: nothing is, then."""
        kept, of = self.kept
        if self.split.loader is not None and of > 1 and of - kept >= _TWICE * of:
            rows = max(int(known.fits * self.room.share), self._rows_alone(shapes, known.size), self.fewest)
            parts = math.ceil(known.size / rows)
            self.alone[shapes] = math.ceil(known.size / parts)
            self.split.loader.ask(parts)

    def _rows_alone(self, shapes, size):
        """The samples that would fit if the rest of the batch were not there: its outputs, and the loss over them."""
        each, to_come = self.costs.get(shapes, (0, 0))
        each = each * self.room.workspace + (to_come - self.weights.bytes) / size
        return min(size // 2, int((self.left * self.room.share - self.weights.bytes) / each)) if each > 0 else 0

    def has_room(self, call, each, to_come):
        """After a forward in parts: what a sample took; now and then other sizes are tried anew."""
        key = call.shapes
        self.costs[key] = each, to_come
        if self.calls.get(key, 0) >= _TRY_LARGER and self.sizes[key].done:
            self.calls[key] = 0
            if self.sizes[key].rows * each * _WORKSPACE * 1.5 < self.room.left() * _SPARE:
                self.sizes[key] = Tuning(call.size, self.sizes[key].rows, self.fewest)

    def went_at_once(self, call, cost, given):
        """A whole forward went through, and gave so much; False where loss and backward may not fit."""
        still = trained_bytes(self.module()) + cost * (_WORKSPACE - 1) + LOSS * given
        if self.knows(call) and cost + still < _COMFORT * (self.room.left() + cost):
            self.room.calm()
        if self.room.used() + still < _COMFORT * self.room.limit:
            self.comfortable = max(self.comfortable, sum(leaf.numel() for leaf in call.leaves))
            return True
        return self.through.get(call.key, UNLIMITED) <= call.left

    def went_through(self, call):
        """Its backward did as well: with as much room the next one will."""
        if len(self.through) >= _SHAPES:
            self.through.clear()
        self.through[call.key] = min(call.left, self.through.get(call.key, UNLIMITED))

    def may_hold(self, call, outputs):
        """Tell whether a call's graph is its own, which is looked at once for each structure: it takes a while."""
        inputs, weights = [call.leaves[n] for n in call.needing], self.weights.weights
        key = tuple(call.axes), tuple(call.needing), len(outputs), self.module().training
        if key not in self._alone:
            nodes = proof.nodes_of(outputs, inputs)
            closed = nodes is not None and proof.is_closed(nodes, [*inputs, *weights])
            self._alone[key] = closed and proof.is_only_ours(self.torch, nodes, outputs)
        if not self._alone[key] or not inputs:
            return self._alone[key]
        # What is reached from the inputs as well would be counted twice: weights that two models share.
        beyond = proof.nodes_of(inputs, ())
        return beyond is not None and proof.is_apart(beyond, weights)

    def is_near(self):
        """Now and then, where nothing is watched: does it still fit with room to spare?"""
        if self.room.used() > _COMFORT * self.room.limit:
            self.comfortable = 0

    # --- what it is -------------------------------------------------------------------------------------------

    def is_proven(self, call):
        return _structure(call, True) in self._kinds

    def kinds(self, call, graded=True):
        """How the outputs of chunks join, proven once for each structure of inputs; raises when they do not."""
        key = _structure(call, graded)
        found = self._kinds.get(key)
        if found is None:
            found = self._kinds[key] = self._prove(call, graded)
        return found

    def _prove(self, call, graded):
        if call.size < 2:
            raise Unsplittable("the batch has one sample")
        torch = self.torch
        proof.refuse(torch, call.module, self.weights.weights)
        around, start = proof.Around(torch, call.module, self.norms), states_of(torch, self.device)
        pair = call.of(picked := _unlike_pair(counts := joining.label_counts(torch, call.leaves, call.axes)))
        try:
            found = self._prove_pair(pair, graded, around, counts, picked)
            around.check(pair)
            return found
        except Unsplittable:
            around.check(pair)  # where it says more, that is the reason
            raise
        except Exception as error:
            words = "%s: %s" % (type(error).__name__, str(error)[:200])
            let_go(error)
            raise Unsplittable("the model could not be tried out with two samples (%s)" % words) from None
        finally:
            around.undo()
            put_back(torch, self.device, start)

    def _prove_pair(self, pair, graded, around, counts, picked):
        # BatchNorm stands still: its two samples would differ from one by what it is made to do.
        still, draws = self.norms, Draws(self.torch, self.device, 2)
        try:
            found = self._compare(pair, draws, still, counts, picked, around)
        except Unsplittable:
            if draws.all_known:
                raise
            # What is drawn inside a kernel differs each time: once more with nothing drawn.
            drew, self.exact_draws, still = self.draws, False, list(pair.module.modules())
            found = self._compare(pair, draws, still, counts, picked, around)
            self.draws = drew
        if graded:
            self._hangs_alone(pair)
            self._compare_gradients(pair, found, still)
        return found

    @contextmanager
    def _standing_still(self, parts):
        """Some parts of the model are as in an evaluation."""
        training = [(part, part.training) for part in parts]
        for part, _ in training:
            part.training = False
        try:
            yield
        finally:
            for part, was in training:
                part.training = was

    def _compare(self, pair, draws, still, counts, picked, around):
        """The outputs of two samples together and one by one."""
        torch, start = self.torch, states_of(self.torch, self.device)
        with self._standing_still(still), torch.no_grad(), self.inside():
            together = self._outputs(pair, 0, 2, draws)
            around.settle()
            self.draws = not same(torch, states_of(torch, self.device), start)
            first, second = (self._outputs(pair, n, n + 1, draws) for n in (0, 1))
        put_back(torch, self.device, start)
        return joining.learn(torch, together, first, second, counts, picked)

    def _outputs(self, pair, begin, end, draws):
        given = pair.some(begin, end)
        before, after, flat, unknown = [], [], [], []
        take_out(given, self.is_tensor, before, before)
        take_out(pair.called(*given, begin, end, draws), self.is_tensor, flat, unknown)
        proof.returned(self.torch, unknown)
        take_out(given, self.is_tensor, after, after)
        if list(map(id, before)) != list(map(id, after)):
            raise Unsplittable("each call writes into the containers that it is given")
        return flat

    def _hangs_alone(self, pair):
        """Nothing but what the model returns hangs on its graph, which ends in its own weights and inputs."""
        weights = StandIns(self.torch, pair.module)
        alive, closed = proof.weakly(weights.stand_ins), self._is_closed(pair, weights)
        weights = None
        self.torch.clear_autocast_cache()
        if not closed:
            raise Unsplittable("it also reads weights that are not found among its own")
        if not proof.gone(alive):
            raise Unsplittable("more than what it returns hangs on its graph: an auxiliary loss, or features kept")

    def _is_closed(self, pair, weights):
        with self.inside(), weights, self.torch.enable_grad():
            inputs, args, kwargs = pair.fresh(0, 2)
            flat = []
            take_out(pair.called(args, kwargs, 0, 2, None), self.is_tensor, flat)
        nodes = proof.nodes_of(flat, ())
        return nodes is not None and proof.is_closed(nodes, [*inputs, *weights.stand_ins])

    def _compare_gradients(self, pair, kinds, still):
        """Every gradient of the two samples together is that of the two one by one."""
        torch = self.torch
        start, draws = states_of(torch, self.device), Draws(torch, self.device, 2) if self.draws else None
        with self._standing_still(still), self.inside():
            wanted, given = self._gradients(pair, draws)
            put_back(torch, self.device, start)
            pair.kinds, pair.parts, pair.starts, pair.draws = kinds, [(0, 1), (1, 2)], [start, start], draws
            pair.counts = joining.label_counts(torch, pair.leaves, pair.axes)
            found = pair.all_chunks(given)
        if found is None:
            raise Unsplittable("two of its samples do not fit")
        rough = any(weight.element_size() < 4 for weight in self.weights.weights) or self.is_mixed()
        for one, other in zip(wanted, found):  # noqa: B905
            if not proof.is_same(one, proof.signature(torch, other), 5e-2 if rough else 5e-3):
                raise Unsplittable("its gradients in chunks are not those of the whole batch")

    def _gradients(self, pair, draws):
        """What the gradients are in a whole call; on stand-ins, since hooks on a weight are not to notice."""
        with self.weights, self.torch.enable_grad():
            inputs, args, kwargs = pair.fresh(0, 2)
            flat = []
            take_out(pair.called(args, kwargs, 0, 2, draws), self.is_tensor, flat)
            graded = [output for output in flat if output.requires_grad]
            given = iter(proof.given_for(self.torch, graded))
            given = [next(given) if output.requires_grad else None for output in flat]
            tensors = [*inputs, *self.weights.stand_ins]
            if not graded:
                return [None] * len(tensors), given
            roots = [one for one in given if one is not None]
            found = self.torch.autograd.grad(graded, tensors, roots, allow_unused=True)
        return [proof.signature(self.torch, one) for one in found], given


def _structure(call, graded):
    return tuple(call.axes), len(call.leaves), graded


def _unlike_pair(counts):
    """Two samples whose labels differ most in number: only such tell one mean from another."""
    best = (0, 0, 1)
    for found in counts.values():
        values = found.tolist()
        low, high = values.index(min(values)), values.index(max(values))
        best = max(best, (values[high] - values[low], low, high), key=lambda one: one[0])
    return best[1:]
