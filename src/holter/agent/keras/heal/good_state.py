"""The last good state of a Keras model on TensorFlow: all that a step writes, copied now and then.

A copy may cost 0.4 % of the time and a tenth of the free memory, and is only taken while the loss is about as low as
it has been: one that runs away would otherwise be copied on its way up. Reading changes nothing.
"""

import weakref
from time import monotonic_ns

from ...heal.copy_budget import allowance, copies
from ...heal.loss_level import Level

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
