"""Split the batch in place (PyTorch): a call that runs out of memory is run in chunks, and its update is the same.

It stands around the outermost call of each trained model, and in calm the call passes through as if it did not. A
forward that runs out of memory is run in chunks, once those are proven to come to the same (`proof`); so is each later
one that is as large. A backward that fails in a graph of the user's own is beyond help here: the run ends, and is
started again in chunks from its first step on (`HOLTER_SPLIT`). Calls without gradients are run in chunks after they
failed. Keeps: exact, or equivalent for models with BatchNorm or with random numbers. What can't be proven is declined
with the reason, and the error is the user's own.
"""

import functools
import os
import weakref
from time import monotonic

from ....record import environment
from ...heal.leaves import Unsplittable, bytes_of, take_out
from ...heal.out_of_memory import CacheRelease, drop_own_frames, let_go
from ...heal.soft_limit import wall_of
from ...observe.wrap import around_calls, uncounted
from ..observe.visibility import Unseen, modules_of, weights_of
from .around import Around
from .chunks import Call, cut_class
from .deferred import Deferring
from .memory_budget import DEVICES, memory_budget_of
from .split_state import SplitState

_LOOK_EVERY_SECONDS = 0.5
_COPIED_IN_CALM = 16 << 20  # bytes of buffers, in case a call fails and is made again
_CHANGED = "the call that failed had changed its inputs, weights, buffers or random numbers"
# These hand their call on to a model that they hold, with doings of their own around it that must happen once.
_WRAPPERS = ("DistributedDataParallel",)
_NOT_OURS = ("DataParallel", "FullyShardedDataParallel")
_SHARDED = ("DTensor", "FlatParameter")
_TRAINING = "the batch of %d did not fit: it is"
_EVALUATION = "the %d samples of an evaluation did not fit: they are"


class Split:
    """Stands around the calls of trained models."""

    def __init__(self, agent, torch, is_compiling):
        self.agent, self.torch, self.is_compiling = agent, torch, is_compiling
        self.inside, asked = False, os.environ.get(environment.SPLIT, "")
        self.asked = max(1, int(asked)) if asked.isdigit() else 1  # by a restart: chunks from the first step on
        self.states = {}  # id of a model -> what is known of it
        self.wrapped = set()
        self.reported = set()
        self.next_look = 0.0
        self.is_tensor = lambda thing: issubclass(type(thing), torch.Tensor)
        self.unseen = Unseen(torch)
        self.in_backward = getattr(torch._C, "_current_graph_task_id", lambda: -1)
        self.budgets, self.cache_release = {}, {}  # by device
        self.deferring = Deferring(self)
        self.optimizers = weakref.WeakSet()

    def memory_budget(self, device):
        """That of a device, one for all that act on it."""
        found = self.budgets.get(device)
        if found is None:
            found = self.budgets[device] = memory_budget_of(self.torch, device, wall_of(self.agent))
            self.cache_release[device] = CacheRelease(self.torch, device)
            if hasattr(found, "tidied"):
                found.tidied = lambda: self.agent.say("armed", act="split-batch", tidy=True)
        return found

    def watch(self, models, optimizer=None):
        """Stand around the calls of these models and of the modules that they may be called by."""
        if optimizer is not None:
            self.optimizers.add(optimizer)
        containers = (self.torch.nn.Module, self.torch.nn.ModuleList, self.torch.nn.ModuleDict)
        for model in models:
            for module in modules_of(model):
                cls = type(module)
                if cls not in self.wrapped and cls not in containers and (module is model or module._modules):
                    self.wrapped.add(cls)
                    around_calls(cls, functools.partial(self._around, cls))

    def _around(self, cls, own):
        is_compiling, grad_enabled, is_seen = self.is_compiling, self.torch.is_grad_enabled, self._is_seen

        @functools.wraps(cls.__call__)
        def __call__(module, *args, **kwargs):  # noqa: N807
            # Looked up anew each time: whoever traces puts a call of their own in its place, and what comes after this
            # class is another one for each that derives from it.
            inner = own or super(cls, type(module)).__call__  # type: ignore[misc]
            try:
                if is_compiling() or self.inside or is_seen():  # a compiler would hold us against what it asked first
                    return inner(module, *args, **kwargs)
                if grad_enabled():
                    return self.call(module, inner, args, kwargs)
                return self.evaluate(module, inner, args, kwargs)
            except BaseException as error:
                drop_own_frames(error)
                raise

        return __call__

    def _is_seen(self):
        """Tell whether somebody looks at each operation, or transforms the call: then it is not ours to touch."""
        torch = self.torch
        if not self.unseen.alone() or torch.autograd.forward_ad._current_level >= 0:
            return True
        if (
            self.in_backward() >= 0
        ):  # a part that is computed again there (torch.utils.checkpoint) belongs to that graph
            return True
        return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()

    # --- calls --------------------------------------------------------------------------------------------

    @uncounted
    def call(self, module, inner, args, kwargs):
        """The outermost call of a model that may have a gradient."""
        state, call = self._known(module), None
        if state is None:
            return inner(module, *args, **kwargs)
        args, kwargs = self.deferring.made_real(args, kwargs)
        try:
            if not state.is_calm(args, kwargs):
                call = self._opened(state, inner, args, kwargs, True)
            elif (now := monotonic()) >= self.next_look:
                self.next_look = now + _LOOK_EVERY_SECONDS
                state.look_again()
        except Exception as error:
            self.agent.guard.caught("split", error)
        if call is None:
            return self._full_batch(module, inner, args, kwargs)
        rows = state.rows_for(call)
        return self._in_chunks(call, rows, None, args, kwargs) if rows else self._watched(call, args, kwargs)

    @uncounted
    def evaluate(self, module, inner, args, kwargs):
        """The outermost call of a model without gradients: at once while it fits, and otherwise in chunks."""
        state = self._known(module)
        if state is None:
            return inner(module, *args, **kwargs)
        args, kwargs = self.deferring.made_real(args, kwargs)
        call = around = None
        try:
            if state.rows:
                call = self._opened(state, inner, args, kwargs, False)
            if call is None and not state.is_calm_evaluation(args, kwargs):
                around = Around(state, modules_of(module), _COPIED_IN_CALM)
        except Exception as error:
            self.agent.guard.caught("split", error)
        rows = state.rows_for(call) if call is not None else 0
        if rows:
            return self._in_chunks(call, rows, None, args, kwargs)
        try:
            with state.budget.wall:
                out = self._full_batch(module, inner, args, kwargs)
        except Exception as error:
            if not state.is_oom(error):
                raise
            failed = error
        else:
            if around is not None:
                self.agent.guard(state.was_evaluated)(args, kwargs)
            return out
        let_go(failed)
        try:
            state.ran_out(failed)
            # A call that was calm has left nothing behind, unless the model was in training.
            as_before = not module.training if around is None else self.agent.guard(around.undo)()
            if not as_before:
                self.report_declined(state, "an evaluation: %s" % _CHANGED)
                raise failed
            call = self.agent.guard(Call)(state, inner, args, kwargs, with_graph=False)
            if call is None:
                return self._once_more(state, inner, failed, args, kwargs)
            return self._in_chunks(call, 0, failed, args, kwargs)
        finally:
            del failed  # it knows this frame, and those above, with what they hold

    @uncounted
    def _full_batch(self, module, inner, args, kwargs):
        """As ever; what is called within it is its own affair."""
        self.inside = True
        try:
            return inner(module, *args, **kwargs)
        finally:
            self.inside = False

    def _opened(self, state, inner, args, kwargs, with_graph):
        """What a call is given; None where that is of a kind that is left alone."""
        call = Call(state, inner, args, kwargs, with_graph)
        strided = self.torch.strided
        is_plain = self.unseen.is_plain
        plain = all(is_plain(leaf) and leaf.layout is strided and not leaf.is_nested for leaf in call.leaves)
        return call if plain and call.size else None

    @uncounted
    def _watched(self, call, args, kwargs):
        """A call that may come near the limit: run as it is, and what it would take to run it again is known."""
        state, free = call.state, call.state.budget.free()
        around = self.agent.guard(Around)(state, modules_of(call.module), _COPIED_IN_CALM)
        if around is None:
            return self._full_batch(call.module, call.inner, args, kwargs)
        call.let_go()
        try:
            with state.budget.wall:
                out = self._full_batch(call.module, call.inner, args, kwargs)
        except Exception as error:
            if not state.is_oom(error):
                raise
            failed = error
        else:
            self.agent.guard(self._went_at_once)(call, free, out)
            return out
        let_go(failed)
        try:
            state.ran_out(failed)
            undone = self.agent.guard(around.undo)()
            if not call.takes_again() or not call.is_untouched() or not undone:
                state.decline(_CHANGED)
                raise failed
            return self._in_chunks(call, 0, failed, args, kwargs)
        finally:
            del failed

    def _went_at_once(self, call, free, out):
        given = []
        take_out(out, self.is_tensor, given)
        call.state.went_at_once(call, max(free - call.state.budget.free(), 1), bytes_of(given))

    def _in_chunks(self, call, rows, failed, args, kwargs):
        """Run a call in chunks; where that can't be, it is the user's own again, with the error that it had."""
        state, inner, around = call.state, call.inner, None
        try:
            around = Around(state, modules_of(call.module))
            with state.budget.wall:
                return self._joined(self._proven(call, args, kwargs), rows)
        except Unsplittable as error:
            why = str(error)
        except Exception as error:
            self.agent.guard.caught("split", error)
            let_go(error)
            why = "a chunk of it failed: %s" % type(error).__name__
        if around is not None:
            self.agent.guard(around.undo)()
        if call.with_graph:
            state.decline(why)
        else:
            self.report_declined(state, "an evaluation: %s" % why)
        call = None
        return self._once_more(state, inner, failed, args, kwargs)

    @uncounted
    def _once_more(self, state, inner, failed, args, kwargs):
        """As the user has it: with the error that it had, unless it met our wall, where the kernel may allow it."""
        if failed is not None and not state.budget.wall.at():
            raise failed from None
        return self._full_batch(state.module(), inner, args, kwargs)

    def _proven(self, call, args, kwargs):
        """The call, of which it is proven how its outputs join; with its samples along the second axis if need be."""
        state = call.state
        if call.with_graph:
            state.refresh()
        try:
            call.examine()
            return call
        except Unsplittable:
            if state.axis or not any(leaf.dim() > 1 for leaf in call.leaves):
                raise
            first = state.axis
            try:
                state.axis = 1
                other = Call(state, call.inner, args, kwargs, call.with_graph)
                other.examine()
                return other
            except Unsplittable:
                state.axis = first
            raise

    def _joined(self, call, rows):
        """The full batch's outputs: with gradients, as those of a node of its own in the user's graph."""
        found = self.deferring.outputs(call)
        if found is not None:
            return call.state.rebuild(call)(iter(found))
        if not call.with_graph:
            found = call.forward(rows)
        else:
            tensors = (*(call.leaves[n] for n in call.needing), *call.state.weights.weights)
            found = cut_class(self.torch).apply(call, functools.partial(call.forward, rows), *tensors)
        build, call.rebuild = call.rebuild, None  # it may hold what was put together, and so its graph
        return build(iter(found))

    # --- which models -------------------------------------------------------------------------------------

    def _known(self, module):
        """What is known of a model; None where it is nothing of ours, or was declined."""
        try:
            state = self.states.get(id(module)) or self._state(module)
        except Exception as error:
            self.agent.guard.caught("split", error)
            return None
        return state if state is not None and state.declined is None and state.module() is module else None

    def _state(self, module):
        if type(module).__name__ in _WRAPPERS:
            return None
        state = self.states[id(module)] = SplitState(self, module)
        # What is known of a model goes with it: it holds the weights, and a script may make one after the other.
        number = id(module)
        state.gone = weakref.ref(module, lambda _ref: self.states.pop(number, None))
        if state.device.type == "meta":
            state.declined = "its weights are not in memory"  # as long as nothing is computed, nothing is to be said
        elif not self.agent.heal:  # it has become one of several ranks since
            state.decline("several ranks train together")
        elif type(module).__name__ in _NOT_OURS or getattr(module, "_is_replica", False):
            state.decline("%s splits the batch itself" % type(module).__name__)
        elif any(type(weight).__name__ in _SHARDED for weight in weights_of(module)):
            state.decline("its weights lie on several devices")
        elif state.device.type not in DEVICES:
            state.decline("its weights lie on %s: a batch is split on a CPU or with CUDA alone" % state.device.type)
        return state

    def without_onednn(self):
        """From here on PyTorch's own functions are used, which come to the same within rounding."""
        if self.torch.backends.mkldnn.enabled:
            self.torch._C._set_mkldnn_enabled(False)
            text = "oneDNN found no memory for its code: PyTorch's own functions are used instead, which are slower"
            step = self.agent.beat.steps + 1
            self.agent.say("intervention", act="split-batch", keeps="exact", step=step, text=text)

    # --- reports ------------------------------------------------------------------------------------------

    def report_split(self, state, size, rows, with_graph):
        """Say what was done: once for each model and number of chunks."""
        chunks, words = -(-size // rows), _TRAINING if with_graph else _EVALUATION
        key = state.name, chunks, words
        if chunks < 2 or key in self.reported:
            return
        self.reported.add(key)
        text = (words + " run in %d chunks of up to %d") % (size, chunks, rows)
        self.agent.say(
            "intervention", act="split-batch", keeps=state.keeps, step=self.agent.beat.steps + 1, model=state.name,
            batch=size, rows=rows, because=state.because, text=text,
        )  # fmt: skip

    def report_declined(self, state, why):
        key = state.name, why
        if key not in self.reported:
            self.reported.add(key)
            step = self.agent.beat.steps + 1
            self.agent.say("declined", act="split-batch", step=step, model=state.name, because=why)
