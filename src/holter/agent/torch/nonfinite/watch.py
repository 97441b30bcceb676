"""The first loss or gradient of PyTorch's that is non-finite: seen at its step, and looked at once.

Nothing is looked at while the losses are numbers, but each loss on the CPU (it is read anyway) and one small gradient.
At the first that is none, before its backward: the look of `look`. Then an event says what was seen. No
reference of ours outlives the look but weak ones.
"""

import ctypes
import struct
import sys
import weakref
from math import inf
from typing import Any

from ...core import frame_locals
from ...core.user_frame import is_user_file
from ...observe.loss_history import History, short
from .batch import Batch, Samples
from .look import Look
from .watch_cuda import DeviceNan

_FRAMES = 40
_COLLAPSED = 1e-3  # a loss scale that has been halved this far
_RETURNED_NAN = "returned nan values"


class NanWatch:
    """Sees every loss; looks once."""

    def __init__(self, agent, torch, adapter):
        self.agent = agent
        self.guard = agent.guard
        self.torch = torch
        self.adapter = adapter
        self.history = History(lambda: agent.say("nan-over", step=adapter.beat.steps + 1), every=bool(agent.heal))
        self.batch = Batch(torch)
        self.samples = Samples(agent.guard)
        self.look = Look(torch, adapter, self.batch, self.samples)
        self.device = DeviceNan(torch, self)
        adapter.device.came_back = self.device.came_back
        self.optimizers = []
        self.pilot = Pilot(torch, adapter.unseen)
        self.scalers = []
        self.scaled = 0
        self.seen = {}  # what the last look has found
        self.heal = None  # under --heal: told of each that is non-finite
        agent.exit_hooks.last_acts.insert(0, self.guard(self.at_end))
        agent.exit_hooks.exit_called.append(self.guard(self.at_exit_call))

    # --- at every step ------------------------------------------------------------------------------------

    def learn(self, optimizer):
        """An optimizer steps for the first time: one small gradient of its first layers stands for all."""
        if all(ref() is not optimizer for ref in self.optimizers):
            alive = [ref for ref in self.optimizers if ref() is not None]
            self.optimizers = [*alive[-7:], weakref.ref(optimizer)]
        self.pilot.choose(optimizer)

    def loss(self, tensor, loss):
        """A loss before its backward; `tensor` still has its graph."""
        if loss - loss == 0.0:
            self.history.add(loss)
            if loss > self.history.alarm and self.adapter.unseen.may_compute() and self.history.wants_spike():
                self.history.spikes.append(self.look.spike(loss, sys._getframe(2)))
        else:
            if self.history.wants_look():
                self._look("loss", tensor, loss, sys._getframe(2))
            if self.heal is not None:
                self.heal.met(loss, sys._getframe(2))

    def scales(self, scaler, outputs):
        """A loss scaler is at work: it judges the gradients, and skips steps on purpose."""
        if all(ref() is not scaler for ref in self.scalers):
            self.scalers = [weakref.ref(scaler)]
            self.history.every, self.history.usual = True, -inf  # what is gone back from is the scaled loss
        self.scaled += 1
        if self.scaled & 15:
            return
        scale = getattr(scaler, "_scale", None)
        scale = self.adapter.unseen.number(scale) if scale is not None else None
        if scale is not None and scale < _COLLAPSED:
            if self.history.wants_look():
                # Every step of many was skipped: the losses are numbers, and nothing is trained any more.
                self.history.numb = True
                self._look("gradient", outputs, self.adapter.loss, sys._getframe(2))
            if self.heal is not None:
                self.heal.acts.collapsed(scale)

    def after_backward(self, tensor):
        """One gradient after a backward, where no loss scaler will judge it."""
        if not self.scalers and self.pilot.is_bad():
            if self.history.wants_look():
                self._look("gradient", tensor, self.adapter.loss, sys._getframe(2))
            if self.heal is not None:
                self.heal.met(self.adapter.loss, sys._getframe(2))

    def backward_failed(self, tensor, error):
        """Anomaly detection raises where a gradient is non-finite."""
        if isinstance(error, RuntimeError) and _RETURNED_NAN in str(error) and self.history.wants_look():
            self._look("gradient", tensor, self.adapter.loss, sys._getframe(2))

    # --- at the end ---------------------------------------------------------------------------------------

    def at_end(self):
        """A script that checks its loss itself raises before any backward: the traceback still holds it."""
        self.device.collect()
        traceback = getattr(sys, "last_traceback", None)
        frames = []
        while traceback is not None:
            frames.append(traceback.tb_frame)
            traceback = traceback.tb_next
        self._look_into(frames[::-1])

    def at_exit_call(self, frame):
        """The same for a script that calls for the exit."""
        frames = []
        while frame is not None:
            frames.append(frame)
            frame = frame.f_back
        self._look_into(frames)

    def _look_into(self, frames):
        if not self.history.well or not self.adapter.beat.open_:
            return
        for frame in frames[:_FRAMES]:
            if not is_user_file(frame.f_code.co_filename):
                continue
            for value in frame_locals.read(frame).values():
                if is_bad_loss(self.torch, value) and self.history.wants_look():
                    self._look("loss", value, value.item(), frame)
                    if self.heal is not None:
                        self.heal.acts.too_late()
                    return
        # A loop at the top of the script that was left with `break`: its last loss is still there.
        for name, value in list(vars(sys.modules.get("__main__", sys)).items()):
            if "loss" in name.lower() and is_bad_loss(self.torch, value) and self.history.wants_look():
                self._look("loss", value, value.item(), sys._getframe(1))
                return

    def _look(self, what, tensor, loss, frame):
        try:
            if not self.adapter.unseen.may_compute():
                self.agent.say("nan", step=self.adapter.beat.steps + 1, what=what, loss=short(loss), framework="torch")
                return
            self.seen = self.look.seen(what, tensor, loss, frame, self)
            self.agent.say("nan", **self.seen)
        except Exception as error:
            self.guard.caught("nan", error)


def is_bad_loss(torch, value):
    """True for one number on the CPU that was computed through a graph and is non-finite."""
    if not isinstance(value, torch.Tensor) or not value.requires_grad or value.grad_fn is None:
        return False
    return value.is_cpu and value.numel() == 1 and not bool(torch.isfinite(value.detach()).all())


# --- One small gradient that stands for all of them: read after every backward, so reading it must cost next to
# nothing
# Best a bias or a norm's weight of the first layers: each of its elements belongs to another unit, and what is non-
# finite further on reaches some of them. A few elements are read where they lie, which takes less than a microsecond;
# to have PyTorch add up the whole takes five.

_MAX_ELEMENTS = 4096  # elements of a gradient that may be added up at every step
_FIRST = 64  # parameters among which it is chosen
_READ = 16  # elements that are read where they lie
_MIN_ELEMENTS = 4


class Pilot:
    """A parameter on the CPU, weakly, and how its gradient is read."""

    def __init__(self, torch, unseen):
        self.torch = torch
        self.unseen = unseen
        self.ref = _nothing
        self.type = None
        self.view = None  # its first elements as plain memory, or None where PyTorch is to add up all of them
        self.unpack: "Any" = None
        self.elements = 0

    def choose(self, optimizer):
        """Take one of these parameters, unless there is one already."""
        if self.ref() is not None:
            return
        self.view = None
        params = [p for group in optimizer.param_groups for p in group["params"]][:_FIRST]
        small = [p for p in params if p.is_cpu and _MIN_ELEMENTS <= p.numel() <= _MAX_ELEMENTS] or [
            p for p in params if p.is_cpu and 0 < p.numel() <= _MAX_ELEMENTS
        ]
        if not small:
            return
        flat = [p for p in small if p.dim() == 1]
        chosen = (flat or small)[0]
        code = {self.torch.float32: "f", self.torch.float64: "d"}.get(chosen.dtype) if flat else None
        if code is not None:
            self.elements = min(_READ, chosen.numel())
            first = struct.Struct("%d%s" % (self.elements, code))
            self.unpack, self.view, self.type = first.unpack_from, ctypes.c_char * first.size, chosen.dtype
        self.ref = weakref.ref(chosen)

    def is_bad(self):
        """Tell whether its gradient is infinite or NaN."""
        chosen = self.ref()
        if chosen is None:
            return False
        gradient = chosen.grad
        if gradient is None:
            return False
        at = self.unseen.address_of(gradient)
        if not at:
            return False  # the model has moved to a device, say: there the loss alone is asked
        if self.view is not None and gradient.dtype is self.type and gradient.is_contiguous():
            if gradient.numel() < self.elements:
                return False
            total = sum(self.unpack(self.view.from_address(at)))
        elif gradient.layout is self.torch.strided and self.unseen.may_compute():
            total = gradient.sum().item()
        else:
            return False
        return total - total != 0.0


def _nothing():
    return None
