"""What is done about an update that is non-finite (PyTorch), and where the doing ends.

One whose batch is bad is held back. Where the weights are non-finite already, where the loss ran away, or where the
third update in a row is none without a batch to blame, the training goes back to the last good state (`good_states`)
and on with the next batch. What comes again after that is no matter of a batch: `--heal` lets go then and says why,
`--heal=all` lowers the learning rate, or puts bfloat16 in the place of float16; it does so, too, where the loss ran
away and stays a number. It acts a bounded number of times and lets go for good after them: the run ends with its true
cause. Several ranks would have to act alike: they are left alone.
"""

import sys
from math import inf

from ...heal.nonfinite_reason import cure, is_half, of_batch, of_operation, ran_away
from ...heal.nonfinite_report import Tell
from ...heal.patience import Patience
from .finite import first_bad
from .good_states import GoodStates
from .learning_rate import Rate, bfloat_for_half, passes_over_none

_ROW = 3  # updates in a row that are non-finite
_BACKS, _BACKS_ALL = 2, 6  # times that it goes back before many good steps
_AGAIN = 200  # steps within which the same has happened again
_FAR = 100  # steps that may be undone and still be called equivalent, or a twentieth of all
_LONG = 3.0  # seconds of training that may be, however many steps they are


class Acts:
    """Decides, acts, and tells of it."""

    def __init__(self, agent, torch, adapter):
        self.heal, self.torch, self.adapter = agent.heal, torch, adapter
        self.watch, self.beat = adapter.nan, adapter.beat
        self.states = GoodStates(torch, self.watch, adapter.births)
        self.rate = Rate()
        self.tell = Tell(agent)
        self.off, self.why_off = False, ""
        self.hidden = []  # gradients that this step is not shown
        self.row = self.held = 0
        self.patience = Patience()
        self.backs, self.back_step, self.losses_from = 0, 0, 0
        self.scale = inf  # at which a loss scaler was last seen to collapse

    def losses(self):
        """The finite losses since the last going back."""
        since = self.watch.history.count - self.losses_from
        return list(self.watch.history.losses)[-since:] if since > 0 else []

    def grown(self):
        return ran_away(self.losses(), self.states.level.lowest)

    # --- on an update -------------------------------------------------------------------------------------

    def good(self, mask):
        """All gradients of an update are finite, some of them maybe since single elements were left out."""
        self.row = 0
        if mask is not None and mask.count:
            self.tell.masked(self.beat.steps + 1, mask, self._seen())

    def hold(self, optimizer, params, bad, inputs):
        """An update whose gradient of `bad` is non-finite; `inputs` says what is wrong with its batch."""
        if not self._may(optimizer):
            return
        step = self.beat.steps + 1
        self._hide(params)
        self.row, self.held = self.row + 1, self.held + 1
        goes_on = self.patience.spend(step)
        if first_bad(self.torch, params) is not None:
            self._go_back("the weights are non-finite")
        elif not goes_on:
            said = of_batch(inputs) if inputs else self._cure(self.grown())
            self.let_go("%d of %d updates were non-finite: %s" % (self.held, step, said))
        elif not inputs and (self.row >= _ROW or self.grown() is not None):
            several = "the last %d updates were non-finite" % self.row
            self._go_back(several if self.row > 1 else "the update is non-finite")
        else:
            why = of_batch(inputs) if inputs else of_operation(self._seen())
            why = why or "the gradient of %s is not finite" % self._name(bad)
            self.tell.held(step, self.held, why, self.states.mend(), self.states.step)

    def undo(self, optimizer, params):
        """Updates that were non-finite have reached the weights."""
        if self._may(optimizer):
            self._hide(params)
            self._go_back("the weights are non-finite")

    def _may(self, optimizer):
        if not passes_over_none(type(optimizer)):
            self.let_go("%s.step does not pass over weights without a gradient" % type(optimizer).__name__)
        return not self.off

    def is_one_of_several(self):
        """True, and the end of acting, where other ranks would have to leave out the same update; it is told later.

        Asked before a gradient is read: one that lies on several ranks is read by all of them together or hangs.
        """
        distributed = sys.modules.get("torch.distributed")
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            ranks = distributed.get_world_size()
            if ranks > 1:
                self.off = True
                self.states.forget()
                self.why_off = "%d ranks train together, and each would have to leave out the same update" % ranks
        return self.off

    def tell_why_off(self):
        """A run of several ranks has met with what is non-finite."""
        because, self.why_off = self.why_off, ""
        if because:
            self.tell.declined(self.beat.steps + 1, because)

    def ran_off(self, pending):
        """Has the loss run away, although it is a number? True where the training went back; not with this update."""
        if self.heal != "all" or self.off or not self.states.level.ran_off(self.losses(), self.rate.factor < 1.0):
            return False
        if self.states.why_not():
            return False
        if pending is not None:
            self._hide([p for group in pending.param_groups for p in group["params"]])
        self._go_back("the loss ran away")
        return True

    # --- going back ---------------------------------------------------------------------------------------

    def _go_back(self, what):
        """Back to the last good state: once as it was, and with a change where it comes again."""
        step, grown = self.beat.steps + 1, self.grown()
        near = max(_AGAIN, self.states.undone)
        if self.backs and step - self.back_step > 10 * near:
            self.backs = 0
        again = bool(self.backs) and step - self.back_step <= near
        why_not = self.states.why_not()
        if why_not:
            self.let_go("%s, and there is no good state to go back to: %s" % (what, why_not))
            return
        undone = step - self.states.step
        change = grown is not None or again
        far = undone > max(_FAR, step // 20) and self.states.age() > _LONG
        if self.heal != "all" and (change or far or self.backs >= _BACKS):
            self.let_go("%s%s; %s" % (what, " again" if again else "", self._cure(grown)))
        elif self.backs >= _BACKS_ALL:
            self.let_go("%s after going back %d times; %s" % (what, self.backs, self._cure(grown)))
        else:
            self.states.go_back(undone)
            self.backs, self.back_step, self.row = self.backs + 1, step, 0
            self.losses_from = self.watch.history.count
            self._change(step, undone, what, grown, change, far)

    def _change(self, step, undone, what, grown, change, far):
        seen = self.watch.seen
        if not change:
            self.tell.back(step, undone, what, "go-back", "", "changed" if far else "equivalent")
        elif grown is None and is_half(seen) and seen.get("autocast") and bfloat_for_half(self.torch):
            self.tell.back(step, undone, what, "bfloat16", ", and on in bfloat16 in place of float16")
        else:
            self.rate.halve(self.backs)
            rest = ", and on with %.4g times the learning rate" % self.rate.factor
            self.tell.back(step, undone, what, "lower-rate", rest)

    # --- letting go ---------------------------------------------------------------------------------------

    def let_go(self, because):
        """Act no more: what would have happened happens, and the run ends with its true cause."""
        self.off = True
        self.show(as_they_were=True)
        self.states.forget()
        self.tell.declined(self.beat.steps + 1, because)

    def collapsed(self, scale):
        """A loss scaler has skipped so many updates that its scale is almost nothing."""
        if self.off or scale > self.scale / 16:
            return
        self.scale = scale
        what = "the GradScaler skips every update: its scale has fallen to %.3g" % scale
        if self.heal == "all" and self.watch.seen.get("autocast") and bfloat_for_half(self.torch):
            self.tell.precision(self.beat.steps + 1, what)
        else:
            self.let_go("%s; %s" % (what, self._cure(None)))

    def too_late(self):
        """The script has looked at its loss itself, and gave up before there was an update to hold back."""
        if not self.off:
            what = "the script stopped at its loss before an update could be held back"
            self.let_go("%s; %s" % (what, self._cure(self.grown())))

    def _hide(self, params):
        self.hidden = [(p, p.grad) for p in params if p.grad is not None]
        for p, _gradient in self.hidden:
            p.grad = None

    def show(self, as_they_were=False):
        """Give the gradients back: as zeros after a step that did not see them."""
        hidden, self.hidden = self.hidden, []
        for p, gradient in hidden:
            if p.grad is None:
                p.grad = gradient if as_they_were else gradient.zero_()

    # --- what is known of it ------------------------------------------------------------------------------

    def _seen(self):
        """What the look at this very step has found."""
        seen = self.watch.seen
        return seen if seen.get("step") == self.beat.steps + 1 else {}

    def _cure(self, grown):
        optimizers = [optimizer for ref in self.watch.optimizers if (optimizer := ref()) is not None]
        rate = next(iter(self.watch.look.rate(optimizers).values()), None)
        return cure(self.watch.seen, grown, rate, self.heal != "all")

    def _name(self, parameter):
        for model in self.adapter.births.models_with({id(parameter)}):
            for name, p in model.named_parameters():
                if p is parameter:
                    return name
        return "a weight"
