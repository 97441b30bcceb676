"""Split the batch in place (PyTorch): a step that runs out of memory is run in parts, and its update is the same.

It watches the outermost call of each trained model. While there is room to spare a call is left as it is. A batch
larger than any before, or one that comes near to the limit, is cut out of the graph, so that its backward can be run
in parts too; one that does not fit is. So is a call without gradients. Keeps: exact, or equivalent for models with
BatchNorm or with random numbers that are drawn inside a kernel. What can't be split is declined with the reason, and
the error is the user's own.
"""

import functools
import weakref
from time import monotonic

from . import _evaluation_torch as evaluation
from ._asked import parts_asked
from ._care_torch import Care
from ._leaves import Unsplittable
from ._oom import is_oom
from ._parts_torch import Call, cut_class
from ._room_torch import room_of

_LOOK_EVERY = 0.5
# These hand their call on to a model that they hold, with doings of their own around it that must happen once.
_WRAPPERS = ("DistributedDataParallel",)
_NOT_OURS = ("DataParallel", "FullyShardedDataParallel")
_SHARDED = ("DTensor", "FlatParameter")


class Split:
    """Stands around the calls of trained models."""

    def __init__(self, guest, torch, is_compiling):
        self.guest, self.torch, self.is_compiling = guest, torch, is_compiling
        self.inside = False
        self.asked = parts_asked("HOLTER_SPLIT")  # parts that a restart has asked for, from the first step on
        self.cares = {}  # id of a model -> what is known of it
        self.wrapped = set()
        self.told = set()
        self.next_look = 0.0
        self.is_tensor = lambda thing: isinstance(thing, torch.Tensor)
        self.rooms = {}
        self.loader = None  # what hands out batches in parts, where computing twice costs more than that
        self.open = []  # calls whose backward is still to come, weakly

    def room(self, device):
        """The room of a device, one for all that act on it."""
        found = self.rooms.get(device)
        if found is None:
            found = self.rooms[device] = room_of(self.torch, device)
            if hasattr(found, "tidied"):
                found.tidied = lambda: self.guest.say("armed", act="split-batch", tidy=True)
        return found

    def release(self):
        """Drop the graphs that calls have kept; True where there were any. They are computed again in backward."""
        calls = [call for ref in self.open if (call := ref()) is not None]
        self.open = []
        had = [call.give_up_kept() for call in calls]
        return any(had)

    def watch(self, models):
        """Stand around the calls of these models and of the parts that they may be called by."""
        containers = (self.torch.nn.Module, self.torch.nn.ModuleList, self.torch.nn.ModuleDict)
        for model in models:
            for part in model.modules():
                cls = type(part)
                if cls not in self.wrapped and cls not in containers and (part is model or part._modules):
                    self.wrapped.add(cls)
                    self._wrap(cls)

    def _wrap(self, cls):
        inner = cls.__call__
        is_compiling, grad_enabled = self.is_compiling, self.torch.is_grad_enabled

        @functools.wraps(inner)
        def __call__(module, *args, **kwargs):  # noqa: N807
            if self.inside or is_compiling():
                return inner(module, *args, **kwargs)
            if grad_enabled():
                return self.call(module, inner, args, kwargs)
            return self.evaluate(module, inner, args, kwargs)

        cls.__call__ = __call__

    def call(self, module, inner, args, kwargs):
        """The outermost call of a model that may have a gradient."""
        care = self.cares.get(id(module)) or self._care(module)
        if care is None or care.module() is not module:
            return inner(module, *args, **kwargs)
        if care.declined is None and care.wants_cut(args, kwargs):
            return self._cut(care, inner, args, kwargs, None)
        self.inside = True
        try:
            out = inner(module, *args, **kwargs)
        except Exception as error:
            if care.declined is not None or not is_oom(error):
                raise
            failed = error
        else:
            now = monotonic()
            if now >= self.next_look:
                self.next_look = now + _LOOK_EVERY
                care.is_near()
            return out
        finally:
            self.inside = False
        # The frames of the failed attempt hold its tensors: they go with the traceback.
        failed.__traceback__ = failed.__context__ = None
        care.room.ran_out()
        return self._cut(care, inner, args, kwargs, failed)

    def evaluate(self, module, inner, args, kwargs):
        """The outermost call of a model without gradients: whole while it fits, and otherwise in parts."""
        care, failed = self.cares.get(id(module)) or self._care(module), None
        if care is None or care.module() is not module or care.declined is not None:
            return inner(module, *args, **kwargs)
        if not evaluation.is_known(care, args, kwargs):
            self.inside = True
            try:
                return inner(module, *args, **kwargs)
            except Exception as error:
                if not is_oom(error):
                    raise
                failed = error
            finally:
                self.inside = False
            # The frames of the failed attempt hold its tensors: they go with the traceback.
            failed.__traceback__ = failed.__context__ = None
            care.room.ran_out()
        try:
            return evaluation.in_parts(care, inner, args, kwargs)
        except Unsplittable as error:
            self.tell_declined(care, "an evaluation: %s" % error)
        if failed is not None:
            raise failed
        return inner(module, *args, **kwargs)

    def _cut(self, care, inner, args, kwargs, failed):
        """Run a call as a node of its own, whole or in parts."""
        why = None
        while True:
            care.refresh()
            call = Call(care, inner, args, kwargs, care.axis)
            if not call.size:
                why = why or Unsplittable("the model is called without tensors")
            else:
                try:
                    rows = 0 if failed is not None and not care.knows(call) else care.rows_for(call)
                    tensors = [call.leaves[n] for n in call.needing] + care.weights.weights
                    found = cut_class(self.torch).apply(call, rows, *tensors)
                    self.open = [*(ref for ref in self.open[-31:] if ref() is not None), weakref.ref(call)]
                    return call.rebuild(iter(found))
                except Unsplittable as error:
                    why = why or error
                if care.other_axis(call):
                    continue
            failed = failed if failed is not None else call.failed
            call = found = tensors = None
            care.decline(str(why))
            if failed is not None:
                raise failed from None
            return inner(care.module(), *args, **kwargs)

    def _care(self, module):
        if len(self.cares) > 256:
            self.cares = {number: care for number, care in self.cares.items() if care.module() is not None}
        if type(module).__name__ in _WRAPPERS:
            return None
        care = self.cares[id(module)] = Care(self, module)
        # What is known of a model goes with it: it holds the weights, and a script may make one after the other.
        number = id(module)
        care.gone = weakref.ref(module, lambda _ref: self.cares.pop(number, None))
        if type(module).__name__ in _NOT_OURS or getattr(module, "_is_replica", False):
            care.decline("%s splits the batch itself" % type(module).__name__)
        elif any(type(weight).__name__ in _SHARDED for weight in care.weights.weights):
            care.decline("its weights lie on several devices")
        return care

    # --- telling ------------------------------------------------------------------------------------------

    def tell_split(self, care, size, rows, words="the batch of %d did not fit: it is"):
        """Say what was done: once for each model and number of parts."""
        parts = -(-size // rows)
        name = care.name
        key = name, parts, words
        if parts < 2 or key in self.told:
            return
        self.told.add(key)
        text = (words + " run in %d parts of up to %d") % (size, parts, rows)
        self.guest.say(
            "intervention", act="split-batch", keeps=care.keeps, step=self.guest.beat.steps + 1, model=name,
            batch=size, rows=rows, because=care.because, text=text,
        )  # fmt: skip

    def tell_declined(self, care, why):
        name = care.name
        self.guest.say("declined", act="split-batch", step=self.guest.beat.steps + 1, model=name, because=why)
