"""An update that is not finite (Keras on TensorFlow): back to the last good state, and from then on held back.

In calm the plain step runs, and the loss that Keras tells anyway is read. When one is not finite, its update has been
made: what the step has written is put back from the last good copy, and a guard (`micro_batch` with the batch in
one) takes the place of the plain step, which leaves out all that a bad batch would write. The third in a row without a
batch to blame goes back once more. What comes again after that is no matter of a batch: `--heal` lets go and says why,
`--heal=all` lowers the learning rate. It acts a bounded number of times: then the run ends with its cause.
"""

import weakref
from time import monotonic_ns

from ...heal.copy_budget import allowance, copies
from ...heal.nonfinite_reason import Level, Patience
from .micro_batch import MicroBatches, scales_loss

_ROW = 3
_BACKS, _BACKS_ALL = 2, 6
_AGAIN = 200  # steps within which the same has happened again
_TOLD = 5
# Its step begins without a batch, and the count is what is written before that is noticed.
_UNCOUNTED = "Keras counts one update more at each end of data of unknown length, and parts do not"
_LAST, _FAR = 9, 30  # a loss has run away when one of the last is so many times the usual


class Hold:
    """What is known of one model, and done about it; it is asked after each step."""

    def __init__(self, healer, model):
        self.healer, self.agent, self.loop = healer, healer.agent, healer.loop
        self.model = weakref.ref(model)
        self.name = type(model).__name__
        self.states = GoodStates(model)
        self.held = self.row = 0
        self.patience = Patience()
        self.backs, self.back_step, self.undone = 0, 0, 0
        self.losses_from = 0
        self.why_no_guard = ""
        self.told = None
        self.off = scales_loss(model.optimizer)
        self.is_counted = True  # the length of an epoch is known
        self.is_theirs = False  # the script looks at its losses itself

    # --- as it is asked -----------------------------------------------------------------------------------

    def fit_begins(self):
        """Before the first step: that one may be the mistake already."""
        if not self.off and self.loop.cpu_only and self.loop.beat.since >= self.states.next_at and self.model().built:
            self.states.keep(self.loop.beat.steps, None, self._losses())

    def step_ended(self, logs, epoch):
        """After a step whose loss is known; gives the logs that Keras is to see."""
        loss = self.loop.loss
        if self._is_guarded():
            if not self.row and self.loop.beat.since >= self.states.next_at:
                self._keep(epoch)
            return logs
        if loss - loss == 0.0:
            if self.loop.beat.since >= self.states.next_at:
                self._keep(epoch)
            return logs
        if not self._go_back("the loss is not finite", epoch):
            return logs
        return self.model().get_metrics_result()

    def _keep(self, epoch):
        losses = self._losses()
        may = self.agent.heal == "all" and self.states.step is not None
        if may and self.states.level.ran_off(losses, bool(self.backs)):
            self._go_back("the loss ran away", epoch)
        else:
            self.states.keep(self.loop.beat.steps + 1, epoch, losses)

    def _is_guarded(self):
        return isinstance(self.model().train_function, MicroBatches)

    # --- for the guard ------------------------------------------------------------------------------------

    def held_back(self, data):
        """An update was left out, and all that its step wrote; whether it is to be so further on."""
        step, bad = self.agent.beat.steps + 1, _bad(self.healer.tf, data)
        self.held, self.row = self.held + 1, self.row + 1
        if not self.patience.spend(step):
            why = bad or self._cure(self._grown())
            self._let_go("%d of %d updates were not finite: %s" % (self.held, max(1, step), why))
            return False
        if self.row >= _ROW and not bad:
            return self._go_back("the last %d updates were not finite" % self.row, self.healer.epoch)
        self._tell_held(step, bad or "a gradient is not finite")
        return True

    def ran(self, micro, size):
        """A batch was run, in how many micro-batches is told, with one update."""
        self.row, parts = 0, -(-size // micro.rows) if micro.rows else 1
        if parts > 1 and self.told != micro.rows:
            self.told = micro.rows
            text = "the batch of %d %s: it is run in %d parts of up to %d"
            keeps, because = micro.proof.keeps, micro.proof.because
            if keeps == "exact" and not self.is_counted:
                keeps, because = "equivalent", _UNCOUNTED
            self.agent.say(
                "intervention", act="split-batch", keeps=keeps, step=self.agent.beat.steps + 1,
                model=self.name, batch=size, rows=micro.rows, because=because,
                text=text % (size, self.healer.words, parts, micro.rows),
            )  # fmt: skip

    def left(self, micro, why):
        """The guard could not be kept, or the batch not be cut: the plain step goes on."""
        self.why_no_guard = why
        act = "split-batch" if micro.parts > 1 else "hold-update"
        self.agent.say("declined", act=act, step=self.agent.beat.steps + 1, model=self.name, because=why)

    # --- acts ---------------------------------------------------------------------------------------------

    def _go_back(self, what, epoch):
        step, grown = self.agent.beat.steps + 1, self._grown()
        window = max(_AGAIN, self.undone)
        again = bool(self.backs) and step - self.back_step <= window
        if self.backs and step - self.back_step > 10 * window:
            self.backs = 0
        if self.states.step is None:
            self._let_go("%s, and there is no good state to go back to: %s" % (what, self.states.declined))
            return False
        undone = step - self.states.step
        guarded = self._is_guarded()
        # A bad batch that the plain step has learnt from may come again in each epoch, while there is no guard.
        change, far = grown is not None or (again and guarded), undone > max(100, step // 20)
        most = _BACKS_ALL if self.agent.heal == "all" else _BACKS
        if (self.agent.heal != "all" and (change or (far and guarded))) or self.backs >= most:
            self._let_go("%s%s; %s" % (what, " again" if again else "", self._cure(grown)))
            return False
        act, keeps = "go-back", "changed" if far and guarded else "equivalent"
        text = "%s at step %d: back to the state of step %d" % (what, step, self.states.step)
        model, lowered = self.model(), None
        if change:
            lowered = self._lower(model.optimizer, 0.5 ** (self.backs + 1))
            if lowered is None:
                self._let_go("%s; %s" % (what, self._cure(grown)))
                return False
            text += ", and on with a learning rate of %.4g" % lowered
            act, keeps = "lower-rate", "changed"
        begins_anew = self.states.put_back(epoch)
        if lowered is not None:
            model.optimizer._learning_rate.assign(lowered)
        self.backs, self.back_step, self.undone, self.row = self.backs + 1, step, undone, 0
        self.losses_from = self.loop.nan.history.count
        self.why_no_guard = self.why_no_guard or self.healer.why_not(model)
        if not guarded and not self.why_no_guard:
            model.train_function = MicroBatches(self.healer, self, model, 1)
        if begins_anew and epoch is not None and self._is_guarded():
            model.train_function._mark()
        because = "the batches of %d steps are skipped" % undone
        self.agent.say("intervention", act=act, keeps=keeps, step=step, text=text, because=because)
        return True

    def _lower(self, optimizer, by):
        """The learning rate to go on with; None where it is a schedule's."""
        rate = getattr(optimizer, "_learning_rate", None)
        return float(rate.value.numpy()) * by if hasattr(rate, "assign") else None

    def _tell_held(self, step, why):
        said = "the update of step %d was left out: %s" % (step, why)
        if self.held > _TOLD:
            if self.held & (self.held - 1):
                return  # from here on at every doubling
            said = "%d updates have been left out so far; the last, of step %d: %s" % (self.held, step, why)
        self.agent.say(
            "intervention", act="hold-update", keeps="equivalent", step=step, text=said,
            because="batch skipped",
        )  # fmt: skip

    def _let_go(self, because):
        """Act no more: what would have happened happens."""
        self.off, model = True, self.model()
        self.states.forget()
        if self._is_guarded():
            model.train_function.guards = False
            if model.train_function.parts == 1:
                model.train_function = model.train_function.inner
        self.agent.say("declined", act="hold-update", step=self.agent.beat.steps + 1, because=because)

    # --- what is known ------------------------------------------------------------------------------------

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
        policy = getattr(self.model(), "dtype_policy", None)
        if grown is None and getattr(policy, "name", "") == "float16":
            return "numbers go beyond float16, whose largest is 65,504: train in mixed_float16 or mixed_bfloat16"
        if grown is None:
            return "no batch is to blame: lower the learning rate%s or clip the gradients" % of
        text = "the loss ran away from %.3g to %.3g: lower the learning rate%s"
        return text % (*grown, of) + ("" if self.agent.heal == "all" else ", or let --heal=all halve it")


def _bad(tf, data):
    """What of a batch is not finite, in words; empty where all of it is."""
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


# --- The last good state of a Keras model on TensorFlow: all that a step writes, copied now and then
# A copy may cost 0.4 % of the time and a tenth of the free memory, and is only taken while the loss is about as low
# as it has been: one that runs away would otherwise be copied on its way up. Reading changes nothing.

_SHARE = 250
_NEVER = 1 << 62


class GoodStates:
    """Holds at most one copy."""

    def __init__(self, model):
        self.model = weakref.ref(model)
        self.step = self.epoch = None
        self.kept, self.metrics = [], []
        self.optimizer_is_new = False  # it had no variables yet
        self.next_at = 0  # on the heartbeat's clock
        self.declined = "none has been kept yet"
        self.level = Level()
        copies.add(self)

    def keep(self, step, epoch, losses):
        """Copy the present state, where it is good and there is room."""
        begun, model = monotonic_ns(), self.model()
        variables = self._variables(model)
        size = sum(_bytes(variable) for variable in variables)
        if not variables:
            return
        if not self.kept and size > allowance():
            self.next_at = _NEVER
            self.declined = "its copy of %d MB is more than memory has room for" % (size >> 20)
            return
        # Weights may be non-finite already: then what was kept before is still the last good state.
        if self.level.holds(losses) and all(_finite(variable.value.numpy()) for variable in variables):
            self.kept = []
            self.kept = [(variable, variable.value.numpy()) for variable in variables]
            self.metrics = [(variable, variable.value.numpy()) for variable in model.metrics_variables]
            self.step, self.epoch, self.optimizer_is_new = step, epoch, not model.optimizer.built
        now = monotonic_ns()
        self.next_at = now + (now - begun) * _SHARE

    def _variables(self, model):
        metrics = {id(variable) for variable in model.metrics_variables}
        found = [*model.variables, *model.optimizer.variables]
        return list({id(one): one for one in found if id(one) not in metrics}.values())

    def put_back(self, epoch):
        """Make it the present state. Metrics begin anew where they are of another epoch: whether that is so."""
        model = self.model()
        if self.optimizer_is_new:
            optimizer = model.optimizer
            fresh = type(optimizer).from_config(optimizer.get_config())
            fresh.build(model.trainable_variables)
            for variable, new in zip(optimizer.variables, fresh.variables):  # noqa: B905
                if variable is not getattr(optimizer, "_learning_rate", None):
                    variable.assign(new.value)
        for variable, value in self.kept:
            variable.assign(value)
        if epoch is None or epoch != self.epoch:
            model.reset_metrics()
            return True
        for variable, value in self.metrics:
            variable.assign(value)
        return False

    def release(self):
        """Memory is running out: the copy is let go."""
        if self.kept:
            self.kept, self.metrics, self.step, self.next_at = [], [], None, 0
            self.declined = "its copy was let go near the limit of memory"

    def forget(self):
        self.kept, self.metrics, self.step, self.next_at = [], [], None, _NEVER
        self.declined = "acting on it has ended"


def _finite(values):
    total = values.sum() if values.dtype.kind == "f" else 0.0
    return bool(total - total == 0.0) or bool((values - values == 0.0).all())


def _bytes(variable):
    count = 1
    for n in variable.shape:
        count *= n
    return count * getattr(variable.value.dtype, "size", 4)
