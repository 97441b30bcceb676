"""PyTorch on CPU, CUDA and MPS: steps from the optimizers, phases from loader, model, backward and optimizer.

What is patched, and why nothing gentler does:
- `_BaseDataLoaderIter.__next__`: the time a step waits for data; loaders offer no hook.
- `Tensor.backward`: backward's time and the loss; it is one call per step and never traced by the compiler.
- the class of a trained model, `__call__` of it alone: forward's time, the batch's shape, evaluation under
  `no_grad`. PyTorch's global module hooks would slow down every submodule, hooks on the instance would be
  pickled with it. Under the compiler the patch steps aside.
- `Optimizer.__init__`, `DataLoader.__init__`, `Module.__init__`: who was made where.
- `Module.train`: evaluation begins and ends; `torch.save`: a checkpoint.
- `GradScaler.scale`: the loss before scaling; `clip_grad_norm_`: a norm that was computed anyway.
Steps come through PyTorch's own global optimizer hooks; where a script has no optimizer and updates its weights by
itself, each backward is a step. Whatever the compiler may meet asks it first, which costs it
nothing, and is then as if it were not there; whatever asks a tensor for anything asks `visibility` first.
"""

import ctypes
import functools
import os
from importlib import import_module
from math import inf, nan
from time import monotonic

from ....record import environment
from ....record import ring_format as f
from ...observe import saves
from ...observe.batch_shapes import BatchShapes
from ...observe.saves import saves_of
from ...observe.step_calls import anatomy_of
from ...observe.turns import Turns
from ...observe.wrap import StepErrors, around_calls, drop_own_frame, keep_out_of_pickles, timed, uncounted
from ..heal.arm import Healing
from ..nonfinite.watch import NanWatch
from ..ranks.watch import RankWatch
from ..retained import objects
from . import compiler, device, loss_and_norm, schedule
from .compiles import Compiles
from .creations import Births
from .visibility import Unseen, weights_of

WAITS_FOR = ("torch",)
_MAX_TRAINED = 200_000  # parameters
_BY_HAND = 4  # backwards without an optimizer or anyone else who counts, after which they are the steps
_WITHIN = 4  # backwards of one step, after which memory is looked at before its end


def install(agent, torch):
    """Patch this PyTorch; returns the reason when it is too old to be known."""
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if version < (2, 2):
        return "PyTorch %s is older than 2.2" % torch.__version__
    _Adapter(agent, torch).patch()
    agent.exit_hooks.watch_exit_calls()
    return None


class _Adapter:
    def __init__(self, agent, torch):
        self.agent = agent
        self.torch = torch
        self.guard = agent.guard
        self.beat = agent.beat
        self.trained = set()  # ids of parameters that an optimizer holds
        self.births = Births(agent, torch)
        self.by_hand = 0  # backwards so far that no optimizer is there for; -1 once there is one
        self.counted = 0  # steps when the last of them was counted
        self.wrapped = set()  # model classes whose calls are timed
        self.raised_through = StepErrors(agent, self.beat).raised_through
        self.loss = nan
        self.batch = 0
        self.shape = None
        self.unscaled = None
        self.grad_norm = nan
        self.known = 0  # what of loss and norm is a reading: the flags of a slot
        self.rate = nan
        self.next_rare = 0
        self.next_norm = self.beat.since + 2_000_000_000
        # PyTorch 2.2 has it under another name; the compiler takes both for a constant
        self.is_compiling = getattr(torch.compiler, "is_compiling", None) or torch._utils.is_compiling
        self.is_traced = getattr(torch.compiler, "is_dynamo_compiling", self.is_compiling)  # asked at every step
        self.unseen = Unseen(torch)
        self.device = device.Device(torch, self.beat, self.guard)
        agent.exit_hooks.last_acts.insert(0, self.guard(self._last_loss))
        self.nan = NanWatch(agent, torch, self)
        self.plan = agent.plan = schedule.Plan(agent, self.nan.samples)
        self.batches = BatchShapes(agent)
        self.compiles = Compiles(agent, torch)
        self.look = anatomy_of(agent)
        self.settings = device.Settings(agent, torch)
        self.healing = Healing(self) if agent.heal else None

    def patch(self):
        self.births.patch(self._learn, self.unseen.by_function_modes)
        if environment.PLAN in os.environ:
            self.guard(self._watch_for_plan)()
        if self.healing is not None:
            self.healing.begin()
        objects.join(self.agent, self.torch)
        keep_out_of_pickles(self.agent.hook)
        self._patch_loader()
        self._patch_backward()
        self._patch_optimizers()
        self._patch_mode()
        self._patch_save()
        loss_and_norm.patch(self)
        compiler.watch(self)
        self.guard(self.compiles.patch)()
        self.guard(RankWatch(self.agent, self.torch, self.beat).patch)()

    def _watch_for_plan(self):
        """`holter plan` is at work: the first steps are watched, and the script ends with them."""
        import_module("_holter.planner.torch.first_steps").PlanWatch(self.agent, self.torch).patch()

    # --- what is trained ----------------------------------------------------------------------------------

    def _learn(self, optimizer):
        """Find the models that this optimizer trains, and time the calls of their classes."""
        self.by_hand = -1
        self.beat.open()
        self.agent.greet("trainer")
        with self.unseen.by_function_modes():
            self._learn_models(optimizer)

    def _learn_models(self, optimizer):
        mine = {id(p) for group in optimizer.param_groups for p in group["params"]}
        self.nan.learn(optimizer)
        if self.healing is None and mine <= self.trained:
            return  # made anew for the same parameters
        self.births.count()
        if len(self.trained) > _MAX_TRAINED:
            self.trained.clear()  # a script that makes its optimizer anew at every step must not make us grow
        self.trained |= mine
        models = list(self.births.models_with(mine))
        if self.healing is not None:
            self.healing.watch(models, optimizer)
        for model in models:
            self._time_calls(type(model))

    def _updates_by_hand(self):
        """After a backward in a script that has made no optimizer."""
        beat = self.beat
        if beat.steps != self.counted:
            self.by_hand = -1  # another framework counts its steps, or the script does
            return
        self.by_hand = done = self.by_hand + 1
        if done < _BY_HAND:
            return
        if done == _BY_HAND:
            beat.open()
            self.agent.greet("trainer")
            with self.unseen.by_function_modes():
                models = self.births.models_with_gradients()
            for model in models:
                self._time_calls(type(model))
        n = done if done == _BY_HAND else 1
        if not beat.skip(n):
            beat.step(self.loss, nan, nan, self.batch, self.known, n)
            if self.look.on:
                self.look.step_ended()
            if beat.since >= self.next_rare:
                self._rare(None, beat.since)
        self.counted = beat.steps

    def _time_calls(self, cls):
        if cls in self.wrapped or cls is self.torch.nn.Module:
            return
        self.wrapped.add(cls)
        around_calls(cls, functools.partial(self._timed_call, cls))

    def _timed_call(self, cls, own):
        beat, enter, guard, raised, look = self.beat, self.beat.enter, self.guard, self.raised_through, self.look
        is_traced, grad_enabled, alone = self.is_traced, self.torch._C.is_grad_enabled, self.unseen.alone
        is_compiling, notice, called = self.is_compiling, self._notice_batch, self.nan.batch.called
        heal = self.agent.heal

        @functools.wraps(cls.__call__)
        def __call__(module, *args, **kwargs):  # noqa: N807
            if is_traced():
                if own is None:
                    return super(cls, module).__call__(*args, **kwargs)  # type: ignore[misc]
                return own(module, *args, **kwargs)
            phase = -1
            try:
                if beat.skim and not heal:
                    beat.skim -= 1
                elif not is_compiling():
                    training = grad_enabled()
                    if training:
                        called(module, args, kwargs)
                        if look.due:
                            look.begin()
                    if beat.skim:
                        beat.skim -= 1
                    elif beat.phase == 3 or beat.phase == 6:  # FORWARD: a part of what is timed already; VALIDATION
                        beat.alive()
                    else:
                        phase = enter(3 if training else 6)
                        if alone():
                            notice(args, kwargs)  # before the call: it may be the one that does not fit
            except Exception as error:
                guard.caught("call", error)
            try:
                if own is None:
                    # Looked up at each call: torch.fx replaces `Module.__call__` for the time of a trace.
                    result = super(cls, module).__call__(*args, **kwargs)  # type: ignore[misc]
                else:
                    result = own(module, *args, **kwargs)
            except BaseException as error:
                raised(error)
                raise
            finally:
                if phase >= 0:
                    enter(phase and 1)
            return result

        return __call__

    def _notice_batch(self, args, kwargs):
        is_plain = self.unseen.is_plain
        tensors = [thing for thing in (*args, *kwargs.values()) if is_plain(thing)][:8]
        if not tensors or tensors[0].shape == self.shape:
            return
        self.shape = shape = tensors[0].shape
        self.batch = int(shape[0]) if len(shape) else 0
        shapes = [[list(t.shape), str(t.dtype)] for t in tensors]
        self.batches.saw(self.beat.steps + 1, shapes, self.nan.samples.of_batch)

    # --- the phases ---------------------------------------------------------------------------------------

    def _patch_loader(self):
        from torch.utils.data import DataLoader
        from torch.utils.data.dataloader import _BaseDataLoaderIter

        beat, enter, guard, plan, raised = self.beat, self.beat.enter, self.guard, self.plan, self.raised_through
        inner_next, inner_iter = _BaseDataLoaderIter.__next__, DataLoader.__iter__
        self.nan.samples.patch(_BaseDataLoaderIter)
        samples = self.nan.samples
        looks, look, alone = self.agent.retained, self.look, self.unseen.alone

        @functools.wraps(inner_next)
        def __next__(iterator):  # noqa: N807
            phase = -1
            try:
                samples.draws += 1
                if beat.skim:
                    beat.skim -= 1
                elif beat.phase == 6:  # VALIDATION
                    beat.alive()
                    looks.tick(beat.steps)
                else:
                    phase = enter(2)  # DATA
                if look.on:
                    look.counted.pause()  # a dataset's own operations are no part of the computation
                return inner_next(iterator)
            except BaseException as error:
                samples.draws -= 1
                if look.on:
                    look.end()
                raised(error)
                raise
            finally:
                if look.on:
                    look.counted.resume()
                if phase >= 0:
                    enter(phase and 1)  # OTHER, or still START
                    plan.drew_from = id(iterator)
                    samples.drew_from(iterator)

        @functools.wraps(inner_iter)
        def __iter__(loader):  # noqa: N807
            # Starting workers is waiting for data; before the first step it may be done by a loop of any kind.
            phase = enter(2) if beat.phase == 1 and not beat.skim else -1
            try:
                iterator = inner_iter(loader)
            except BaseException as error:
                drop_own_frame(error)
                raise
            finally:
                if phase >= 0:
                    enter(1)
            try:
                if not alone():
                    return iterator  # the length of a dataset may be asked of a tensor
                plan.pass_begins(loader, iterator)
                if beat.phase != 6:  # VALIDATION
                    samples.drew_from(iterator)
                self.nan.device.draws_from(loader)
            except Exception as error:
                guard.caught("loader", error)
            return iterator

        _BaseDataLoaderIter.__next__ = uncounted(__next__)
        DataLoader.__iter__ = uncounted(__iter__)

    def _patch_backward(self):
        tensor_class = self.torch.Tensor
        inner = tensor_class.backward
        beat, enter, guard, raised = self.beat, self.beat.enter, self.guard, self.raised_through
        saw, graded, failed = self.nan.loss, self.nan.after_backward, self.nan.backward_failed
        look, alone, number = self.look, self.unseen.alone, self.unseen.number
        history, losses = self.nan.history, self.nan.history.losses
        has_function = self.torch.overrides.has_torch_function_unary
        single, read = self.torch.float32, ctypes.c_float.from_address

        @functools.wraps(inner)
        def backward(tensor, *args, **kwargs):
            phase, seen, usual = -1, False, False
            try:
                # Before the backward: at a loss that is non-finite its graph is looked at, and backward frees it. Of a
                # skimmed step's loss that is asked first which backward itself will ask: other code would be cold.
                if (
                    beat.skim
                    and type(tensor) is tensor_class
                    and not has_function(tensor)
                    and tensor.dtype is single
                    and tensor.numel() == 1
                    and tensor.is_cpu
                    and (at := tensor.data_ptr())
                    and -inf < (loss := read(at).value) <= history.usual
                ):
                    # Most losses are like those before them: no more is done. Gradients that are non-finite under such
                    # a loss show in the next one.
                    losses.append(loss)
                    self.loss = loss
                    usual = True
                elif type(tensor) is tensor_class and alone():
                    seen = True
                    loss = number(tensor) if self.unscaled is None else None
                    if loss is not None:
                        self.loss = loss
                        self.known |= 1
                        saw(tensor, loss)
                        if loss - loss != 0.0:  # infinite or NaN
                            beat.bad(beat.steps + 1)
                    else:
                        self._loss_elsewhere(tensor)
            except Exception as error:
                guard.caught("loss", error)
            try:
                if beat.skim:
                    beat.skim -= 1
                else:
                    phase = enter(4)  # BACKWARD
                result = inner(tensor, *args, **kwargs)
            except BaseException as error:
                raised(error)
                guard(failed)(tensor, error)
                raise
            finally:
                if phase >= 0:
                    # What follows up to the step's end is the optimizer's: unscaling, clipping, the update. It also
                    # ends a validation, whatever mode the model was left in.
                    enter(5)
            try:
                if seen:
                    graded(tensor)
                    if look.on:
                        look.graph(tensor)
                if not usual:
                    beat.words[10] += 1  # W_BACKWARDS: a step of many is soon not skimmed any more
                if self.by_hand >= 0:
                    self._updates_by_hand()
                elif phase >= 0 and beat.since >= self.next_rare and beat.words[10] >= _WITHIN:
                    self.agent.retained.tick(beat.steps)
            except Exception as error:
                guard.caught("gradient", error)
            return result

        tensor_class.backward = uncounted(backward)

    def _last_loss(self):
        """At the end: the loss of a last step that was only counted."""
        if self.known & 1:
            self.beat.note(self.loss)

    def _loss_elsewhere(self, tensor):
        """A loss that was scaled, or that lies on a device and comes back later."""
        if self.unscaled is not None:
            scaled, plain = (ref() for ref in self.unscaled)
            tensor = plain if scaled is tensor and self.unseen.is_plain(plain) else tensor
            self.unscaled = None
        loss = self.unseen.number(tensor)
        if loss is not None:
            self.loss = loss
            self.known |= 1
            self.nan.loss(tensor, loss)
            if loss - loss != 0.0:
                self.beat.bad(self.beat.steps + 1)
        elif not tensor.is_cpu:
            self.known &= 2
            self.nan.device.loss(tensor, self.beat.steps + 1)
            self.device.loss(tensor, self.beat.steps + 1)

    def _patch_optimizers(self):
        from torch.optim.optimizer import register_optimizer_step_post_hook

        beat, guard, turns, look = self.beat, self.guard, Turns(), self.look
        is_traced, is_compiling = self.is_traced, self.is_compiling

        def after(optimizer, _args, _kwargs):
            if is_traced():
                return
            try:
                n = 1
                if id(optimizer) != turns.alone:
                    if is_compiling():
                        return
                    n = turns.counts(optimizer)
                    if not n:
                        return
                    if turns.newcomer:
                        self._learn(optimizer)
                if beat.skip(n):
                    return
                beat.step(self.loss, self.rate, self.grad_norm, self.batch, self.known, n)
                if self.known & 2:
                    self.known = 0
                if look.on:
                    look.step_ended()
                if beat.since >= self.next_rare:
                    self._rare(optimizer, beat.since)
            except Exception as error:
                guard.caught("after step", error)

        register_optimizer_step_post_hook(after)
        compiler.keep_hook(self, after)

    def _rare(self, optimizer, now):
        """About once a second, sooner at first: what need not be known at every step."""
        self.next_rare = self.beat.next_look(now)
        self.plan.stepped(self.beat)
        if optimizer is not None:
            self._read_rate(optimizer)
            if now >= self.next_norm and self.unseen.may_compute():
                self.device.norm(optimizer, self.beat.steps, self)
        with self.unseen.by_function_modes():
            self.device.read()
            if self.births.newborn:
                self.births.count()
            self.agent.census.report(monotonic())
            self.agent.retained.tick(self.beat.steps)
            self.compiles.report()
            self.look.rarely()
            self.settings.report(optimizer)
            saves_of(self.agent).look()
        if self.healing is not None:
            self.healing.rarely()

    def _read_rate(self, optimizer):
        rate = next((group.get("lr") for group in optimizer.param_groups), None)
        if isinstance(rate, float):
            self.rate = rate
        elif self.unseen.alone():  # a tensor: one on a device is not read
            rate = self.unseen.number(rate) if self.unseen.is_plain(rate) else rate
            self.rate = float(rate) if isinstance(rate, (int, float)) else nan

    def _patch_mode(self):
        module_class = self.torch.nn.Module
        inner = module_class.train
        beat, guard, trained, is_compiling = self.beat, self.guard, self.trained, self.is_compiling

        @functools.wraps(inner)
        def train(module, mode=True):
            try:
                result = inner(module, mode)
            except BaseException as error:
                drop_own_frame(error)
                raise
            if is_compiling():
                return result
            try:
                phase = beat.phase
                if phase == 6 and mode:
                    if _has_any(module, trained):
                        beat.enter(1)
                elif not mode and phase == 1 and _has_any(module, trained):
                    beat.enter(6)  # VALIDATION
            except Exception as error:
                guard.caught("train/eval", error)
            return result

        module_class.train = uncounted(train)

    def _patch_save(self):
        saves_of(self.agent).around(self.torch, "save", _where_saved, saves.report_failure)
        timed(self.torch, "save", self.beat, f.CHECKPOINT)


def _where_saved(_obj, f, *_args, **_kwargs):
    return f


def _has_any(module, ids):
    return id(next(weights_of(module), None)) in ids  # the first is enough: a model is trained or it is not
