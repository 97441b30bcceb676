"""What PyTorch's devices can tell without being made to wait: memory figures, losses and norms that come back late.

A value on a GPU is copied into pinned memory on the stream's own time, and read when its event has passed. Nothing
here ever synchronises.
"""

from time import monotonic

from ....facts import framework_build
from ...observe.rosetta import is_translated

_LOSS_EVERY = 0.5
_NORM_EVERY = 10.0
_NORM_SHARE = 1000  # a norm may cost a thousandth of the time at most
_NORM_ELEMENTS = 50_000_000  # on the CPU, where every element is read by the thread that trains


class _Late:
    """One value on its way from the device."""

    __slots__ = ("event", "host", "kind", "step")

    def __init__(self, host, event):
        self.host, self.event = host, event
        self.step, self.kind = 0, ""


class Device:
    def __init__(self, torch, beat, guard):
        self.torch = torch
        self.beat = beat
        self.guard = guard
        self.next_loss = 0.0
        self.free = []
        self.late = []
        self.used_cuda = False
        self.came_back = None  # told each loss that is back

    # --- losses -------------------------------------------------------------------------------------------

    def loss(self, tensor, step):
        """Have a loss on a device come back later, at most twice a second."""
        if self.late:
            self._collect()
        now = self.beat.since * 1e-9
        if now < self.next_loss:
            return
        self.next_loss = now + _LOSS_EVERY
        if tensor.numel() == 1:
            self._send(tensor, step, "loss")

    def _send(self, tensor, step, kind):
        torch = self.torch
        if not tensor.is_cuda or torch.cuda.is_current_stream_capturing():
            return  # other devices: no way is known to read without making them wait
        if len(self.late) >= 8:
            return  # the device is far behind; what is under way is enough
        self.used_cuda = True
        late = self.free.pop() if self.free else None
        if late is None:
            late = _Late(torch.empty((), dtype=torch.float32, pin_memory=True), torch.cuda.Event())
        late.step, late.kind = step, kind
        with torch.no_grad():
            late.host.copy_(tensor.detach().reshape(()), non_blocking=True)
        late.event.record()
        self.late.append(late)

    def _collect(self):
        while self.late and self.late[0].event.query():
            late = self.late.pop(0)
            value = float(late.host)
            if late.kind == "loss":
                self.beat.late(late.step, loss=value)
                if self.came_back is not None:
                    self.came_back(value, late.step)
            else:
                self.beat.late(late.step, grad_norm=value)
            self.free.append(late)

    # --- gradient norms -----------------------------------------------------------------------------------

    def norm(self, optimizer, step, adapter):
        """The norm of all gradients, rarely, and no more than a thousandth of the run's time."""
        torch = self.torch
        begun = monotonic()
        adapter.next_norm = int((begun + _NORM_EVERY) * 1e9)
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if not gradients or any(g.is_sparse or g.device != gradients[0].device for g in gradients):
            return
        on_cpu = gradients[0].is_cpu
        if on_cpu and sum(g.numel() for g in gradients) > _NORM_ELEMENTS:
            return
        if not on_cpu and (not gradients[0].is_cuda or torch.cuda.is_current_stream_capturing()):
            return
        with torch.no_grad():
            total = torch.stack([n.float() for n in torch._foreach_norm(gradients)]).norm()
        if on_cpu:
            self.beat.late(step, grad_norm=total.item())
        else:
            self._send(total, step, "norm")
        cost = monotonic() - begun
        adapter.next_norm = int((begun + max(_NORM_EVERY, cost * _NORM_SHARE)) * 1e9)

    # --- memory -------------------------------------------------------------------------------------------

    def read(self):
        """The allocator's own figures, once a second."""
        torch = self.torch
        if self.late:
            self._collect()
        if torch.cuda.is_initialized():
            for index in range(min(torch.cuda.device_count(), 8)):
                stats = torch._C._cuda_memoryStats(index)
                allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
                if not allocated["peak"]:
                    continue
                self.beat.device(
                    allocated=allocated["current"],
                    reserved=reserved["current"],
                    peak=allocated["peak"],
                    retries=stats["num_alloc_retries"],
                    ooms=stats["num_ooms"],
                    index=index,
                )
        mps = getattr(torch, "mps", None)
        if mps is not None and torch.backends.mps.is_available():
            self.beat.device(allocated=mps.current_allocated_memory(), driver=mps.driver_allocated_memory())


# --- What PyTorch computes with, which is not seen from outside

_MAX_REPORTS = 5


class Settings:
    """Reports threads, device and build, once and when they change."""

    def __init__(self, agent, torch):
        self.agent = agent
        self.torch = torch
        self.known = None
        self.reports = 0

    def report(self, optimizer):
        """After a step, when the pools exist: asking earlier would set them up."""
        threads = self.torch.get_num_threads(), self.torch.get_num_interop_threads()
        weights = optimizer.param_groups[0]["params"] if optimizer is not None else ()
        device = weights[0].device.type if weights else ""
        if (*threads, device) != self.known and self.reports < _MAX_REPORTS:
            self.known = (*threads, device)
            self.reports += 1
            fields = {"intra_op": threads[0], "inter_op": threads[1], "built_for": framework_build.of_torch(self.torch)}
            if device:
                fields["device"] = device
            if is_translated():
                fields["translated"] = True
            self.agent.say("settings", framework="torch", **fields)
