"""A Keras model with Keras' own `train_step` under care: what its whole step is, and whether a batch will fit."""

from ._leaves import Unsplittable
from ._parts_keras import Parts
from ._pieces_keras import Pieces
from ._step_keras import Stand, changed_by, settle, update, values_of
from ._train_function_keras import TrainFunction
from ._tryout_keras import TryOut


class Care(TrainFunction):
    """Of one model."""

    def __init__(self, split, model, inner):
        super().__init__(split, model, inner)
        self.tried = False
        self.tryout = TryOut(self)
        self.state_in = self.next_state = None

    def one_step(self, data, state):
        """The model's step, which comes back to `train_step` below."""
        self.state_in, self.split.open = state, self
        try:
            return self.model.train_step(data), self.next_state
        finally:
            self.split.open = self.state_in = self.next_state = None

    def train_step(self, data):
        """Keras' own step, with what it writes held until it is known to be good."""
        tf, model = self.tf, self.model
        before = values_of(tf, model)
        stand, state = Stand(model), self.state_in
        self.split.train_step(stand, data)
        before = changed_by(tf, model, before)

        def write():
            if stand.gradients:
                update(tf, model.optimizer, stand.gradients, state)
            args, kwargs = stand.noted
            model._loss_tracker.update_state(*args, **kwargs)
            args, kwargs = stand.measured
            return model.compute_metrics(*args, **kwargs)

        logs, self.next_state = settle(tf, model, stand.gradients, stand.loss, data, write, before, state)
        return logs

    def pieces(self, data):
        return Pieces(self.tf, self.split.keras.utils.unpack_x_y_sample_weight(data))

    def make_parts(self, pieces):
        return Parts(self, pieces)

    def look_ahead(self, data):
        """Before a batch of another shape is run: on a CPU TensorFlow would die of it."""
        if not self.tryout.wants(data):
            return
        try:
            self.rows = self.tryout.rows_for(self.pieces(data))
        except Exception as error:
            self.tryout.off = True
            if not isinstance(error, Unsplittable):
                self.split.guest.guard.caught("try-out", error)

    def fits_easily(self):
        return self.tryout.calm

    @property
    def words(self):
        """What the try-out has found."""
        return self.tryout.words or super().words

    def keeps(self):
        """What a split keeps of this model's result, and why not all."""
        model = self.model
        layers = [layer for layer in model._flatten_layers() if layer.trainable]
        if any("BatchNormalization" in type(layer).__name__ for layer in layers):
            return "equivalent", "BatchNormalization takes its statistics from each part"
        if any(_is_random(layer) for layer in layers):
            return "equivalent", "random layers such as Dropout draw anew for each part"
        return "exact", ""


def _is_random(layer):
    """Whether a layer draws random numbers; a recurrent one only where it has a dropout."""
    if not getattr(layer, "_seed_generators", None):
        return False
    if hasattr(layer, "recurrent_dropout"):
        return bool(layer.dropout or layer.recurrent_dropout)
    return bool(getattr(layer, "rate", 1.0))
