"""What a compiled Keras model holds in the host's memory under TensorFlow: variables, and what was traced for it."""

import sys
import weakref

_SMALL = 1 << 14  # elements
_MADE_ANEW = ("train_function", "test_function", "predict_function")  # by Keras, when they are next needed


class KeptKeras:
    """A model, weakly; it holds its optimizer."""

    def __init__(self, model, hold):
        self.model, self.hold = weakref.ref(model), weakref.ref(hold)

    def lives(self):
        return self.model() is not None

    def mark(self):
        """The count of its updates."""
        optimizer = getattr(self.model(), "optimizer", None)
        return int(optimizer.iterations.numpy()) if optimizer is not None else 0

    def rests(self):
        """It is not trained any more: the copy that it could go back to takes as much as it does."""
        hold = self.hold()
        if hold is not None:
            hold.states.release()

    def shrink(self):
        """Drop what has been traced: some ten MB, which are in no variable. True where there was any."""
        model = self.model()
        if model is None or _is_at_work(model):
            return False
        traced = [name for name in _MADE_ANEW if getattr(model, name, None) is not None]
        for name in traced:
            setattr(model, name, None)
        return bool(traced)

    def blocks(self):
        """Addresses and sizes: a variable that is read gives its own memory, not a copy."""
        model, numpy = self.model(), sys.modules["numpy"]
        if model is None:
            return []
        optimizer = getattr(model, "optimizer", None)
        found = {}
        for variable in [*model.variables, *(optimizer.variables if optimizer is not None else ())]:
            value = getattr(variable, "_value", None)
            if value is None or not hasattr(value, "read_value") or (value.shape.num_elements() or 0) < _SMALL:
                continue
            try:
                view = numpy.asarray(memoryview(value.read_value()))
            except (TypeError, ValueError, BufferError):
                continue  # numbers that NumPy has no name for, such as bfloat16
            found[view.__array_interface__["data"][0]] = view.nbytes
        return list(found.items())


def _is_at_work(model):
    """Within a `fit` that another model is trained in, by a callback."""
    frame = sys._getframe(1)
    while frame is not None:
        if "keras" in frame.f_code.co_filename and frame.f_locals.get("self") is model:
            return True
        frame = frame.f_back
    return False
