"""The calls that belong to a full batch, stood around: passed over with its first chunks, made with the last.

Updates, the loss scaler's doings, clipping, schedules that are stepped with each batch, averages of weights. Gradients
are set to zero only when those of a full batch have been used.
"""

import functools
import weakref

from ...heal.leaves import Unsplittable
from ..observe.visibility import modules_of


class BatchCalls:
    """Asks `OncePerBatch` whether a call is due."""

    def __init__(self, split):
        self.split, self.once, self.torch, self.guard = split, split.once, split.torch, split.guard

    def patch(self):
        torch = self.torch
        optimizer = torch.optim.Optimizer
        self._patch_step(optimizer)
        for holder in (optimizer, torch.nn.Module):
            self._patch_zero(holder)
        scaler = getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler
        for name in ("unscale_", "step", "update"):
            self._patch_method(scaler, name, "scaler.%s" % name)
        schedulers = vars(torch.optim.lr_scheduler).values()
        for cls in {one for one in schedulers if isinstance(one, type) and "step" in vars(one)}:
            self._patch_method(cls, "step", "scheduler.step")
        averaged = getattr(torch.optim.swa_utils, "AveragedModel", None)
        if averaged is not None:
            self._patch_method(averaged, "update_parameters", "update_parameters")
        self._patch_clipping(torch.nn.utils)

    def _act(self, kind, thing, call):
        try:
            due = self.once.due(kind, thing)
        except Exception as error:
            self.guard.caught(kind, error)
            due = True
        if not due:
            return None
        if kind == "scaler.step":
            self.once.gathered = False  # also where it finds that there is nothing to update with
        before, self.once.passing = self.once.passing, True
        try:
            return call()
        finally:
            self.once.passing = before

    def _patch_method(self, cls, name, kind):
        inner = vars(cls)[name]

        @functools.wraps(inner)
        def method(thing, *args, **kwargs):
            return self._act(kind, thing, lambda: inner(thing, *args, **kwargs))

        setattr(cls, name, method)

    def _patch_step(self, optimizer_class):
        """PyTorch wraps the `step` of each class when the first of its kind is made; some have been made."""
        inner = optimizer_class.profile_hook_step
        optimizer_class.profile_hook_step = staticmethod(lambda function: self._stood_around(inner(function)))
        made = [one for ref in self.split.optimizers if (one := ref()) is not None]
        for cls in {
            owner for one in made for owner in type(one).__mro__[:-1] if hasattr(vars(owner).get("step"), "hooked")
        }:
            setattr(cls, "step", self._stood_around(getattr(cls, "step")))
        for one in made:
            bound = vars(one).get("step")  # a schedule has put its own in front, which knows the one of before
            if bound is not None:
                around = self._stood_around(lambda _optimizer, *args, _inner=bound, **kwargs: _inner(*args, **kwargs))
                one.step = functools.update_wrapper(functools.partial(around, one), bound)

    def _stood_around(self, inner):
        @functools.wraps(inner)
        def step(optimizer, *args, **kwargs):
            return self._step(inner, optimizer, args, kwargs)

        return step

    def _step(self, inner, optimizer, args, kwargs):
        split, current = self.split, self.split.now
        if current is None or current.batch is None:
            return inner(optimizer, *args, **kwargs)
        if args or kwargs.get("closure") is not None:
            split.decline(current.profile, "the update computes the loss itself, within a closure")
        self.once.stepped = True
        kind = "optimizer.step"
        try:
            due = self.once.passing or self.once.due(kind, optimizer)
        except Exception as error:
            self.guard.caught(kind, error)
            due = True
        if not due:
            return None
        if not current.profile.settled and not current.profile.declined:
            self.guard(split.settle)(current)
        if current.profile.reported_chunks != split.chunks and not current.profile.declined:
            self.guard(split.report)(current)
        current.profile.updates += 1
        self.once.gathered = False
        return inner(optimizer, *args, **kwargs)

    def _patch_zero(self, cls):
        inner = vars(cls)["zero_grad"]

        @functools.wraps(inner)
        def zero_grad(thing, *args, **kwargs):
            current = self.split.now
            if current is not None and current.batch is not None and self.once.gathered:
                return None
            return inner(thing, *args, **kwargs)

        cls.zero_grad = zero_grad

    def _patch_clipping(self, holder):
        for name in ("clip_grad_norm_", "clip_grad_value_"):
            inner = getattr(holder, name)
            setattr(holder, name, self._clipping(inner, name))
            if getattr(holder.clip_grad, name, None) is inner:
                setattr(holder.clip_grad, name, getattr(holder, name))

    def _clipping(self, inner, name):
        @functools.wraps(inner)
        def clip(parameters, *args, **kwargs):
            parameters = [parameters] if isinstance(parameters, self.torch.Tensor) else list(parameters)
            try:
                due = self.once.due(name, None)
            except Exception as error:
                self.guard.caught(name, error)
                due = True
            if due:
                return inner(parameters, *args, **kwargs)
            if name == "clip_grad_value_":
                return None
            return self._norm(parameters, *args[1:], **kwargs)

        return clip

    def _norm(self, parameters, norm_type=2.0, **_kwargs):
        """The norm so far, of gradients that are left as they are."""
        grads = [p.grad for p in parameters if p.grad is not None]
        if not grads:
            return self.torch.tensor(0.0)
        norm = self.torch.linalg.vector_norm
        return norm(self.torch.stack([norm(grad, norm_type).to(grads[0].device) for grad in grads]), norm_type)


# --- When a call that belongs to a full batch acts: with the last of its chunks, and not before
# A loop that accumulates by itself calls `step` every few iterations: then it acts every so many batches. What is
# called outside of a pass over the loader, such as a schedule of epochs, acts as ever. While the first batch is gone
# through it is watched whether the loop does anything that chunks would spoil.

_SEVERAL = "several updates are made with each batch"
_BY_HAND = "gradients or weights are changed by hand between backward and the update"
_RATE = "the loop sets the learning rate by its own count of iterations"


class Gate:
    """The calls of one thing: every how many iterations it is called."""

    def __init__(self):
        self.loader_pass = None
        self.last = 0
        self.every = None
        self.verdict = True


class OncePerBatch:
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
        current = self.split.now
        if self.passing or current is None or current.batch is None:
            return True
        gate = self.gates.setdefault((kind, id(thing)), Gate())
        if gate.loader_pass is not current:
            gate.loader_pass, gate.last = current, 0
        if current.chunks_learnt != gate.last:
            self._judge(gate, kind, current)
        return gate.verdict and not current.profile.redo

    def _judge(self, gate, kind, current):
        gap, gate.last = current.chunks_learnt - gate.last, current.chunks_learnt
        final = current.is_last_chunk and self._ends_pass(current)
        if gate.every is None:
            gate.every = gap
        if gap != gate.every and not final:
            words = "%s is called after %d iterations here and after %d there"
            self.split.decline(current.profile, words % (kind, gate.every, gap))
        gate.verdict = current.is_last_chunk and (current.drawn % gate.every == 0 or final)

    def _ends_pass(self, current):
        try:
            return current.drawn == self.split.batches_of(current.loader())
        except (TypeError, AttributeError):
            return False

    def new_batch(self):
        """Where each batch has its update, what remains of one without it is not carried on."""
        every = [gate.every for (kind, _), gate in self.gates.items() if kind == "optimizer.step"]
        if not every or every == [1] * len(every):
            self.gathered = False

    def gathered_by(self, current):
        """After a backward."""
        if current is None or current.batch is None:
            return
        self.gathered = True
        if not current.profile.settled:
            self.marks = _marks(self.split.weights())
            self.rates = self._rates() if current.at == 0 else self.rates

    def before_backward(self, current):
        """While it is learned: is all as the chunk before has put it?"""
        if self.split.backwards:
            if self.stepped:
                self._broken(_SEVERAL)
        elif not current.profile.settled and current.at:
            if self.marks is not None and not _as_marked(self.split.weights(), self.marks):
                self._broken(_BY_HAND)
            # By its share of the length, a rate is that of the same place of the pass, in either count.
            if self.rates is not None and self._rates() != self.rates and not self.asked_length:
                self._broken(_RATE)

    def _broken(self, why):
        self.broken = True
        raise Unsplittable(why)

    def _rates(self):
        optimizers = [one for ref in self.split.optimizers if (one := ref()) is not None]
        return [group.get("lr") for one in optimizers for group in one.param_groups]


def _marks(weights):
    """What changes when a gradient or a weight is written to, or replaced."""
    return [(_ref(w.grad), _version(w.grad), w._version) for w in weights]


def _as_marked(weights, marks):
    return len(weights) == len(marks) and all(
        _is(w.grad, ref) and _version(w.grad) == of_gradient and w._version == of_weight
        for w, (ref, of_gradient, of_weight) in zip(weights, marks)  # noqa: B905
    )


def _ref(gradient):
    """Weak, as a gradient that is let go has to be gone; no address, as another may come to lie there."""
    return None if gradient is None else weakref.ref(gradient)


def _is(gradient, ref):
    return ref is None if gradient is None else ref is not None and ref() is gradient


def _version(gradient):
    return 0 if gradient is None else gradient._version


# --- BatchNorm beneath chunks of a batch: its running statistics move with each chunk by as much less as there are
# chunks


class SoftNorms:
    """The BatchNorms of the models that are trained."""

    def __init__(self, torch):
        self.kind = torch.nn.modules.batchnorm._BatchNorm
        self.softened = []  # with the momentum that is their own

    def of(self, models):
        alive = [model for ref in models if (model := ref()) is not None]
        return [module for model in alive for module in modules_of(model) if isinstance(module, self.kind)]

    def soften(self, models, chunks):
        """At the first batch of a pass."""
        if not self.softened:
            self.softened = [(norm, norm.momentum) for norm in self.of(models) if norm.momentum is not None]
            for norm, momentum in self.softened:
                norm.momentum = 1.0 - (1.0 - momentum) ** (1.0 / chunks)

    def firm(self):
        """When the pass is over: as they were."""
        softened, self.softened = self.softened, []
        for norm, momentum in softened:
            norm.momentum = momentum
