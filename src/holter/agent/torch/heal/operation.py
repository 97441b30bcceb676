"""An operation on outputs without elements that was taken down, to be made chunk by chunk (`pending`)."""

from ...heal.leaves import Unsplittable, take_out

_SHAPES = frozenset(("view", "reshape"))


class Operation:
    """One that was taken down: what is called, on which values, and under which modes."""

    def __init__(self, func, name, words, build, sources, modes, slots, shapes):
        self.func, self.name, self.words, self.build = func, name, words, build
        self.sources, self.modes, self.slots, self.shapes = sources, modes, slots, shapes

    def run(self, torch, values, outer, size, rows):
        """Its tensors, for `rows` of the `size` samples."""
        args, kwargs = self.build(iter([(values if kind == "slot" else outer)[n] for kind, n in self.sources]))
        if self.name in _SHAPES and rows != size:
            args = _for_rows(args, size, rows)
        (autocast, graded), found = self.modes, []
        wanted = [(shape[0] // size * rows, *shape[1:]) if shape else shape for shape in self.shapes]
        with autocast(), torch.set_grad_enabled(graded and torch.is_grad_enabled()):
            if self.name == "squeeze" and rows != size:  # of a single sample it would take that axis, too
                return [args[0].reshape(wanted[0])]
            take_out(self.func(*args, **kwargs), lambda thing: isinstance(thing, torch.Tensor), found)
        if [tuple(one.shape) for one in found] != wanted:
            raise Unsplittable("%s makes something else of fewer samples" % self.name)
        return found


def _for_rows(args, size, rows):
    """The shape that a reshape asks for, whose first axis holds the samples."""
    tensor, *shape = args
    shape = list(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    if shape and isinstance(shape[0], int) and shape[0] > 0 and shape[0] % size == 0:
        shape[0] = shape[0] // size * rows
    return tensor, tuple(shape)


def takes_all_samples(index):
    first = index[0] if isinstance(index, tuple) and index else index
    return first is Ellipsis or (isinstance(first, slice) and first == slice(None))


def literals(name, args, kwargs, is_tensor):
    """What an operation was given beside tensors; not what is multiplied with, which may change with each step."""
    if name.strip("_").lstrip("r") in ("mul", "div", "truediv", "true_divide"):
        return None
    plain = []
    take_out((args, kwargs), is_tensor, [], plain)
    return repr(plain)
