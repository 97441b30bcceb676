"""What a model was called with last, weakly, and the tensors of the user's own frames: a step's inputs and targets."""

import functools
import weakref
from collections import deque
from itertools import islice

from ...core import frame_locals
from ...core.user_frame import is_user_file
from ...observe import source_calls
from ...observe.wrap import drop_own_frame
from .finite import describe, readable

_FRAMES = 40
_INSIDE = 8  # tensors of one tuple or dict
# Names under which Trainers hold the batch of a step.
_NAMES = ("batch", "inputs", "data", "kwargs", "args", "x", "y")
GIVEN = "input "  # begins the name of what a model was called with


class Batch:
    """Notes the calls of trained models; reads what they were given when it is asked to."""

    def __init__(self, torch):
        self.torch = torch
        self.tensor_class = torch.Tensor
        self.calls = deque(maxlen=4)  # a model and its tensors by name

    def called(self, module, args, kwargs):
        """A model is called for training: remember with what."""
        if len(args) == 1 and not kwargs and issubclass(type(args[0]), self.tensor_class):
            refs = ((0, weakref.ref(args[0])),)  # as most models are called
        else:
            refs = []
            for name, thing in (*enumerate(args), *kwargs.items()):
                for path, tensor in self._within(name, thing):
                    refs.append((path, weakref.ref(tensor)))
        self.calls.append((weakref.ref(module), refs))

    def models(self):
        """The models that were called last and still live, the last first."""
        return [model for ref, _ in reversed(self.calls) if (model := ref()) is not None]

    def describe(self, clock, frame):
        """Every float tensor of the batch as fields of an event."""
        found, seen = [], set()
        for name, tensor in self._tensors(frame):
            if id(tensor) in seen or not readable(self.torch, tensor) or not tensor.dim() or tensor.requires_grad:
                continue
            seen.add(id(tensor))
            fields = describe(self.torch, name, tensor, clock)
            if fields is None:
                break
            found.append(fields)
        return found

    def _tensors(self, frame):
        for _ref, refs in reversed(self.calls):
            for name, ref in refs:
                tensor = ref()
                if tensor is not None:
                    yield (name if isinstance(name, str) else GIVEN + str(name)), tensor
        for _ in range(_FRAMES):
            if frame is None:
                return
            code = frame.f_code
            if is_user_file(code.co_filename):
                # Not every tensor of a script is of its batch: those that the present loop's body uses.
                near = source_calls.names_near(frame)
                known = dict.fromkeys((*code.co_names, *code.co_varnames, *code.co_cellvars))
                names = [name for name in known if name in near]
            else:
                names = [name for name in _NAMES if name in code.co_varnames]
            for name, value in frame_locals.read(frame, *names).items() if names else ():
                yield from self._within(name, value)
            frame = frame.f_back

    def _within(self, name, value):
        tensor_class, kind = self.tensor_class, type(value)  # `__class__` may be a property of the user's, too
        if issubclass(kind, tensor_class):
            yield name, value
        elif issubclass(kind, (tuple, list)):
            entries = list.__iter__(value) if issubclass(kind, list) else tuple.__iter__(value)
            for at, one in enumerate(islice(entries, _INSIDE)):
                if issubclass(type(one), tensor_class):
                    yield "%s[%d]" % (name, at), one
        elif issubclass(kind, dict):  # by its own means: those of a class of the user's may do anything
            for key, one in list(islice(dict.items(value), _INSIDE)):
                if issubclass(type(one), tensor_class):
                    yield "%s[%r]" % (name, key), one


# --- Which samples of its dataset a batch is made of: the indices that a loader has asked for, in order

_AHEAD = 256  # batches that workers may have been asked for
_MAX_INDICES = 64  # samples of one batch


class Samples:
    """The last batch's indices, where the dataset is one that has them; worked out when they are wanted."""

    def __init__(self, guard):
        self.guard = guard
        self.asked = {}  # id of an iterator -> indices of the last batches that it asked for
        self.draws = 0  # batches that loaders have given
        self._iterator = _nothing

    def patch(self, iterator_class):
        inner = getattr(iterator_class, "_next_index", None)
        if inner is None:
            return
        asked = self.asked

        @functools.wraps(inner)
        def _next_index(iterator):
            try:
                index = inner(iterator)
            except BaseException as error:
                drop_own_frame(error)
                raise
            last = asked.get(id(iterator))
            if last is None:
                if len(asked) > 16:
                    asked.clear()
                last = asked[id(iterator)] = deque(maxlen=_AHEAD)
            last.append(index)
            return index

        iterator_class._next_index = _next_index

    def drew_from(self, iterator):
        """A batch of the training has come from this iterator."""
        if self._iterator() is not iterator:
            self._iterator = weakref.ref(iterator)

    def index(self, sample, size):
        """The dataset's index of one sample of the last batch, where the batch is made of single samples."""
        last = self._last()
        if isinstance(last, (list, tuple)) and sample is not None and len(last) == size:
            found = last[sample]
            return found if isinstance(found, int) else None
        return last if isinstance(last, int) and size is None else None

    def of_batch(self):
        """The dataset's indices of the last batch, the first of them; none where they are not known."""
        last = self._last()
        return [one for one in last[:_MAX_INDICES] if isinstance(one, int)] if isinstance(last, (list, tuple)) else []

    def _last(self):
        """The indices of the batch that came last: workers have been asked for more since then."""
        iterator = self._iterator()
        asked = self.asked.get(id(iterator))
        if not asked or not getattr(iterator, "_in_order", True):
            return None
        ahead = getattr(iterator, "_send_idx", 0) - getattr(iterator, "_rcvd_idx", 0)
        return asked[-1 - ahead] if 0 <= ahead < len(asked) else None


def _nothing():
    return None
