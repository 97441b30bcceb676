"""What is done about an update that is non-finite (PyTorch), and where the doing ends.

One whose batch is bad is held back. Where the weights are non-finite already, where the loss ran away, or where the
third update in a row is none without a batch to blame, the training goes back to the last good state (`good_states`)
and on with the next batch. What comes again after that is no matter of a batch: `--heal` lets go then and says why,
`--heal=all` lowers the learning rate, or puts bfloat16 in the place of float16; it does so, too, where the loss ran
away and stays a number. It acts a bounded number of times and lets go for good after them: the run ends with its true
cause. Several ranks would have to act alike: they are left alone.
"""

import functools
import sys
from math import inf

from ...heal.nonfinite_reason import Patience, cure, is_half, of_batch, of_operation, ran_away
from .finite import first_bad
from .good_states import GoodStates

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


# --- The words for what was done about an update that is non-finite; what happens often is told ever more seldom

_TOLD = 5


class Tell:
    """Says what was done, at which step, and what it keeps."""

    def __init__(self, agent):
        self.agent = agent
        self.masks = 0
        self.known = set()

    def held(self, step, held, why, mended, mended_from):
        """An update was left out, and running statistics that its batch had spoilt were put back."""
        said = "the update of step %d was left out: %s" % (step, why)
        if mended:
            said += "; %d running statistics are those of step %d again" % (mended, mended_from)
        if held > _TOLD or why in self.known:
            if held & (held - 1):
                return  # from here on, and for the same sample again, at every doubling
            said = "%d updates have been left out so far; the last, of step %d: %s" % (held, step, why)
        self.known.add(why)
        self._say("hold-update", "equivalent", step, said, "batch skipped")

    def masked(self, step, mask, seen):
        """Single elements were left out of an update."""
        self.masks += 1
        at = " at line %d" % seen["line"] if seen.get("line") else ""
        what = "%d of %d elements, whose gradient `%s`%s makes non-finite" % (mask.count, mask.of, mask.operation, at)
        said = "step %d was learnt without %s" % (step, what)
        if self.masks > _TOLD:
            if self.masks & (self.masks - 1):
                return
            said = "%d steps were learnt without single elements so far; step %d without %s" % (self.masks, step, what)
        self._say("mask-gradient", "equivalent", step, said, "these elements are skipped")

    def back(self, step, undone, what, act, rest, keeps="changed"):
        """The training went back, and on with or without a change."""
        text = "%s at step %d: back to the state of step %d%s" % (what, step, step - undone, rest)
        self._say(act, keeps, step, text, "the batches of %d steps are skipped" % undone)

    def precision(self, step, what):
        text = what + "; on in bfloat16 in place of float16"
        self._say("bfloat16", "changed", step, text, "it has fewer digits")

    def declined(self, step, because):
        self.agent.say("declined", act="hold-update", step=step, because=because)

    def _say(self, act, keeps, step, text, because):
        self.agent.say("intervention", act=act, keeps=keeps, step=step, text=text, because=because)


# --- What `--heal=all` may change to keep numbers finite (PyTorch): a lower learning rate, bfloat16 for float16
# And whether an optimizer can be made to pass over a step at all.


class Rate:
    """Lowers the rate for the length of each step only: a schedule that sets it anew has no hold on that."""

    def __init__(self):
        self.factor = 1.0
        self.lowered = []

    def halve(self, times):
        """Half the rate the first time, and twice as boldly each time that it was not enough."""
        self.factor *= 0.5**times

    def lower(self, optimizer):
        if self.lowered:
            self.give_back()  # a step that failed
        for group in optimizer.param_groups:
            rate = group.get("lr")
            if rate is not None:
                self.lowered.append((group, rate))
                group["lr"] = rate * self.factor

    def give_back(self):
        lowered, self.lowered = self.lowered, []
        for group, rate in lowered:
            group["lr"] = rate


_done = []


def bfloat_for_half(torch):
    """From here on, autocast computes in bfloat16 where it was asked for float16; False when that was done before."""
    if _done:
        return False
    cls = torch.autocast
    inner = cls.__enter__

    @functools.wraps(inner)
    def __enter__(context):  # noqa: N807
        if getattr(context, "fast_dtype", None) is torch.float16:
            context.fast_dtype = torch.bfloat16
        return inner(context)

    cls.__enter__ = __enter__
    _done.append(inner)
    return True


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
