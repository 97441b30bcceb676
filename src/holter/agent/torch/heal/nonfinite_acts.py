"""What is done about an update that is non-finite (PyTorch), and where the doing ends.

One whose batch is bad is skipped. Where the weights are non-finite already, or where the third update in a row is none
without a batch to blame, the training goes back to the last good state (`good_states`) and on with the next batch. A
loss that ran away, and what comes again after going back, is no matter of a batch: a lower rate or another precision
is the user's to choose. It lets go then, for good, and says what would help; so it does after a bounded number of acts.
The run ends with its true cause. Several ranks would have to act alike: they are left alone.
"""

import sys
from math import inf

from ...heal.nonfinite_reason import Patience, cure, of_batch, of_operation, ran_away
from ..observe.visibility import named_weights_of
from .good_states import GoodStates
from .snapshot import first_bad

_MAX_IN_A_ROW = 3  # updates that are non-finite, before it goes back
_MAX_BACKS = 2  # times that it goes back before many good steps
_AGAIN_STEPS = 200  # within which the same has happened again
_FAR_STEPS, _FAR_SHARE = 100, 20  # that may be undone and still be called equivalent, or one part in so many of all
_FAR_SECONDS = 3.0  # of training that may be, however many steps they are
_MAX_REPORTS = 5  # of the same act; from then on at every doubling


class Acts:
    """Decides, acts, and reports it."""

    def __init__(self, agent, torch, adapter):
        self.agent, self.torch, self.adapter = agent, torch, adapter
        self.watch, self.beat = adapter.nan, adapter.beat
        self.states = GoodStates(torch, self.watch, adapter.births)
        self.off, self.why_off = False, ""
        self.hidden = []  # gradients that this step is not shown
        self.row = self.held = 0
        self.reasons = set()  # that were reported
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
        elif not inputs and (self.row >= _MAX_IN_A_ROW or self.grown() is not None):
            several = "the last %d updates were non-finite" % self.row
            self._go_back(several if self.row > 1 else "the update is non-finite")
        else:
            why = of_batch(inputs) if inputs else of_operation(self._seen())
            self._report_held(step, why or "the gradient of %s is not finite" % self._name(bad))

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
        """True, and the end of acting, where other ranks would have to skip the same update; it is reported later.

        Asked before a gradient is read: one that lies on several ranks is read by all of them together or hangs.
        """
        distributed = sys.modules.get("torch.distributed")
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            ranks = distributed.get_world_size()
            if ranks > 1:
                self.off = True
                self.states.forget()
                self.why_off = "%d ranks train together, and each would have to skip the same update" % ranks
        return self.off

    def report_why_off(self):
        """A run of several ranks has met with what is non-finite."""
        because, self.why_off = self.why_off, ""
        if because:
            self._declined(because)

    # --- going back ---------------------------------------------------------------------------------------

    def _go_back(self, what):
        """Back to the last good state, once; where the loss ran away or it comes again, that would not help."""
        step, grown = self.beat.steps + 1, self.grown()
        near = max(_AGAIN_STEPS, self.states.undone)
        if self.backs and step - self.back_step > 10 * near:
            self.backs = 0
        again = bool(self.backs) and step - self.back_step <= near
        why_not = self.states.why_not()
        if why_not:
            self.let_go("%s, and there is no good state to go back to: %s" % (what, why_not))
            return
        undone = step - self.states.step
        far = undone > max(_FAR_STEPS, step // _FAR_SHARE) and self.states.age() > _FAR_SECONDS
        if grown is not None or again or far or self.backs >= _MAX_BACKS:
            self.let_go("%s%s; %s" % (what, " again" if again else "", self._cure(grown)))
            return
        self.states.go_back(undone)
        self.backs, self.back_step, self.row = self.backs + 1, step, 0
        self.losses_from = self.watch.history.count
        text = "%s at step %d: back to the state of step %d" % (what, step, step - undone)
        self._acted("go-back", step, text, "the batches of %d steps are skipped" % undone)

    # --- letting go ---------------------------------------------------------------------------------------

    def let_go(self, because):
        """Act no more: what would have happened happens, and the run ends with its true cause."""
        self.off = True
        self.show(as_they_were=True)
        self.states.forget()
        self._declined(because)

    def collapsed(self, scale):
        """A loss scaler has skipped so many updates that its scale is almost nothing."""
        if not self.off and scale <= self.scale / 16:
            self.scale = scale
            what = "the GradScaler skips every update: its scale has fallen to %.3g" % scale
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
        return cure(self.watch.seen, grown, rate)

    def _name(self, parameter):
        for model in self.adapter.births.models_with({id(parameter)}):
            for name, p in named_weights_of(model):
                if p is parameter:
                    return name
        return "a weight"

    # --- reports ------------------------------------------------------------------------------------------

    def _report_held(self, step, why):
        """An update was skipped, and running statistics that its batch had spoilt are put back."""
        said, mended = "the update of step %d was skipped: %s" % (step, why), self.states.mend()
        if mended:
            said += "; %d running statistics are those of step %d again" % (mended, self.states.step)
        if self.held > _MAX_REPORTS or why in self.reasons:
            if self.held & (self.held - 1):
                return
            said = "%d updates have been skipped so far; the last, of step %d: %s" % (self.held, step, why)
        self.reasons.add(why)
        self._acted("hold-update", step, said, "batch skipped")

    def _acted(self, act, step, text, because):
        self.agent.say("intervention", act=act, keeps="equivalent", step=step, text=text, because=because)

    def _declined(self, because):
        self.agent.say("declined", act="hold-update", step=self.beat.steps + 1, because=because)


def passes_over_none(cls):
    """Tell whether the steps of this optimizer leave weights alone that have no gradient: PyTorch's own all do."""
    if cls.__module__.startswith("torch.optim"):
        return True
    import inspect

    try:
        source = inspect.getsource(inspect.unwrap(cls.step))
    except (OSError, TypeError):
        return False
    return any(words in source for words in ("is None", "is not None", "super().step"))
