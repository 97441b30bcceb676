"""One call of a model, run in chunks along the batch: forward, and backward with all but the last computed again.

The call is cut out of the user's graph by an autograd function. Their loss is computed on the full batch's output; its
gradient comes back here and is handed to the chunks. The graph of the last chunk is kept, since backward begins with
it; those before it are dropped, and computed once more from the same inputs, weights and random state.
"""

import functools
import weakref
from contextlib import contextmanager
from typing import Any

from ...heal.leaves import Unsplittable, batch_axes, batch_of, bytes_of, rows_of, take_out
from ...heal.out_of_memory import forget, oom_error
from ..observe.visibility import modules_of, weights_of
from . import joining, proof
from .around import Around, RandomState
from .split_state import LOSS_PER_OUTPUT

_FIRST_CHUNK = 8  # of a batch of which nothing is known, one part in so many is run first and measured


class Call:
    """What one call of a model was given, and what is kept of it until its backward."""

    def __init__(self, state, inner, args, kwargs, with_graph=True, axes=None, program=()):
        self.state, self.inner, self.torch, self.with_graph = state, inner, state.torch, with_graph
        self.module = state.module()  # held: a slice of a model is gone by the time of its backward
        self.device = state.device
        self.leaves, self.beside_tensors = [], []
        self.build = take_out((args, kwargs), state.is_tensor, self.leaves, self.beside_tensors)
        self.size, self.elements = batch_of(self.leaves, state.axis), sum(leaf.numel() for leaf in self.leaves)
        self.axes = batch_axes(self.leaves, self.size, state.axis) if axes is None else axes
        self.program = program  # what is computed from the outputs within the call, by name (`deferred`)
        self.operations: "Any" = ()  # those
        self.told_apart = False  # proven with two samples that have unlike numbers of labels
        self.rules: "Any" = ()  # what is known of each of its outputs beforehand (`by_sample`)
        # What its memory hangs on, but for the number of samples.
        self.shapes = (
            with_graph,
            program,
            *((*(n for d, n in enumerate(leaf.shape) if d != axis), leaf.dtype) for leaf, axis in self._pairs()),
        )
        self.autocast = state.autocast()
        self.needing = [n for n, leaf in enumerate(self.leaves) if leaf.requires_grad and with_graph]
        self.versions = self._versions()
        self.kinds: "Any" = None  # how each output joins
        self.ignored, self.counts = (), {}  # the labels that a loss leaves out, and how many each sample has of others
        self.rebuild: "Any" = None  # makes what the model returned from the full batch's outputs
        self.graded = []  # which outputs have a gradient
        self.chunks = []  # (first sample, the one after the last, the random state before it)
        self.kept: "Any" = None  # inputs and outputs of the last chunk
        self.failed: "Any" = None  # why there was no memory for a backward
        self.again = []  # chunks of an earlier time, to be gone through as they were
        self.gathered: "Any" = None  # the gradients, where they were computed along with the outputs
        self.seed: "Any" = None  # what they were computed for: the gradient of the first output, or one
        self.exact = False  # nothing but one will be asked for
        self.trains = with_graph  # or it is a figure of a call that does
        self.tables: "Any" = ()  # the attributes of its layers, with what they were when it was called

    def _pairs(self):
        return zip(self.leaves, self.axes)  # noqa: B905

    def let_go(self):
        """While the user's own call runs: an input is gone as soon as the call has let go of it."""
        self.leaves = [weakref.ref(leaf) for leaf in self.leaves]

    def takes_again(self):
        """After it; false where an input is gone."""
        self.leaves = [ref() for ref in self.leaves]
        return all(leaf is not None for leaf in self.leaves)

    # --- a chunk ------------------------------------------------------------------------------------------

    def fresh(self, begin, end):
        """The arguments with some samples, of which those that need gradients are leaves of a new graph."""
        leaves = [rows_of(leaf, axis, begin, end) for leaf, axis in self._pairs()]
        for n in self.needing:
            leaves[n] = leaves[n].detach().requires_grad_()
        return ([leaves[n] for n in self.needing], *self.build(iter(leaves)))

    def run(self, begin, end):
        """Call the model with some samples; gives its inputs that need gradients, and the tensors it gave."""
        inputs, args, kwargs = self.fresh(begin, end)
        share = (end - begin) / self.size if self.size else 1.0
        with self.state.at_work(share, self.with_graph, begin == 0), self.torch.set_grad_enabled(self.with_graph):
            out = self.inner(self.module, *args, **kwargs)
        flat, unknown = [], []
        self.rebuild = take_out(out, self.state.is_tensor, flat, unknown)
        proof.returned(self.torch, unknown)
        self.graded = [output.requires_grad for output in flat]
        return inputs, flat

    def of(self, picked):
        """The same call with a few of its samples."""
        few = []
        for leaf, axis in self._pairs():
            index = self.torch.tensor(picked, device=leaf.device)
            few.append(leaf if axis is None else leaf.detach().index_select(axis, index))
        for n in self.needing:
            few[n] = few[n].detach().requires_grad_()
        args, kwargs = self.build(iter(few))
        found = Call(self.state, self.inner, args, kwargs, self.with_graph)
        found.axes, found.size = self.axes, len(picked)  # two may be the length of another axis, too
        found.program, found.rules, found.ignored = self.program, self.rules, self.ignored
        return found

    @contextmanager
    def as_called(self):
        """Its layers are as they were when it was called: in training or not, with an adapter or without."""
        now = []
        for table, before in self.tables:
            for key, value in before.items():
                if key in table and table[key] is not value and not key.startswith("_flat_weight"):
                    now.append((table, key, table[key]))
                    table[key] = value
        try:
            yield
        finally:
            for table, key, value in now:
                table[key] = value

    # --- forward ------------------------------------------------------------------------------------------

    def examine(self):
        """Before a first chunk: how the outputs join, proven once, and what is needed for that."""
        self.tables = [(layer.__dict__, dict(layer.__dict__)) for layer in modules_of(self.module)]
        self.kinds, self.ignored = self.state.kinds(self)
        self.counts = joining.label_counts(self.torch, self.leaves, self.axes, self.ignored)
        by_label = any(isinstance(getattr(kind, "rule", None), tuple) for kind in self.kinds)
        means = any(getattr(kind, "rule", None) == "mean" for kind in self.kinds)
        # Where all samples had as many labels, it could not be seen whether it is these that a mean goes by.
        told_apart = by_label or not means or self.state.is_told_apart(self)
        if not told_apart and joining.unlike(self.torch, self.counts) is not None:
            self.kinds, self.ignored = self.state.kinds(self, anew=True)
        self.counts = {key: one.cpu() for key, one in self.counts.items()} if by_label else self.counts

    def forward(self, rows):
        """All samples, `rows` at a time (0: not known yet); gives the full batch's outputs."""
        state, budget, asked = self.state, self.state.budget, rows or self.size
        measured, again = rows > 0, list(self.again)
        rows = rows if measured else max(state.min_rows, self.size // _FIRST_CHUNK)
        begin, full, self.chunks = 0, [], []
        while begin < self.size:
            end = again[0][1] if again else state.end_of_chunk(begin, rows, self.size)
            start, before = RandomState(self.torch, self.device), budget.used()
            if again:
                again.pop(0)[2].put_back()
            done = self._attempt(begin, end)
            if done is None:
                again.clear()
                start.put_back()
                measured, rows = True, state.halve(end - begin)
                continue
            cost = max(budget.used() - before, 1)
            outputs = [output.detach() for output in done[1]]
            full = full or [kind.empty(one, self.size) for kind, one in zip(self.kinds, outputs)]  # noqa: B905
            for kind, into, output in zip(self.kinds, full, outputs):  # noqa: B905
                kind.put(into, output, begin, end, self.weight(kind, begin, end))
            self.chunks.append((begin, end, start))
            self.kept = done if end == self.size and self.with_graph else None
            done = outputs = output = None
            begin = end
            to_come = LOSS_PER_OUTPUT * bytes_of(full) + state.gradient_bytes() if self.with_graph else 0
            if not measured:
                # What was seen to fit is no less likely to fit again: what is still to come is only guessed.
                fit = state.rows_that_fit(cost / rows, self.size - begin, to_come)
                measured, rows = True, max(rows, fit)
        if not self.chunks:
            raise Unsplittable("the batch has no samples")
        begin, end, _ = self.chunks[-1]
        state.learned(self, self._largest(), asked, cost / (end - begin), to_come)
        return full

    def _attempt(self, begin, end):
        """One chunk, or None when there was no memory for it; nothing of the attempt is alive then."""
        try:
            return self.run(begin, end)
        except Exception as error:
            if not self.state.is_oom(error):
                raise
            failed = error
        forget(failed)
        self.state.ran_out(failed)
        return None

    def _largest(self):
        return max(end - begin for begin, end, _ in self.chunks)

    def weight(self, kind, begin, end):
        """What a chunk's loss counts for in the full batch's, where an output is one."""
        rule = getattr(kind, "rule", None)
        return 1.0 if rule is None else joining.weight(rule, self.counts, begin, end, self.size)

    # --- backward -----------------------------------------------------------------------------------------

    def forward_backward(self, rows):
        """The full batch's outputs, and each chunk's backward from the first of them right after its forward."""
        state, asked, measured = self.state, rows or self.size, rows > 0
        rows = rows if measured else max(state.min_rows, self.size // _FIRST_CHUNK)
        before = Around(state, state.norms)
        while True:
            state.weights.forget()
            try:
                full, each, to_come = self._forward_backward(rows, measured)
                break
            except Exception as error:
                if not self.state.is_oom(error):
                    raise
                failed = error
            forget(failed)
            self.kept, largest = None, max([rows, *(end - begin for begin, end, _ in self.chunks)])
            state.release_failed_backward(failed)
            before.undo()
            measured, rows, self.again = True, state.halve(largest), []
        if self.again:
            before.undo()
        state.learned(self, self._largest(), asked, each, to_come)
        return full

    def _forward_backward(self, rows, measured):
        state, budget, again = self.state, self.state.budget, list(self.again)
        begin, full, self.chunks, of_inputs = 0, [], [], [None] * len(self.needing)
        to_come = 0 if measured else state.gradient_bytes()
        while begin < self.size:
            end = again[0][1] if again else state.end_of_chunk(begin, rows, self.size)
            if again:
                again.pop(0)[2].put_back()
            self.chunks.append((begin, end, RandomState(self.torch, self.device)))
            used = budget.used()
            inputs, outputs = self.run(begin, end)
            each = max(budget.used() - used, 1) / (end - begin)
            if not full:
                full = [kind.empty(one.detach(), self.size) for kind, one in zip(self.kinds, outputs)]  # noqa: B905
                one = self.torch.ones_like(full[0])
                seeds = [one if self.seed is None else self.seed.to(one.dtype), *[None] * (len(full) - 1)]
            for kind, into, output in zip(self.kinds, full, outputs):  # noqa: B905
                kind.put(into, output.detach(), begin, end, self.weight(kind, begin, end))
            self._chunk_backward(of_inputs, inputs, outputs, seeds, begin, end)
            inputs = outputs = output = None
            begin = end
            if not measured:
                measured, rows = True, max(rows, state.rows_that_fit(each, self.size - begin, to_come))
        self.gathered = [*of_inputs, *state.weights.gradients()]
        return full, each, to_come

    def _gathered(self, gradients):
        """What was computed along with the outputs, for the gradient that came; None where it is for another output."""
        gathered, self.gathered = self.gathered, None
        if gathered is None or gradients[0] is None or any(one is not None for one in gradients[1:]):
            return None
        if not self.exact:
            if self.seed is None and self.state.is_mixed_with(self.torch.float16, self.autocast):
                self.state.seed = gradients[0].detach()
                return None  # what a scaler is there for was too small to be seen
            came = gradients[0].detach()
            ratio = came if self.seed is None else came / self.seed
            for one in gathered:
                if one is not None:
                    one.mul_(ratio)
            self.state.seed = self.torch.where(came.isfinite() & (came != 0), came, self.torch.ones_like(came))
        self.exact = False
        return gathered

    def backward(self, gradients):
        """The gradients of the inputs that need them and of the weights, for the full batch."""
        found = self._gathered(gradients)
        if found is not None:
            return found
        state = self.state
        if not self.is_untouched():  # what is computed again must meet the same; PyTorch asks that of a graph, too
            self.refuse("the model's inputs or weights were changed in place between forward and backward")
        after = Around(state, state.norms)  # nothing else is changed by a call: that was proven
        if not self.chunks:
            self.chunks = list(self.again)
        if not self.chunks:
            self._cut(state.rows_for(self) or state.min_rows, RandomState(self.torch, self.device))
        try:
            with state.budget.wall, self.as_called():
                found = self._all_chunks(gradients)
                while found is None:
                    found = self._in_smaller_chunks(gradients)
                return found
        finally:
            after.undo()

    def _cut(self, rows, start):
        """Into the chunks that its backward goes through, where it was not run forward so."""
        begin, self.chunks = 0, []
        while begin < self.size:
            end = self.state.end_of_chunk(begin, rows, self.size)
            self.chunks.append((begin, end, start))
            begin = end

    def _in_smaller_chunks(self, gradients):
        """After a backward that did not fit: all of it once more, with half as many samples at a time."""
        state, wall, largest = self.state, self.state.budget.wall, self._largest()
        state.release_failed_backward(self.failed)
        self.kept = None
        try:
            rows = state.halve(largest)
        except Unsplittable as error:
            state.decline(str(error))
            if wall.at():  # it was our wall that it failed at: the kernel may allow it
                with wall.lifted():
                    found = self._all_chunks(gradients)
                if found is not None:
                    return found
            raise oom_error(self.torch, "out of memory in a backward in chunks: %s" % error) from None
        self._cut(rows, self.chunks[0][2])
        state.learned(self, rows, largest)
        return self._all_chunks(gradients)

    def _all_chunks(self, gradients):
        """The gradients of inputs and weights, chunk by chunk; None where there was no memory for one."""
        weights = self.state.weights
        weights.forget()
        try:
            of_inputs = self.backward_chunks(gradients)
        except Exception as error:
            if not self.state.is_oom(error):
                raise
            forget(error)
            self.failed = error
            return None
        return [*of_inputs, *weights.gradients()]

    def backward_chunks(self, gradients):
        """Add the weights' gradients to their stand-ins, and give those of the inputs."""
        of_inputs = [None] * len(self.needing)
        for begin, end, start in reversed(self.chunks):
            kept, self.kept = self.kept, None
            if kept is None:
                start.put_back()
                with self.autocast():
                    kept = self.run(begin, end)
            inputs, outputs = kept
            kept = None
            self._chunk_backward(of_inputs, inputs, outputs, gradients, begin, end)
            inputs = outputs = None
        return of_inputs

    def _chunk_backward(self, of_inputs, inputs, outputs, gradients, begin, end):
        roots, given = self._roots(outputs, gradients, begin, end)
        outputs.clear()
        if roots:
            engine = self.torch.autograd.Variable._execution_engine
            engine.run_backward(roots, given, False, False, (), allow_unreachable=True, accumulate_grad=True)
        roots = given = None
        self._gather(of_inputs, inputs, begin, end)

    def _roots(self, outputs, gradients, begin, end):
        roots, given = [], []
        for kind, output, gradient in zip(self.kinds, outputs, gradients):  # noqa: B905
            if gradient is not None and output.requires_grad:
                roots.append(output)
                given.append(kind.gradient(gradient, begin, end, self.weight(kind, begin, end)))
        return tuple(roots), tuple(given)

    def _gather(self, of_inputs, inputs, begin, end):
        for at, (n, tensor) in enumerate(zip(self.needing, inputs)):  # noqa: B905
            if tensor.grad is None:
                continue
            if self.axes[n] is None:
                of_inputs[at] = tensor.grad if of_inputs[at] is None else of_inputs[at].add_(tensor.grad)
                continue
            if of_inputs[at] is None:
                of_inputs[at] = self.torch.zeros_like(self.leaves[n])
            rows_of(of_inputs[at], self.axes[n], begin, end).copy_(tensor.grad)

    def _versions(self):
        is_plain = self.state.split.unseen.is_plain  # a lazy layer's weight has no version before its first call
        leaves, weights = ([one for one in some if is_plain(one)] for some in (self.leaves, weights_of(self.module)))
        counts = [one._version for one in (*leaves, *weights) if not one.is_inference()]
        return counts, [weight.data_ptr() for weight in weights]

    def is_untouched(self):
        """Tell whether inputs and weights are as they were before the call."""
        return self._versions() == self.versions

    def refuse(self, why):
        """End with the error that the run would have had without us: the chunks' graphs can't be made again."""
        self.state.decline(why)
        raise oom_error(self.torch, "out of memory, and the batch can't be run in chunks: %s" % why)


@functools.lru_cache(maxsize=1)
def cut_class(torch):
    """The autograd function that stands for a call in the user's graph."""

    class Cut(torch.autograd.Function):  # type: ignore[name-defined, misc]
        @staticmethod
        def forward(ctx, call, make, *_tensors):
            ctx.set_materialize_grads(False)
            ctx.call = call
            found = make()
            ctx.mark_non_differentiable(*[t for t, graded in zip(found, call.graded) if not graded])  # noqa: B905
            return tuple(found)

        @staticmethod
        def backward(ctx, *gradients):
            if torch.is_grad_enabled():
                ctx.call.refuse("second-order gradients are taken through the model")
            found = ctx.call.backward(gradients)
            ctx.call.state.split.deferring.after_backward(ctx.call.state)
            return (None, None, *found)

    return Cut
