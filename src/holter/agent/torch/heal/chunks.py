"""One call of a model, run in parts along the batch: forward, and backward with what had to be dropped computed again.

The call is cut out of the user's graph by an autograd function. Their loss is computed on the whole output; its
gradient comes back here and is handed to the parts. The graphs of as many parts are kept as there is room for. A call
that went forward whole near the limit may be held so too: its graph is the user's own, and it is run in parts only if
its backward fails.
"""

import functools
from contextlib import nullcontext
from typing import Any

from ...heal.leaves import Unsplittable, batch_axes, batch_of, bytes_of, rows_of, take_out
from ...heal.out_of_memory import is_oom, let_go, oom_error
from . import joining as joining
from . import proof as proof
from .random_numbers import Draws, put_back, states_of
from .split_state import LOSS

_MORE = 1.25  # what backward takes beside the graph, as a part of it
_OUTSIDE = 1.5  # what a loss takes at most, against what it holds when backward comes to the model
_FIRST = 8  # of a batch of which nothing is known, so small a part is run first and measured


class Call:
    """What one call of a model was given, and what is kept of it until its backward."""

    def __init__(self, care, inner, args, kwargs, axis):
        self.care, self.inner, self.torch = care, inner, care.torch
        self.module = care.module()  # held: a slice of a model is gone by the time of its backward
        self.leaves = []
        self.build = take_out((args, kwargs), care.is_tensor, self.leaves)
        self.size = batch_of(self.leaves, axis)
        self.axes = batch_axes(self.leaves, self.size, axis)
        # What its memory hangs on, but for the number of samples.
        self.shapes = tuple(
            (*(n for d, n in enumerate(leaf.shape) if d != axis), leaf.dtype)
            for leaf, axis in zip(self.leaves, self.axes)  # noqa: B905
        )
        self.key = self.shapes, self.size
        self.left = 0  # the room before the call
        self.device = care.device
        self.autocast = care.autocast()
        self.needing = [n for n, leaf in enumerate(self.leaves) if leaf.requires_grad]
        self.tensors = ()  # the user's own: inputs that need gradients, and weights
        self.versions = self._versions()
        self.plain: "Any" = None  # the outputs of the whole call, where its own graph is held
        self.again = False  # that graph will be gone through once more
        self.graded = []  # which outputs have a gradient
        self.counts = {}
        self.draws = None
        self.parts = []  # (first sample, the one after the last)
        self.starts = []  # the generators' states at the beginning of each part
        self.kept = {}  # parts whose graphs are kept: their inputs and outputs
        self.rebuild = None
        self.kinds: "Any" = None
        self.after = None  # what was used when the forward was done
        self.failed: "Any" = None  # the last error of a part that did not fit

    # --- a part -------------------------------------------------------------------------------------------

    def some(self, begin, end):
        """The arguments with some samples."""
        return self.build(iter(self._rows(begin, end)))

    def _rows(self, begin, end):
        return [rows_of(leaf, axis, begin, end) for leaf, axis in zip(self.leaves, self.axes)]  # noqa: B905

    def called(self, args, kwargs, begin, end, draws):
        """The model's own call, with the random numbers that these samples draw in the whole batch."""
        if draws is None:
            return self.inner(self.module, *args, **kwargs)
        with draws.part(begin, end) as mode:
            out = self.inner(self.module, *args, **kwargs)
        mode.done()
        return out

    def fresh(self, begin, end):
        """The arguments with some samples, of which those that need gradients are leaves of a new graph."""
        leaves = self._rows(begin, end)
        for n in self.needing:
            leaves[n] = leaves[n].detach().requires_grad_()
        return ([leaves[n] for n in self.needing], *self.build(iter(leaves)))

    def run(self, begin, end, draws=None):
        """Call the model with some samples; gives its inputs that need gradients, and the tensors it gave."""
        inputs, args, kwargs = self.fresh(begin, end)
        share = (end - begin) / self.size if self.size else 1.0
        with self.care.at_work(share), self.torch.enable_grad():
            out = self.called(args, kwargs, begin, end, draws)
        return inputs, self._taken(out)

    def _taken(self, out):
        """The tensors of what the model returned; how the rest of it is built anew is remembered."""
        flat, unknown = [], []
        self.rebuild = take_out(out, self.care.is_tensor, flat, unknown)
        proof.returned(self.torch, unknown)
        self.graded = [output.requires_grad for output in flat]
        return flat

    def of(self, picked):
        """The same call with a few of its samples."""
        few = []
        for leaf, axis in zip(self.leaves, self.axes):  # noqa: B905
            index = self.torch.tensor(picked, device=leaf.device)
            few.append(leaf if axis is None else leaf.detach().index_select(axis, index))
        for n in self.needing:
            few[n] = few[n].detach().requires_grad_()
        args, kwargs = self.build(iter(few))
        found = Call(self.care, self.inner, args, kwargs, self.care.axis)
        found.axes = self.axes  # two may be the length of another axis, too
        return found

    # --- whole --------------------------------------------------------------------------------------------

    def hold(self, out):
        """Take the graph of a whole call that was made; False where somebody else may go by it."""
        care = self.care
        try:
            flat = self._taken(out)
            proof.refuse(self.torch, self.module, care.weights.weights)
        except Unsplittable:
            return False
        if proof.left_on(self.torch, self.module) or not care.may_hold(self, flat):
            return False
        self.plain = flat
        return True

    def _backward_held(self, gradients, **how):
        """The gradients of the whole call by its own graph; None where there was no room for it."""
        pairs = [(t, g) for t, g in zip(self.plain, gradients) if g is not None and t.requires_grad]  # noqa: B905
        if not pairs:
            return [None] * len(self.tensors)
        roots, given = zip(*pairs)  # noqa: B905
        try:
            return self.torch.autograd.grad(roots, self.tensors, given, allow_unused=True, **how)
        except Exception as error:
            if not is_oom(error):
                raise
            self.failed = error
        self.failed.__traceback__ = self.failed.__context__ = None  # this frame, too, holds the graph
        return None

    # --- forward ------------------------------------------------------------------------------------------

    def forward(self, rows):
        """All samples, `rows` at a time (0: not known yet); gives the whole batch's outputs."""
        if self.plain is not None:
            return [output.detach() for output in self.plain]
        care = self.care
        self.examine()
        known, measured, asked = care.knows(self), rows > 0, max(rows, 0)
        rows = rows if measured else max(care.fewest, self.size // _FIRST)
        begin, whole = 0, care.wholes(self)
        while begin < self.size:
            end = care.end_of_part(begin, rows, self.size)
            start, before = states_of(self.torch, self.device), care.room.used()
            flat = self._attempt(begin, end)
            if flat is None:
                put_back(self.torch, self.device, start)
                care.room.ran_out()
                measured = True
                if not self.give_up_kept():
                    rows = care.halve(end - begin)
                continue
            inputs, outputs = flat
            cost = max(care.room.used() - before, 1)
            if not self.parts:
                whole = care.wholes_like(self, [output.detach() for output in outputs], whole)
            for kind, room, output in zip(self.kinds, whole, [output.detach() for output in outputs]):  # noqa: B905
                kind.put(room, output, begin, end, self.weight(kind, begin, end))
            self.parts.append((begin, end))
            self.starts.append(start)
            last = end == self.size
            # At first nothing else is kept: libraries choose their algorithms once, by the room that they find.
            roomy = known and care.room.left() - care.room.slack > cost * _MORE + self._still_to_come(whole)
            if last or roomy:
                self.kept[len(self.parts) - 1] = (inputs, outputs)
            flat = inputs = outputs = None
            begin = end
            if not measured:
                # What was seen to fit is no less likely to fit again: what is still to come is only guessed.
                fit = care.rows_that_fit(cost / rows, self.size - begin, self._still_to_come(whole))
                measured, rows = True, max(rows, fit)
        if self.draws is not None:
            self.draws.finish()
            care.exact_draws = care.exact_draws and self.draws.all_known
        self.after = care.room.used()
        care.kept = len(self.kept), len(self.parts)
        care.learned(self, max(end - begin for begin, end in self.parts), asked)
        begin, end = self.parts[-1]
        care.has_room(self, cost / (end - begin), self._still_to_come(whole))
        return whole

    def examine(self, graded=True):
        """Before a first part: how the outputs join, and what is needed for that."""
        care = self.care
        self.kinds = care.kinds(self, graded)
        by_label = any(isinstance(getattr(kind, "rule", None), tuple) for kind in self.kinds)
        self.counts = joining.label_counts(self.torch, self.leaves, self.axes) if by_label else {}
        self.draws = Draws(self.torch, self.device, self.size, care.room) if care.draws else None

    def _attempt(self, begin, end):
        """One part, or None when there was no room for it; nothing of the attempt is alive then."""
        try:
            return self.run(begin, end, self.draws)
        except Exception as error:
            if not is_oom(error):
                raise
            self.failed = error
        let_go(self.failed)
        return None

    def give_up_kept(self):
        """Drop the graphs that are kept, if there are any: they can be computed again."""
        if self.plain is not None:
            self.plain = None  # first, since the proof takes room as well; without one the run would end here anyway
            return self._to_parts()
        had, self.kept, self.after = bool(self.kept), {}, None
        if self.draws is not None:
            self.draws.masks = {}  # each attempt draws them anew: having had some is no reason to try once more
        return had

    def _to_parts(self):
        """From a whole call to one in parts, where those are proven to come to the same."""
        self.care.refresh()
        try:
            self._check_inputs()
            self.examine()
            self._cut_into(self.care.halve(self.size))
        except Unsplittable as error:
            self.care.decline(str(error))
            return False
        return True

    def _still_to_come(self, whole):
        outside = self.care.outside
        if outside is None:
            outside = LOSS * bytes_of(whole)
        return outside + self.care.weights.bytes

    def weight(self, kind, begin, end):
        rule = getattr(kind, "rule", None)
        return 1.0 if rule is None else joining.weight(rule, self.counts, begin, end, self.size)

    # --- backward -----------------------------------------------------------------------------------------

    def backward(self, gradients):
        """The gradients of the inputs that need them and of the weights, for the whole batch."""
        care, cut = self.care, 0
        if self.plain is not None:
            # The engine frees a graph as it goes through it, unless somebody has asked it to keep it. So there is no
            # second try beyond our wall: it stands only where it is proven that parts will do.
            with care.room.wall if care.is_proven(self) else nullcontext():
                found = self._backward_held(gradients, retain_graph=self.again or _keeps_graph(self.torch))
            if found is not None:
                care.went_through(self)
                return found
            self.plain = None
            care.split.drains[care.device].empty()
            care.room.ran_out()
            if care.declined is not None or not self._to_parts():
                raise self.failed
            cut = self.size
        if not self.parts:
            raise oom_error(self.torch, "out of memory: %s" % care.declined)
        with care.room.wall:
            return self._backward_in_parts(gradients, cut)

    def _backward_in_parts(self, gradients, cut):
        """The same, where parts of so many samples (0: none yet) have failed before."""
        care = self.care
        if self.after is not None:
            care.outside = max(care.outside or 0, int(_OUTSIDE * (care.room.used() - self.after)))
        after = states_of(self.torch, self.device)
        buffers = care.buffers()
        try:
            while True:
                found = self.all_chunks(gradients)
                if found is not None:
                    if cut:
                        care.learned(self, max(end - begin for begin, end in self.parts), cut)
                    return found
                care.split.drains[care.device].empty()
                care.weights.forget()
                self.give_up_kept()
                care.room.ran_out()
                try:
                    cut = max(end - begin for begin, end in self.parts)
                    self._cut_into(care.halve(cut))
                except Unsplittable as error:
                    care.decline(str(error))
                    if care.room.wall.at():  # it was our wall that it failed at: the kernel may allow it
                        with care.room.wall.lifted():
                            found = self.all_chunks(gradients)
                        if found is not None:
                            return found
                    words = "out of memory in a backward in parts: %s" % error
                    raise oom_error(self.torch, words) from None
        finally:
            care.put_buffers_back(buffers)
            put_back(self.torch, self.device, after)
            care.room.look_back()
            if self.draws is not None:
                self.draws.masks = {}

    def all_chunks(self, gradients):
        """The gradients of inputs and weights, chunk by chunk; None where there was no room for one."""
        care, of_inputs = self.care, [None] * len(self.needing)
        care.weights.forget()
        try:
            # Those that are kept first: what they hold is room for the others.
            order = sorted(range(len(self.parts)), key=lambda n: n not in self.kept)
            for n in order:
                begin, end = self.parts[n]
                kept = self.kept.pop(n, None)
                if kept is None:
                    self._check_inputs()
                    put_back(self.torch, self.device, self.starts[n])
                    with self.autocast():
                        kept = self.run(begin, end, self.draws)
                inputs, outputs = kept
                kept = None
                roots, given = self._roots(outputs, gradients, begin, end)
                outputs = None
                if roots:
                    self.torch.autograd.backward(roots, given)
                roots = given = None
                self._gather(of_inputs, inputs, begin, end)
                inputs = None
        except Exception as error:
            if not is_oom(error):
                raise
            return None
        return [*of_inputs, *care.weights.gradients()]

    def _roots(self, outputs, gradients, begin, end):
        roots, given = [], []
        for at, (output, gradient) in enumerate(zip(outputs, gradients)):  # noqa: B905
            if gradient is None or not output.requires_grad:
                continue
            if self.kinds is not None:
                kind = self.kinds[at]
                gradient = kind.gradient(gradient, begin, end, self.weight(kind, begin, end))
            roots.append(output)
            given.append(gradient)
        return roots, given

    def _gather(self, of_inputs, inputs, begin, end):
        for at, (n, tensor) in enumerate(zip(self.needing, inputs)):  # noqa: B905
            if tensor.grad is None:
                continue
            if (begin, end) == (0, self.size) or self.axes[n] is None:
                of_inputs[at] = tensor.grad if of_inputs[at] is None else of_inputs[at].add_(tensor.grad)
                continue
            if of_inputs[at] is None:
                of_inputs[at] = self.torch.zeros_like(self.leaves[n])
            rows_of(of_inputs[at], self.axes[n], begin, end).copy_(tensor.grad)

    def _versions(self):
        weights = (weight for weight in self.module.parameters() if weight.requires_grad)
        return [tensor._version for tensor in (*self.leaves, *weights)]

    def is_untouched(self):
        """Tell whether inputs and weights are as they were before the call."""
        return self._versions() == self.versions

    def _check_inputs(self):
        """What is computed again must meet what the first pass met; PyTorch itself asks the same of a graph."""
        if not self.is_untouched():
            raise Unsplittable("the model's inputs or weights were changed in place between forward and backward")

    def _cut_into(self, rows):
        """Parts of that size; where a draw could not be cut, their masks are others than in the forward."""
        start = self.starts[0]
        self.parts, begin = [], 0
        while begin < self.size:
            end = self.care.end_of_part(begin, rows, self.size)
            self.parts.append((begin, end))
            begin = end
        self.starts = [start] * len(self.parts)

    # --- second order -------------------------------------------------------------------------------------

    def backward_with_graph(self, gradients):
        """For `create_graph`: the whole call again, on the user's own tensors, so that its backward has a graph."""
        if self.plain is not None:
            self.again = True  # what comes of it goes through this graph as well
            found = self._backward_held(gradients, create_graph=True)
            if found is None:
                raise self.failed
            return found
        self.care.decline("second-order gradients are taken through the model")
        after = states_of(self.torch, self.device)
        try:
            put_back(self.torch, self.device, self.starts[0])
            args, kwargs = self.build(iter(self.leaves))
            with self.care.inside(), self.autocast():
                out = self.inner(self.module, *args, **kwargs)
        finally:
            put_back(self.torch, self.device, after)
        flat = []
        take_out(out, self.care.is_tensor, flat)
        pairs = [(t, g) for t, g in zip(flat, gradients) if g is not None and t.requires_grad]  # noqa: B905
        roots, given = zip(*pairs)  # noqa: B905
        return self.torch.autograd.grad(roots, self.tensors, given, create_graph=True, allow_unused=True)


def _keeps_graph(torch):
    asked = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)
    return True if asked is None else asked()


@functools.lru_cache(maxsize=1)
def cut_class(torch):
    """The autograd function that stands for a call in the user's graph."""

    class Cut(torch.autograd.Function):  # type: ignore[name-defined, misc]
        @staticmethod
        def forward(ctx, call, rows, *_tensors):
            ctx.set_materialize_grads(False)
            ctx.call = call
            found = call.forward(rows)
            ctx.mark_non_differentiable(*[t for t, graded in zip(found, call.graded) if not graded])  # noqa: B905
            return tuple(found)

        @staticmethod
        def backward(ctx, *gradients):
            if torch.is_grad_enabled():
                return (None, None, *ctx.call.backward_with_graph(gradients))
            return (None, None, *ctx.call.backward(gradients))

    return Cut
