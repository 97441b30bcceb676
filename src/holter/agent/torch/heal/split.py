"""Split the batch in place (PyTorch): a step that runs out of memory is run in parts, and its update is the same.

It stands around the outermost call of each trained model, and in calm the call passes through as if it did not. One
that runs out of memory is run in parts, once those are proven to come to the same (`proof`). One that went
forward near the limit has its graph held, so that a backward that fails can be run in parts as well; held by nobody
else, it is the graph that it was. Calls without gradients are run in parts after they failed. Keeps: exact, or
equivalent for models with BatchNorm or with random numbers that are drawn inside a kernel. What can't be proven is
declined with the reason, and the error is the user's own.
"""

import functools
import weakref
from threading import Thread
from time import monotonic

from ....record import environment
from ...heal.chunk_tuning import parts_asked
from ...heal.leaves import Unsplittable, bytes_of, take_out
from ...heal.out_of_memory import drop_own_frames, is_oom, let_go
from ...heal.soft_limit import wall_of
from ..observe.visibility import Unseen
from .chunks import Call, cut_class
from .memory_budget import room_of
from .proof import outside_states, put_back_outside
from .random_numbers import put_back, states_of
from .split_state import SplitState

_LOOK_EVERY = 0.5
# These hand their call on to a model that they hold, with doings of their own around it that must happen once.
_WRAPPERS = ("DistributedDataParallel",)
_NOT_OURS = ("DataParallel", "FullyShardedDataParallel")
_SHARDED = ("DTensor", "FlatParameter")


class Before:
    """How things were before a call, so that one that failed can be made anew."""

    def __init__(self, call):
        care = call.care
        self.call = call
        self.left = call.left = care.room.left()
        self.states, self.outside = states_of(care.torch, care.device), outside_states()
        self.buffers = care.buffers()

    def put_back(self):
        """Undo what a failed call has drawn and counted; False where it has changed what can't be undone."""
        care = self.call.care
        put_back(care.torch, care.device, self.states)
        put_back_outside(self.outside)
        care.put_buffers_back(self.buffers)
        return self.call.is_untouched()


class Split:
    """Stands around the calls of trained models."""

    def __init__(self, agent, torch, is_compiling):
        self.agent, self.torch, self.is_compiling = agent, torch, is_compiling
        self.inside = False
        self.asked = parts_asked(environment.SPLIT)  # parts that a restart has asked for, from the first step on
        self.cares = {}  # id of a model -> what is known of it
        self.wrapped = set()
        self.told = set()
        self.next_look = 0.0
        self.is_tensor = lambda thing: isinstance(thing, torch.Tensor)
        self.unseen = Unseen(torch)
        self.is_near, self.when_near = False, []  # what is put in place when memory is nearly used up
        self.rooms, self.drains = {}, {}
        self.loader = None  # what hands out batches in parts, where computing twice costs more than that
        self.open = []  # calls whose backward is still to come, weakly

    def room(self, device):
        """The room of a device, one for all that act on it."""
        found = self.rooms.get(device)
        if found is None:
            found = self.rooms[device] = room_of(self.torch, device, wall_of(self.agent))
            self.drains[device] = CacheRelease(self.torch, device)
            if hasattr(found, "tidied"):
                found.tidied = lambda: self.agent.say("armed", act="split-batch", tidy=True)
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
        own = vars(cls).get("__call__")
        is_compiling, grad_enabled, is_seen = self.is_compiling, self.torch.is_grad_enabled, self._is_seen

        @functools.wraps(cls.__call__)
        def __call__(module, *args, **kwargs):  # noqa: N807
            # Looked up anew each time: whoever traces puts a call of their own in its place, and what comes after this
            # class is another one for each that derives from it.
            inner = own or super(cls, type(module)).__call__  # type: ignore[misc]
            if self.inside or is_compiling() or is_seen():
                return inner(module, *args, **kwargs)
            try:
                if grad_enabled():
                    return self.call(module, inner, args, kwargs)
                return self.evaluate(module, inner, args, kwargs)
            except BaseException as error:
                drop_own_frames(error)
                raise

        cls.__call__ = __call__

    def _is_seen(self):
        """Tell whether somebody looks at each operation, or transforms the call: then it is not ours to touch."""
        torch = self.torch
        if not self.unseen.alone() or torch.autograd.forward_ad._current_level >= 0:
            return True
        return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()

    def call(self, module, inner, args, kwargs):
        """The outermost call of a model that may have a gradient."""
        care, call = self._known(module), None
        if care is None or care.declined is not None:
            return inner(module, *args, **kwargs)
        try:
            if not care.is_calm(args, kwargs):
                call = self._opened(care, inner, args, kwargs)
            elif (now := monotonic()) >= self.next_look:
                self.next_look = now + _LOOK_EVERY
                care.is_near()
        except Exception as error:
            self.agent.guard.caught("split", error)
        if call is None:
            return self._whole(module, inner, args, kwargs)
        rows = care.rows_for(call)
        return self._cut(call, rows, None, args, kwargs) if rows > 0 else self._watched(call, args, kwargs)

    def _whole(self, module, inner, args, kwargs):
        """As ever; what is called within it is its own affair."""
        self.inside = True
        try:
            return inner(module, *args, **kwargs)
        finally:
            self.inside = False

    def _opened(self, care, inner, args, kwargs):
        """What a call is given; None where that is of a kind that is left alone."""
        if care.device.type == "meta":
            return None
        call = Call(care, inner, args, kwargs, care.axis)
        strided = self.torch.strided
        is_plain = self.unseen.is_plain
        plain = all(is_plain(leaf) and leaf.layout is strided and not leaf.is_nested for leaf in call.leaves)
        return call if plain and call.size else None

    def _watched(self, call, args, kwargs):
        """A call that may come near the limit: run as it is, and what it would take to run it again is known."""
        care, before = call.care, Before(call)
        failed = None
        try:
            with care.room.wall:
                out = self._whole(call.module, call.inner, args, kwargs)
        except Exception as error:
            if not is_oom(error):
                raise
            failed = error
        if failed is None:
            try:
                return self._near(call, before, out)
            except Exception as error:
                self.agent.guard.caught("split", error)
                return out
        let_go(failed)
        care.room.ran_out()
        self.comes_near()
        if not before.put_back():
            care.decline("the call that failed had changed its inputs, weights or random numbers")
            raise failed
        return self._cut(call, 0, failed, args, kwargs)

    def _near(self, call, before, out):
        """A whole forward went through: what the user is handed is what it gave, held where its backward may fail."""
        care, given = call.care, []
        take_out(out, self.is_tensor, given)
        if care.went_at_once(call, max(before.left - care.room.left(), 1), bytes_of(given)):
            return out
        self.comes_near()
        care.refresh()
        if not call.hold(out):
            return out
        call.starts = [before.states]
        return self._joined(call, 0)

    def _joined(self, call, rows):
        """A call as a node of its own, in the user's graph."""
        call.tensors = (*(call.leaves[n] for n in call.needing), *call.care.weights.weights)
        found = cut_class(self.torch).apply(call, rows, *call.tensors)
        self.open = [*(ref for ref in self.open[-31:] if ref() is not None), weakref.ref(call)]
        build, call.rebuild = call.rebuild, None  # it may hold what was put together, and so its graph
        return build(iter(found))

    def comes_near(self):
        """Memory is nearly used up: what may help is put in place."""
        if not self.is_near:
            self.is_near = True
            for act in self.when_near:
                self.agent.guard(act)()

    def evaluate(self, module, inner, args, kwargs):
        """The outermost call of a model without gradients: whole while it fits, and otherwise in parts."""
        care, failed = self._known(module), None
        if care is None or care.declined is not None:
            return inner(module, *args, **kwargs)
        if not is_known(care, args, kwargs):
            try:
                with care.room.wall:
                    return self._whole(module, inner, args, kwargs)
            except Exception as error:
                if not is_oom(error):
                    raise
                failed = error
            let_go(failed)
            care.room.ran_out()
        try:
            with care.room.wall:
                return in_parts(care, inner, args, kwargs)
        except Unsplittable as error:
            self.tell_declined(care, "an evaluation: %s" % error)
        if failed is not None and not care.room.wall.at():
            raise failed
        return self._whole(module, inner, args, kwargs)  # where it met our wall, the kernel may allow it

    def _cut(self, call, rows, failed, args, kwargs):
        """Run a call in parts; where that can't be, it is the user's own again, with the error that it had."""
        care, inner, why = call.care, call.inner, None
        start = states_of(self.torch, care.device)
        while True:
            try:
                care.refresh()
                with care.room.wall:
                    return self._joined(call, rows)
            except Unsplittable as error:
                why = why or error
                if care.other_axis(call):
                    call = Call(care, inner, args, kwargs, care.axis)
                    continue
            except Exception as error:
                self.agent.guard.caught("split", error)
                let_go(error)
                why = why or Unsplittable("a part of it failed: %s" % type(error).__name__)
            break
        put_back(self.torch, care.device, start)
        failed = failed if failed is not None else call.failed
        call = None
        care.decline(str(why))
        if failed is not None and not care.room.wall.at():
            raise failed from None
        return self._whole(care.module(), inner, args, kwargs)  # where it met our wall, the kernel may allow it

    def _known(self, module):
        """What is known of a model; None where it is nothing of ours."""
        try:
            care = self.cares.get(id(module)) or self._care(module)
        except Exception as error:
            self.agent.guard.caught("split", error)
            return None
        return care if care is not None and care.module() is module else None

    def _care(self, module):
        if len(self.cares) > 256:
            self.cares = {number: care for number, care in self.cares.items() if care.module() is not None}
        if type(module).__name__ in _WRAPPERS:
            return None
        care = self.cares[id(module)] = SplitState(self, module)
        # What is known of a model goes with it: it holds the weights, and a script may make one after the other.
        number = id(module)
        care.gone = weakref.ref(module, lambda _ref: self.cares.pop(number, None))
        if not self.agent.heal:  # it has become one of several ranks since
            care.decline("several ranks train together")
        elif type(module).__name__ in _NOT_OURS or getattr(module, "_is_replica", False):
            care.decline("%s splits the batch itself" % type(module).__name__)
        elif any(type(weight).__name__ in _SHARDED for weight in module.parameters()):
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
        self.agent.say(
            "intervention", act="split-batch", keeps=care.keeps, step=self.agent.beat.steps + 1, model=name,
            batch=size, rows=rows, because=care.because, text=text,
        )  # fmt: skip

    def tell_declined(self, care, why):
        name = care.name
        self.agent.say("declined", act="split-batch", step=self.agent.beat.steps + 1, model=name, because=why)


# --- Empties PyTorch's queue of what a failed backward has left in it
# A backward that runs out of memory leaves the branches that were still to come in the queue of its thread, and with
# them all that they have saved. They are thrown away when they are next met, which within a backward of somebody's is
# only after it: too late for another try. A backward of the oldest graph there is comes after them all, and so meets
# them.


class CacheRelease:
    """One tiny graph of a device, older than any other: nodes are numbered anew in each thread."""

    def __init__(self, torch, device):
        self.torch = torch
        self.pair = None

        def make():
            try:
                with torch.enable_grad():
                    leaf = torch.zeros((), device=device, requires_grad=True)
                    self.pair = leaf, leaf * 1.0
            except Exception:
                return

        thread = Thread(target=make)
        try:
            thread.start()
        except RuntimeError:  # no more threads are allowed
            return
        thread.join()

    def empty(self):
        """Without a graph, for which there was no room either, what lies in the queue is thrown away later."""
        if self.pair is not None:
            leaf, out = self.pair
            self.torch.autograd.grad(out, leaf, retain_graph=True)


# --- A call of a model without gradients that does not fit (PyTorch), run in parts along the batch
# There is no backward to keep anything for: the outputs of the parts are put together, and that is all. What was
# found to fit is remembered for each shape, so that only the first such call fails.


def is_known(care, args, kwargs):
    """Whether so many samples are known not to fit."""
    if not care.evaluated:
        return False
    call = Call(care, None, args, kwargs, care.axis)
    return call.size > care.evaluated.get(call.shapes, call.size)


def in_parts(care, inner, args, kwargs):
    """The outputs of the whole batch; raises Unsplittable where there are no parts, or none that fits."""
    care.refresh()
    call, axis = Call(care, inner, args, kwargs, care.axis), care.axis
    try:
        call.examine(graded=False)
    except Unsplittable as error:
        if not call.size or not care.other_axis(call):
            raise
        call, why = Call(care, inner, args, kwargs, care.axis), error
    else:
        return _joined(call)
    try:
        call.examine(graded=False)
    except Unsplittable:
        care.axis = axis  # this says nothing of calls with gradients
        raise why from None
    return _joined(call)


def _joined(call):
    care = call.care
    rows = care.evaluated.get(call.shapes) or care.halve(call.size)
    begin, whole, build = 0, [], None
    while begin < call.size:
        end = care.end_of_part(begin, rows, call.size)
        start = states_of(care.torch, care.device)
        done = _part(call, begin, end)
        if done is None:
            put_back(care.torch, care.device, start)
            care.room.ran_out()
            rows = care.halve(end - begin)
            continue
        build, outputs = done
        if not whole:
            whole = [kind.room(one, one.shape, call.size) for kind, one in zip(call.kinds, outputs)]  # noqa: B905
        for kind, room, one in zip(call.kinds, whole, outputs):  # noqa: B905
            kind.put(room, one, begin, end, call.weight(kind, begin, end))
        done = outputs = one = None
        begin = end
    if build is None:
        raise Unsplittable("the batch has no samples")
    if call.draws is not None:
        call.draws.finish()
    care.evaluated[call.shapes] = rows
    care.split.tell_split(care, call.size, rows, "the %d samples of an evaluation did not fit: they are")
    return build(iter(whole))


def _part(call, begin, end):
    """What puts the outputs together, and the outputs; None where they do not fit."""
    care, failed = call.care, None
    args, kwargs = call.some(begin, end)
    try:
        with care.inside():
            out = call.called(args, kwargs, begin, end, call.draws)
    except Exception as error:
        if not is_oom(error):
            raise Unsplittable("a part failed (%s)" % type(error).__name__) from error
        failed = error
    if failed is not None:
        let_go(failed)
        return None
    flat = []
    return take_out(out, care.is_tensor, flat), flat
