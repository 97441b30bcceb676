"""Hold back an update that is no number (Keras on TensorFlow), and go back to a good state where that is not enough.

The step itself decides, in its own graph (`_step_keras`): where the loss or a gradient is no number, nothing of the
step is written, neither weights nor moments nor metrics nor moving statistics, as if the batch had not been there.
Here, outside, it is told, and seen whether it goes on. The third in a row without a batch to blame takes the training
back to the last good state. What comes again after that is no matter of a batch: `--heal` lets go and says why,
`--heal=all` lowers the learning rate. It acts a bounded number of times and then lets go: the run ends with its cause.
"""

from time import monotonic

from ._good_keras import GoodStates
from ._patience import Patience
from ._step_keras import FACTOR, HELD, IN_A_ROW

_ROW = 3
_BACKS, _BACKS_ALL = 2, 6
_AGAIN = 200  # steps within which the same has happened again
_TOLD = 5
_LAST, _FAR = 9, 30  # a loss has run away when one of the last is so many times the usual
_READ_EVERY = 1.0  # seconds, where reading makes a device wait


class Hold:
    """Sees the state of the guard after each step of one model."""

    def __init__(self, care):
        self.care, self.guest, self.loop = care, care.split.guest, care.split.loop
        self.states = GoodStates(care.model)
        self.held = 0
        self.patience = Patience()
        self.backs, self.back_step, self.undone = 0, 0, 0
        self.losses_from = 0
        self.off = self.begun = False
        self.logs = None
        self.next_read = 0.0

    def begin(self):
        """Before the first step: that one may be the mistake already, and there must be a way back behind it."""
        model, self.begun = self.care.model, True
        optimizer = model.optimizer
        if self.guest.heal != "all" or optimizer is None or not model.trainable_variables:
            return
        try:
            if not optimizer.built:
                optimizer.build(model.trainable_variables)
            self.states.keep(0, [])
        except Exception as error:
            self.guest.guard.caught("begin", error)

    def saw(self, logs, data):
        """After a step; gives the logs that Keras is to see."""
        if self.off:
            return logs
        try:
            return self._saw(logs, data)
        except Exception as error:
            self.guest.guard.caught("hold", error)
            self._let_go("an error of ours")  # nothing is held back that nobody looks at
            return logs

    def _saw(self, logs, data):
        loop = self.loop
        if not loop.cpu_only:
            now = monotonic()
            if now < self.next_read:
                return logs
            self.next_read = now + _READ_EVERY
        state = self.care.state.numpy()
        if state[HELD] == self.held:
            self.logs = logs
            if loop.beat.since >= self.states.next_at:
                losses = self._losses()
                may = self.guest.heal == "all" and self.states.step is not None
                if may and self.states.level.ran_off(losses, bool(self.backs)):
                    self._go_back("the loss ran away")
                else:
                    self.states.keep(loop.beat.steps + 1, losses)
            return logs
        new, self.held = int(state[HELD]) - self.held, int(state[HELD])
        self._held(new, int(state[IN_A_ROW]), data if state[IN_A_ROW] and loop.cpu_only else None)
        # Where only left out batches have been counted there is no mean: the one before is still true.
        return self.logs if self.logs is not None and state[IN_A_ROW] and _no_loss(logs) else logs

    def _held(self, new, row, data):
        step = self.guest.beat.steps + 1
        goes_on = self.patience.spend(step, new)
        bad = _bad(self.care.tf, data)
        if not goes_on:
            why = bad or self._cure(self._grown())
            self._let_go("%d of %d updates were no numbers: %s" % (self.held, max(1, step), why))
        elif row >= _ROW and not bad:
            self._go_back("the last %d updates were no numbers" % row)
        else:
            self._tell_held(step, bad or "its loss or a gradient is not finite")

    def _go_back(self, what):
        step, grown = self.guest.beat.steps + 1, self._grown()
        window = max(_AGAIN, self.undone)
        again = bool(self.backs) and step - self.back_step <= window
        if self.backs and step - self.back_step > 10 * window:
            self.backs = 0
        if self.states.step is None:
            self._let_go("%s, and there is no good state to go back to: %s" % (what, self.states.declined))
            return
        undone = step - self.states.step
        change, far = grown is not None or again, undone > max(100, step // 20)
        most = _BACKS_ALL if self.guest.heal == "all" else _BACKS
        if (self.guest.heal != "all" and (change or far)) or self.backs >= most:
            self._let_go("%s%s; %s" % (what, " again" if again else "", self._cure(grown)))
            return
        self.states.put_back()
        self.backs, self.back_step, self.undone = self.backs + 1, step, undone
        self.losses_from = self.loop.nan.history.count
        factor = float(self.care.state.numpy()[FACTOR])
        text = "%s at step %d: back to the state of step %d" % (what, step, self.states.step)
        because = "the batches of %d steps are not learnt from" % undone
        act, keeps = "go-back", "changed" if far else "equivalent"
        if change:
            factor *= 0.5**self.backs
            text += ", and on with %.4g times the learning rate" % factor
            act, keeps = "lower-rate", "changed"
        self.care.set_state(self.held, 1, factor)
        self.guest.say("intervention", act=act, keeps=keeps, step=step, text=text, because=because)

    def _tell_held(self, step, why):
        said = "the update of step %d was left out: %s" % (step, why)
        if self.held > _TOLD:
            if self.held & (self.held - 1):
                return  # from here on at every doubling
            said = "%d updates have been left out so far; the last, of step %d: %s" % (self.held, step, why)
        self.guest.say(
            "intervention", act="hold-update", keeps="equivalent", step=step, text=said,
            because="that batch is not learnt from",
        )  # fmt: skip

    def _let_go(self, because):
        """Act no more: what would have happened happens."""
        self.off = True
        self.states.forget()
        self.care.set_state(self.held, 0, float(self.care.state.numpy()[FACTOR]))
        self.guest.say("declined", act="hold-update", step=self.guest.beat.steps + 1, because=because)

    def _losses(self):
        history = self.loop.nan.history
        since = history.count - self.losses_from
        return list(history.losses)[-since:] if since > 0 else []

    def _grown(self):
        """The usual loss and the highest of the last ones, where it ran away."""
        sizes = [abs(loss) for loss in self._losses()]
        if not sizes:
            return None
        usual = min(sizes if self.states.level.lowest is None else [abs(self.states.level.lowest), *sizes])
        highest = max(sizes[-_LAST:])
        return (usual, highest) if highest > _FAR * max(usual, 1e-12) else None

    def _cure(self, grown):
        rate = self.loop.lr
        of = " of %.3g" % rate if rate - rate == 0.0 else ""
        policy = getattr(self.care.model, "dtype_policy", None)
        if grown is None and getattr(policy, "name", "") == "float16":
            return "numbers go beyond float16, whose largest is 65,504: train in mixed_float16 or mixed_bfloat16"
        if grown is None:
            return "no batch is to blame: lower the learning rate%s or clip the gradients" % of
        text = "the loss ran away from %.3g to %.3g: lower the learning rate%s"
        return text % (*grown, of) + ("" if self.guest.heal == "all" else ", or let --heal=all halve it")


def _no_loss(logs):
    value = logs.get("loss") if isinstance(logs, dict) else None
    return value is not None and float(value) - float(value) != 0.0


def _bad(tf, data):
    """What of a batch is no number, in words; empty where all of it is."""
    for number, part in enumerate(data if isinstance(data, (tuple, list)) else (data,)):
        for leaf in tf.nest.flatten(part):
            dtype = getattr(leaf, "dtype", None)
            if dtype is None or not tf.as_dtype(dtype).is_floating:
                continue
            good = tf.math.is_finite(tf.convert_to_tensor(leaf))
            if not bool(tf.reduce_all(good)):
                first = int(tf.where(tf.logical_not(good))[0][0]) if good.shape.rank else 0
                name = ("x", "y", "sample_weight")[number] if number < 3 else "the batch"
                return "`%s` holds NaN or an infinity in sample %d of the batch" % (name, first)
    return ""
