"""When a good state is kept (PyTorch), and which one to go back to.

Copies may take a four-hundredth of the time. One is taken only of a state that is good: weights and moments are
finite, and the loss is not far above the lowest level that it had. A loss that runs away would otherwise be copied on
its way up.
"""

from time import monotonic_ns

from ...heal.copy_budget import allowance, copies
from ...heal.nonfinite_reason import Level
from .snapshot import CantCopy, Snapshot, State, first_bad

_COPY_SHARE = 400  # copies may take one part in so many of the time
_NEVER = 1 << 62


class GoodStates:
    """Keeps the last good state of all that is trained."""

    def __init__(self, torch, watch, births):
        self.torch, self.watch, self.births = torch, watch, births
        self.snapshot: "Snapshot | CudaCopies" = Snapshot(torch)
        self.next_at = 0  # on the heartbeat's clock
        self.declined = "none has been kept yet"
        self.level = Level()
        self.undone = 0
        self.size = 0  # bytes of the host's memory that are taken
        self.cuda = None
        self.took = None  # ns that the last copy took
        self.busy = False  # a copy is under way on a device
        self.begun = {}  # step -> when its copy was begun, of the last few
        copies.add(self)

    @property
    def step(self):
        return self.snapshot.step

    def age(self):
        """Seconds since the last good state."""
        begun = self.begun.get(self.step)
        return (monotonic_ns() - begun) / 1e9 if begun is not None else float("inf")

    def keep(self, step, losses):
        """Copy the present state, where it is good and there is memory for it."""
        begun = monotonic_ns()
        if self._capturing():
            return
        try:
            state = self._state()
            if self._fits(state) and self.level.holds(losses):
                self._copy(state, step)
                self.begun = {**{at: when for at, when in self.begun.items() if at >= self.step}, step: begun}
        except CantCopy as error:
            self._never(str(error))
            return
        except Exception as error:
            self._never("%s: %s" % (type(error).__name__, str(error)[:200]))
            raise
        took = monotonic_ns() - begun
        if self.took is None:
            took //= 20  # the first makes its tensors as well
        self.took = took
        self.next_at = max(self.next_at, begun + max(took, self.cuda.last if self.cuda else 0) * _COPY_SHARE)

    def _copy(self, state, step):
        if self.cuda is not None:
            self.cuda.poll()
            if self.cuda.flight is None and self.cuda.prepare(state):
                self.cuda.begin(state, step)
                self.busy = self.cuda.flight is not None
        elif first_bad(self.torch, [*state.weights.values(), *state.moments.values()]) is None:
            self.snapshot.take(state, step)

    def _fits(self, state):
        places = sorted(map(str, state.devices))
        kind = places[0].split(":")[0] if len(places) == 1 else ""
        if kind == "cuda" and self.cuda is None:
            self.cuda = self.snapshot = CudaCopies(self.torch)
        elif kind == "cpu" and self.cuda is not None:
            self.snapshot, self.cuda, self.busy = Snapshot(self.torch), None, False
        here = kind == "cpu" or (kind == "cuda" and places[0] == "cuda:%d" % self.torch.cuda.current_device())
        if not here:
            self._never("the weights lie on %s" % " and ".join(places))
            return False
        size = self.cuda.size(state) if self.cuda else state.size()
        if size != self.size and size > self.size + allowance():
            self._never("its copy of %d MB is more than memory has room for" % (size >> 20))
            return False
        self.size = size
        return True

    def _capturing(self):
        """A graph of the device's work is being recorded: what is done now would become a part of it."""
        cuda = self.torch.cuda
        return cuda.is_initialized() and cuda.is_current_stream_capturing()

    def _never(self, because):
        self.next_at = _NEVER
        self.declined = because

    def wait(self):
        """Before the weights change: a copy of them that is under way on a device comes first."""
        if self._capturing():
            return
        self.cuda.wait()
        self.cuda.poll()
        self.busy = self.cuda.flight is not None

    def _state(self):
        optimizers = [optimizer for ref in self.watch.optimizers if (optimizer := ref()) is not None]
        trained = {id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
        scalers = [scaler for ref in self.watch.scalers if (scaler := ref()) is not None]
        return State(self.torch, optimizers, list(self.births.models_with(trained)), scalers)

    def why_not(self):
        """Why there is nothing to go back to; empty when there is."""
        if self.snapshot.step and self.snapshot.is_of(self._state()):
            return ""
        return self.declined if self.next_at == _NEVER else "none of this model has been kept yet"

    def go_back(self, undone):
        """Make the last good state the present one."""
        self.undone = undone
        self.snapshot.put_back(self._state())

    def mend(self):
        """Put back running statistics that a bad batch has spoilt; how many."""
        state = self._state()
        if not state.buffers or not self.snapshot.is_of(state):
            return 0
        return self.snapshot.mend(state, lambda tensor: first_bad(self.torch, [tensor]) is not None)

    def release(self):
        """Memory is running out: the copy is let go, and no other is made."""
        if self.size:
            self.forget("its copy was dropped near the memory limit")

    def forget(self, because="healing of it has ended"):
        """Give the memory back; nothing is kept any more."""
        self.snapshot, self.cuda, self.busy = Snapshot(self.torch), None, False
        self.size = 0
        self._never(because)


# --- Copies of a state that lies on a GPU: into pinned memory, on a stream of their own, while the training goes on
# Weights and moments change in an optimizer's step alone, so that they are copied while the next forward and backward
# run; the next step waits for the rest of the copy on the device, not on the host. Buffers change in the forward pass
# and are set aside first. Two copies take turns: the one being written may turn out to hold what is non-finite, which
# is asked on the device and known when its event has passed.

_PIECE = 5_000_000  # ns of pinning memory at a time


class CudaCopies:
    """Stands in for one `Snapshot`: the last of two that is complete and finite."""

    def __init__(self, torch):
        self.torch = torch
        self.pair = [Snapshot(torch), Snapshot(torch)]
        self.pinned = {}  # place -> two pinned tensors
        self.flight = None  # (snapshot, state, step, begin, end, figures, what must live until then)
        self.stream = None
        self.last = 0  # ns that the last copy took on the device
        self.pinned_by = None  # the copy back that still reads the pinned memory

    @property
    def good(self):
        self.poll()
        return max(self.pair, key=lambda one: one.step)

    @property
    def step(self):
        return self.good.step

    def is_of(self, state):
        return self.good.is_of(state)

    def put_back(self, state):
        self.good.put_back(state, non_blocking=True)
        self.pinned_by = self.torch.cuda.Event()
        self.pinned_by.record()

    def mend(self, _state, _is_bad):
        """On a device a buffer can't be read without waiting for it."""
        return 0

    @staticmethod
    def size(state):
        """Bytes of host memory for both copies: PyTorch pins powers of two."""
        sizes = (tensor.numel() * tensor.element_size() for tensor in state.tensors.values())
        return 2 * sum(1 << max(0, size - 1).bit_length() for size in sizes)

    def prepare(self, state):
        """Pin memory, some milliseconds at a time; True once there is enough."""
        until = monotonic_ns() + _PIECE
        for place, tensor in state.tensors.items():
            pair = self.pinned.get(place)
            if pair is None or pair[0].shape != tensor.shape or pair[0].dtype is not tensor.dtype:
                if monotonic_ns() > until:
                    return False
                like = {"dtype": tensor.dtype, "pin_memory": tensor.is_cuda}
                self.pinned[place] = [self.torch.empty(tensor.shape, **like) for _ in range(2)]
        for place in self.pinned.keys() - state.tensors.keys():
            del self.pinned[place]
        return True

    def begin(self, state, step):
        """Start a copy; the one that is good meanwhile stays."""
        torch = self.torch
        if self.pinned_by is not None and not self.pinned_by.query():
            return
        target = min(self.pair, key=lambda one: one.step)
        which = self.pair.index(target)
        target.step = 0
        target.kept = {place: pair[which] for place, pair in self.pinned.items()}
        self.stream = self.stream or torch.cuda.Stream()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.no_grad():
            aside = {place: tensor.clone() for place, tensor in state.buffers.items() if tensor.is_cuda}
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                begin.record()
                watched = [t for t in (*state.weights.values(), *state.moments.values()) if t.is_cuda]
                watched = [t.detach() for t in watched if t.is_floating_point() and t.numel()]
                norms = torch._foreach_norm(watched, float("inf"))
                sent = torch.stack([norm.float() for norm in norms]).sum()
                figure = torch.empty((), dtype=torch.float32, pin_memory=True)
                figure.copy_(sent, non_blocking=True)
                for place, tensor in state.tensors.items():
                    source = aside.get(place, tensor)
                    if source.is_cuda:
                        source.record_stream(self.stream)
                    target.kept[place].copy_(source, non_blocking=True)
                end.record()
        target.note(state)
        self.flight = (target, step, begin, end, figure, aside, sent)

    def wait(self):
        """Before the weights change: have the device wait for a copy that is under way."""
        if self.flight is not None:
            self.torch.cuda.current_stream().wait_event(self.flight[3])

    def poll(self):
        """Take over a copy that has come through and is finite."""
        if self.flight is None or not self.flight[3].query():
            return
        (target, step, begin, end, figure, *_), self.flight = self.flight, None
        self.last = int(begin.elapsed_time(end) * 1e6)
        total = float(figure)
        if total - total == 0.0:
            target.step = step
