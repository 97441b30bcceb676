"""What --heal may do to a Keras program on TensorFlow, and where it is asked.

In calm the plain train function runs, and nothing of a model, an optimizer or a graph is replaced: the adapter asks
here before the first step and after each one. A train function of ours (`micro_batch`) takes the place of the plain
one only after an act: when a loss was non-finite (`nonfinite`), or in an attempt that was started again since memory
ran out (`HOLTER_SPLIT=2`). A step that runs out of memory has lost its batch, which Keras draws within it, and may
have written half of its update: it fails as it would alone, and the run is started again. A loop with a GradientTape
makes its updates itself: it is never altered, and that is reported once with the cure.
"""

import os
import weakref
from time import monotonic_ns

from ....record import environment
from ...heal.copy_budget import allowance, copies
from ...heal.leaves import Unsplittable
from ...heal.nonfinite_reason import Level, Patience, cure, ran_away
from ...heal.out_of_memory import is_oom
from .micro_batch import MicroBatches, scales_loss

# In errors that hold another, of a compiled step or of a call into Python.
_OOM_WORDS = ("RESOURCE_EXHAUSTED", "ResourceExhaustedError", "CUDA_ERROR_OUT_OF_MEMORY", "failed to allocate memory")
_TAPE = {
    "split-batch": "a loop with a GradientTape makes its updates itself: give it smaller batches and add up their "
    "gradients",
    "hold-update": "a loop with a GradientTape makes its updates itself: skip one there where the loss is not finite",
}


class Healer:
    """One for the process."""

    def __init__(self, agent, loop, keras, tensorflow):
        self.agent, self.loop, self.keras, self.tf = agent, loop, keras, tensorflow
        self.chunks = int(os.environ.get(environment.SPLIT) or 0)
        self.updates = weakref.WeakKeyDictionary()  # by model
        self.epoch = None
        self.declined_for_tapes = set()

    # --- asked by the adapter -----------------------------------------------------------------------------

    def fit_begins(self, model, callbacks, is_counted):
        """Before the first step of a `fit` of Keras' own; `is_counted` where the length of its epochs is known."""
        updates = self._updates_of(model)
        updates.is_counted = is_counted or bool(model.jit_compile)
        updates.is_theirs = any("TerminateOnNaN" in [cls.__name__ for cls in type(one).__mro__] for one in callbacks)
        self._split(updates, model)
        updates.fit_begins()

    def batch_begins(self, model):
        """Before the first `train_on_batch` of a model that was compiled."""
        updates = self._updates_of(model)
        if self.chunks > 1:
            model.make_train_function()
            self._split(updates, model)

    def step_ended(self, model, logs, epoch):
        """After a step whose loss is known; gives the logs that Keras is to see."""
        updates, self.epoch = self.updates.get(model), epoch
        if updates is None or updates.off or updates.is_theirs:
            return logs
        return updates.step_ended(logs, epoch)

    def tape_applies(self):
        """An optimizer was called outside of `fit`: that is a loop with a tape."""
        if self.chunks > 1:
            self._decline_tape("split-batch")

    def tape_is_nonfinite(self):
        """A loop with a tape has a loss that is non-finite."""
        self._decline_tape("hold-update")

    def _decline_tape(self, act):
        if act not in self.declined_for_tapes:
            self.declined_for_tapes.add(act)
            self.agent.say("declined", act=act, step=self.agent.beat.steps + 1, because=_TAPE[act])

    # --- acts ---------------------------------------------------------------------------------------------

    def _updates_of(self, model):
        updates = self.updates.get(model)
        if updates is None:
            updates = self.updates[model] = NonfiniteUpdates(self, model)
        return updates

    def _split(self, updates, model):
        """Have batches run in micro-batches, where an attempt before has died of them."""
        if self.chunks < 2 or isinstance(model.train_function, MicroBatches) or updates.why_not_replaced:
            return
        why = self.why_not(model)
        if why:
            updates.why_not_replaced = why
            name = type(model).__name__
            self.agent.say("declined", act="split-batch", step=self.agent.beat.steps + 1, model=name, because=why)
        else:
            model.train_function = MicroBatches(self, updates, model, self.chunks)

    def why_not(self, model):
        """Why a train function of ours can't take the place of this model's own; empty where it can."""
        if "train_step" in vars(model):
            return "%s was given a train_step of its own" % type(model).__name__
        if type(model).make_train_function.__module__.partition(".")[0] != "keras":
            return "%s makes its train function itself" % type(model).__name__
        if model._distribute_strategy is not None or self.tf.distribute.has_strategy():
            return "it is trained under a distribution strategy"
        if model.run_eagerly:
            return "the model is run eagerly"
        return ""

    def is_oom(self, error):
        """Tell whether an error of TensorFlow's says that memory ran out."""
        if isinstance(error, self.tf.errors.ResourceExhaustedError):
            return True
        if not isinstance(error, self.tf.errors.OpError):
            return is_oom(error)
        text = str(error)
        return any(word in text for word in _OOM_WORDS)

    def reason_of(self, error):
        """Why something was not done, in words."""
        if isinstance(error, Unsplittable):
            return str(error)
        if self.is_oom(error):
            return "not even one chunk of the batch fits"
        self.agent.guard.caught("micro-batches", error)
        return "its step can't be run in chunks (%s)" % type(error).__name__


# --- A non-finite update (Keras on TensorFlow): back to the last good state, and from then on skipped before it is made
# In calm the plain step runs, and the loss that Keras reports anyway is read. When one is non-finite, its update has
# been made: what the step has written is put back from the last good copy, and a train function of ours (`micro_batch`
# with the batch in one) takes the place of the plain step, which skips all that a bad batch would write. The third in a
# row without a batch to blame goes back once more. A loss that ran away, and what comes again after going back, is no
# matter of a batch: a lower rate is the user's to choose. It lets go then, for good, and says what would help; so it
# does after a bounded number of acts. The run ends with its true cause. The policy is that of
# `agent/torch/heal/nonfinite_acts.py`, as far as a step that is seen afterwards allows.

_MAX_IN_A_ROW = 3
_MAX_BACKS = 2  # times that it goes back before many good steps
_AGAIN_STEPS = 200  # within which the same has happened again
_FAR_STEPS, _FAR_SECONDS = 100, 3.0  # that may be undone and still be called equivalent; or a twentieth of all steps
_REPORTS = 5  # of skipped updates; from there on at every doubling


class NonfiniteUpdates:
    """What is known of one model's updates, and done about those that are non-finite; asked after each step."""

    def __init__(self, healer, model):
        self.healer, self.agent, self.loop = healer, healer.agent, healer.loop
        self.model = weakref.ref(model)
        self.states = GoodStates(model)
        self.count = self.in_a_row = 0  # of skipped updates
        self.patience = Patience()
        self.backs, self.back_step, self.undone = 0, 0, 0
        self.losses_from = 0
        self.reported_reasons = set()
        self.why_not_replaced = ""  # the plain train function
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
        is_good = not self.in_a_row if self._is_replaced() else loss - loss == 0.0
        if is_good and self.loop.beat.since >= self.states.next_at:
            self._keep(epoch)
        if is_good or self._is_replaced() or not self._go_back("the loss is non-finite", epoch):
            return logs
        return self.model().get_metrics_result()

    def _keep(self, epoch):
        self.states.keep(self.loop.beat.steps + 1, epoch, self._losses())

    def _is_replaced(self):
        return isinstance(self.model().train_function, MicroBatches)

    def skipped(self, data):
        """An update was skipped, with all that its step wrote; False where that is the last time."""
        step, bad_input = self.agent.beat.steps + 1, _bad_input(self.healer.tf, data)
        self.count, self.in_a_row = self.count + 1, self.in_a_row + 1
        if not self.patience.spend(step):
            why = bad_input or self._cure(self._ran_away())
            self._stop("%d of %d updates were non-finite: %s" % (self.count, max(1, step), why))
            return False
        if not bad_input and (self.in_a_row >= _MAX_IN_A_ROW or self._ran_away() is not None):
            several = "the last %d updates were non-finite" % self.in_a_row
            return self._go_back(several if self.in_a_row > 1 else "the update is non-finite", self.healer.epoch)
        self._report_skipped(step, bad_input or "a gradient is non-finite")
        return True

    # --- acts ---------------------------------------------------------------------------------------------

    def _go_back(self, what, epoch):
        """Back to the last good state; False where the loss ran away or it comes again: that would not help."""
        step, grown = self.agent.beat.steps + 1, self._ran_away()
        window = max(_AGAIN_STEPS, self.undone)
        if self.backs and step - self.back_step > 10 * window:
            self.backs = 0
        again = bool(self.backs) and step - self.back_step <= window
        if self.states.step is None:
            self._stop("%s, and there is no good state to go back to: %s" % (what, self.states.declined))
            return False
        undone = step - self.states.step
        # A bad batch that the plain step has learnt from may come again in each epoch, until updates are skipped.
        skips = self._is_replaced()
        far = skips and undone > max(_FAR_STEPS, step // 20) and self.states.age() > _FAR_SECONDS
        if grown is not None or (again and skips) or far or self.backs >= _MAX_BACKS:
            self._stop("%s%s; %s" % (what, " again" if again else "", self._cure(grown)))
            return False
        text = "%s at step %d: back to the state of step %d" % (what, step, self.states.step)
        self._put_back(epoch)
        self.backs, self.back_step, self.undone, self.in_a_row = self.backs + 1, step, undone, 0
        self.losses_from = self.loop.nan.history.count
        self._report("go-back", step, text, "the batches of %d steps are skipped" % undone)
        return True

    def _put_back(self, epoch):
        """Make the last good state the present one, and skip bad updates from here on."""
        model = self.model()
        metrics_begin_anew = self.states.put_back(epoch)
        self.why_not_replaced = self.why_not_replaced or self.healer.why_not(model)
        if not self._is_replaced() and not self.why_not_replaced:
            model.train_function = MicroBatches(self.healer, self, model, 1)
        if metrics_begin_anew and epoch is not None and self._is_replaced():
            model.train_function.without_mean()

    def _stop(self, because):
        """Act no more: what would have happened happens."""
        self.off = True
        self.states.forget()
        if self._is_replaced():
            self.model().train_function.stop_skipping()
        self.agent.say("declined", act="hold-update", step=self.agent.beat.steps + 1, because=because)

    # --- reports ------------------------------------------------------------------------------------------

    def _report_skipped(self, step, why):
        text = "the update of step %d was skipped: %s" % (step, why)
        if self.count > _REPORTS or why in self.reported_reasons:
            if self.count & (self.count - 1):
                return
            text = "%d updates have been skipped so far; the last, of step %d: %s" % (self.count, step, why)
        self.reported_reasons.add(why)
        self._report("hold-update", step, text, "batch skipped")

    def _report(self, act, step, text, because):
        self.agent.say("intervention", act=act, keeps="equivalent", step=step, text=text, because=because)

    # --- what is known ------------------------------------------------------------------------------------

    def _losses(self):
        """The finite losses since the last going back."""
        history = self.loop.nan.history
        since = history.count - self.losses_from
        return list(history.losses)[-since:] if since > 0 else []

    def _ran_away(self):
        return ran_away(self._losses(), self.states.level.lowest)

    def _cure(self, grown):
        rate, policy = self.loop.lr, getattr(self.model(), "dtype_policy", None)
        seen = {"dtype": getattr(policy, "compute_dtype", "")}
        return cure(seen, grown, rate if rate - rate == 0.0 else None)


def _bad_input(tf, data):
    """What of a batch is non-finite, in words; empty where all of it is finite."""
    for number, role in enumerate(data if isinstance(data, (tuple, list)) else (data,)):
        for leaf in tf.nest.flatten(role):
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
# A copy may cost 0.25 % of the time and a tenth of the free memory, and is only taken while the loss is about as low
# as it has been: one that runs away would otherwise be copied on its way up. Reading changes nothing.

_TIME_SHARE = 400  # a copy may take 1/400 of the time, as in PyTorch
_NEVER = 1 << 62


class GoodStates:
    """Holds at most one copy."""

    def __init__(self, model):
        self.model = weakref.ref(model)
        self.step = self.epoch = None
        self.kept, self.metrics = [], []
        self.kept_at = 0
        self.optimizer_is_new = False  # it had no variables yet
        self.next_at = 0  # on the heartbeat's clock
        self.declined = "none has been kept yet"
        self.level = Level()
        copies.add(self)

    def keep(self, step, epoch, losses):
        """Copy the present state, where it is good and memory allows it."""
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
            self.kept_at = begun
        now = monotonic_ns()
        self.next_at = now + (now - begun) * _TIME_SHARE

    def age(self):
        """Seconds since the last good state."""
        return (monotonic_ns() - self.kept_at) / 1e9

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
        """Memory is running out: the copy is dropped."""
        if self.kept:
            self.kept, self.metrics, self.step, self.next_at = [], [], None, 0
            self.declined = "its copy was dropped near the memory limit"

    def forget(self):
        """Acting has ended."""
        self.kept, self.metrics, self.step, self.next_at = [], [], None, _NEVER
        self.declined = "healing of it has ended"


def _finite(values):
    total = values.sum() if values.dtype.kind == "f" else 0.0
    return bool(total - total == 0.0) or bool((values - values == 0.0).all())


def _bytes(variable):
    count = 1
    for n in variable.shape:
        count *= n
    return count * getattr(variable.value.dtype, "size", 4)
