"""Hold back a non-finite update (PyTorch), and go back to the last good state where holding back is not enough.

What decides is the gradient: an update whose gradients are all finite is let through, whatever the loss looks like. All
gradients are read when the loss or one small gradient was non-finite, and otherwise as often as a six-hundredth of the
time allows. The optimizer is shown no gradient for that one step, which PyTorch's optimizers pass over: weights,
moments and the count of its steps stay as they were, as if the loop had skipped the batch by hand. Afterwards the
gradients are there again, as zeros: a loop that reads them, or that adds to them, goes on. Where gradients are
accumulated over several batches, the update of all of them is left out. The step counts as a step of the run.

Here it is seen; `nonfinite_acts` says what is done. On a GPU the update can't be held back (`LateLook`). A
GradScaler judges its gradients itself and is left alone.
"""

import sys
from time import monotonic_ns

from ...heal.nonfinite_reason import is_batch
from .nonfinite_acts import Acts
from .snapshot import first_bad

_READING_SHARE = 600  # a reading of all gradients may take one part in so many of the time
_LOOK_SHARE = 20  # and a look at a batch that may be to blame, once something is wrong
_MIN_LOOKS = 8  # so many are taken in any case
_MAX_STEPS_UNREAD = 1000
_STEPS_UNREAD_SCALED = 16  # where a loss scaler judges the gradients


class NanHeal:
    """Stands before and after every optimizer's step."""

    def __init__(self, agent, torch, adapter):
        self.guard, self.torch, self.adapter = agent.guard, torch, adapter
        self.watch, self.beat = adapter.nan, adapter.beat
        self.acts = Acts(agent, torch, adapter)
        self.states = self.acts.states
        self.late = LateLook(torch)
        self.is_compiling = adapter.is_compiling
        self.calm = False  # nothing is to be done before the next full reading
        self.suspect = 0  # optimizer steps whose gradients are all to be read
        self.until = 0  # steps to the next full reading
        self.read_at = self.read_step = self.next_look = self.looks = 0
        self.inputs = {}  # of the batch that was met with, what is wrong
        self.within = False  # the step runs forward and backward itself

    def patch(self):
        optimizers = sys.modules["torch.optim.optimizer"]
        optimizers.register_optimizer_step_pre_hook(self.before)
        optimizers.register_optimizer_step_post_hook(self.after)
        self.watch.heal = self

    # --- at every step ------------------------------------------------------------------------------------

    def before(self, optimizer, args, kwargs):
        """The hook before a step: pass by, or look at its gradients."""
        if self.is_compiling():
            return None
        if self.calm and len(args) == 1 and not kwargs:
            self.until -= 1
            if self.until >= 0 and (self.states.cuda is not None or self.beat.since < self.states.next_at):
                return None
        if self.acts.off or not self._may_look(optimizer):
            return None
        try:
            closure = args[1] if len(args) > 1 else kwargs.get("closure") if kwargs else None
            if self.states.busy:
                self.states.wait()
            if self.late.asked:
                self._judge_late(optimizer)
            if closure is not None:
                args, kwargs = self._judged_within(optimizer, closure, args, kwargs)
            else:
                self.until -= not self.calm
                if self.suspect or self.until < 0:
                    self._judge(optimizer)
                if self.states.cuda is None and not self.acts.hidden:
                    self._keep(optimizer)
            self.within = closure is not None
            self._look_up()
            return None if closure is None else (args, kwargs)
        except Exception as error:
            self.guard.caught("before step", error)
            return None

    def after(self, optimizer, _args, _kwargs):
        """The hook after a step: give back what it was not shown, and keep a good state from time to time."""
        late = self.states.cuda is not None or self.within
        if (
            self.is_compiling()
            or not self.adapter.unseen.alone()
            or (self.calm and not (late and self.beat.since >= self.states.next_at))
        ):
            return
        try:
            if self.acts.hidden:
                self.acts.show()
            elif late and self._may_look(optimizer):
                self._keep(None)
            self._look_up()
        except Exception as error:
            self.guard.caught("after step", error)

    def _keep(self, pending):
        """Keep the state, where it is time and it is good; `pending` is the optimizer whose step comes next.

        Before a step, the loss at hand is that of these very weights: one that throws them far off is known by the
        next. A copy from a device has to be begun after the step, so as to go on beside the next forward.
        """
        if self.beat.since < self.states.next_at or self.acts.is_one_of_several():
            return
        self.states.keep(max(1, self.beat.steps + (pending is None)), self.acts.losses())

    def _may_look(self, optimizer):
        """In calm nobody may notice that gradients are read and states kept: a profiler, a subclass of tensors."""
        if self.suspect or self.late.asked or self.acts.hidden or self.states.busy:
            return True
        unseen = self.adapter.unseen
        params = (p for group in optimizer.param_groups for p in group["params"])
        return unseen.may_compute() and all(map(unseen.is_plain, params))

    def _look_up(self):
        """Calm is when a step needs no more than to be counted."""
        self.calm = not (self.suspect or self.states.busy or self.late.asked or self.acts.hidden)

    def _judged_within(self, optimizer, closure, args, kwargs):
        """Lightning's loops and others run forward and backward inside the step: its gradients are judged there."""
        calls = []

        def judged(*some, **more):
            result = closure(*some, **more)
            try:
                calls.append(1)
                self.until -= 1
                if len(calls) == 1 and not self.acts.off and (self.suspect or self.until < 0):
                    self._judge(optimizer)
            except Exception as error:
                self.guard.caught("closure", error)
            return result

        if len(args) > 1:
            return (args[0], judged, *args[2:]), kwargs
        return args, dict(kwargs, closure=judged)

    # --- is it finite? ------------------------------------------------------------------------------------

    def _judge(self, optimizer):
        if self.acts.is_one_of_several():
            return
        begun, steps = monotonic_ns(), self.beat.steps
        self.suspect = max(0, self.suspect - 1)
        if getattr(optimizer, "found_inf", None) is not None or self._scaled():
            self.until = _STEPS_UNREAD_SCALED  # a loss scaler has judged, or judges within the update
            return
        params = [p for group in optimizer.param_groups for p in group["params"]]
        bad = first_bad(self.torch, [p.grad for p in params])
        cost, passed = monotonic_ns() - begun, begun - self.read_at
        each = passed // max(1, steps - self.read_step) if self.read_at else cost
        self.until = (
            min(_MAX_STEPS_UNREAD, cost * _READING_SHARE // max(1, each)) if bad is None and not self.suspect else 0
        )
        self.read_at, self.read_step = begun, steps
        if bad is None:
            self.acts.row = 0
        else:
            inputs = self.inputs if self.inputs.get("step") == steps + 1 else {}
            self.acts.hold(optimizer, params, params[bad], inputs)

    def _judge_late(self, optimizer):
        """On a GPU: go back when the weights turn out to be non-finite."""
        optimizers = [one for ref in self.watch.optimizers if (one := ref()) is not None]
        if self._scaled():
            self.late.forget()
        elif self.late.answer(optimizers):
            self.late.after = self.beat.steps + 1
            self.acts.undo(optimizer, [p for one in optimizers for group in one.param_groups for p in group["params"]])

    def _scaled(self):
        scalers = (ref() for ref in self.watch.scalers)
        return any(scaler is not None and scaler.is_enabled() for scaler in scalers)

    # --- what the watch has met with ------------------------------------------------------------------------

    def met(self, loss, frame):
        """A loss, or after its backward a gradient, was non-finite: all gradients of the updates to come are read."""
        if self.acts.off:
            self.acts.report_why_off()
            return
        self.suspect, self.calm = 2 * max(1, len(self.watch.optimizers)), False
        step, seen = self.beat.steps + 1, self.watch.seen
        found = seen.get("inputs") if seen.get("step") == step else self._wrong_with_batch(loss, frame)
        if is_batch(found):
            self.inputs = dict(found, step=step)

    def met_late(self, step):
        """A loss that came back from a GPU was non-finite."""
        self.late.suspect(step)
        self.calm = False

    def _wrong_with_batch(self, loss, frame):
        """A look at the full batch, for a share of the time; else only at what the model was called with."""
        begun = monotonic_ns()
        if begun >= self.next_look or self.looks < _MIN_LOOKS:
            self.looks += 1
            found = self.watch.look.spike(loss, frame).get("inputs")
            self.next_look = begun + _LOOK_SHARE * (monotonic_ns() - begun)
            return found
        tensors = [ref() for _model, refs, *_ in self.watch.batch.calls for _name, ref in refs]
        if first_bad(self.torch, tensors) is None:
            return None
        like = {key: self.inputs[key] for key in ("name", "bad", "feature") if key in self.inputs}
        return like or {"name": "the batch", "bad": "nan"}


# --- Weights on a GPU that may be non-finite: asked on the device, and known some steps later. Nothing ever waits
# The update itself can't be held back there: whether it is a number is known on the device only, after the host has
# already asked for it, and to check every gradient at every step would cost more than the 1 % that calm may cost. So a
# loss that came back as non-finite has the weights asked, and if they are too the training goes back.


class LateLook:
    """One question at a time."""

    def __init__(self, torch):
        self.torch = torch
        self.asked = 0  # the step whose loss was non-finite
        self.after = 0  # losses up to this step say nothing any more
        self.pending = None

    def suspect(self, step):
        if step > self.after and not self.asked:
            self.asked = step

    def forget(self):
        self.asked, self.pending = 0, None

    def answer(self, optimizers):
        """True or False once it is known whether weights are non-finite, None before."""
        try:
            return self._answer(optimizers)
        except Exception:
            self.forget()
            raise

    def _answer(self, optimizers):
        torch = self.torch
        if self.pending is None:
            params = {id(p): p for o in optimizers for group in o.param_groups for p in group["params"]}
            weights = [p.detach() for p in params.values() if p.is_cuda and p.is_floating_point() and p.numel()]
            if torch.cuda.is_current_stream_capturing():
                return None
            if not weights:
                self.forget()
                return None
            with torch.no_grad():
                norms = torch._foreach_norm(weights, float("inf"))
                figure = torch.empty((), dtype=torch.float32, pin_memory=True)
                figure.copy_(torch.stack([norm.float() for norm in norms]).sum(), non_blocking=True)
            event = torch.cuda.Event()
            event.record()
            self.pending = figure, event
            return None
        figure, event = self.pending
        if not event.query():
            return None
        self.forget()
        total = float(figure)
        return total - total != 0.0
