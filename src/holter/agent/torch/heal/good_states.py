"""When a good state is kept (PyTorch), and which one to go back to.

Copies may take a four-hundredth of the time. One is taken only of a state that is good: weights and moments are
finite, and the loss is not far above the lowest level that it had. A loss that runs away would otherwise be copied on
its way up.
"""

from time import monotonic_ns

from ...heal.copy_budget import allowance, copies
from ...heal.loss_level import Level
from .finite import first_bad
from .snapshot import CantCopy, Snapshot, State
from .snapshot_cuda import CudaCopies

_SHARE = 400
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
        """Copy the present state, where it is good and there is room."""
        begun = monotonic_ns()
        if self._capturing():
            return
        try:
            state = self._state()
            if self._room_for(state) and self.level.holds(losses):
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
            took //= 20  # the first makes its room as well
        self.took = took
        self.next_at = max(self.next_at, begun + max(took, self.cuda.last if self.cuda else 0) * _SHARE)

    def _copy(self, state, step):
        if self.cuda is not None:
            self.cuda.poll()
            if self.cuda.flight is None and self.cuda.prepare(state):
                self.cuda.begin(state, step)
                self.busy = self.cuda.flight is not None
        elif first_bad(self.torch, [*state.weights.values(), *state.moments.values()]) is None:
            self.snapshot.take(state, step)

    def _room_for(self, state):
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
            self.forget("its copy was let go near the limit of memory")

    def forget(self, because="acting on it has ended"):
        """Give the memory back; nothing is kept any more."""
        self.snapshot, self.cuda, self.busy = Snapshot(self.torch), None, False
        self.size = 0
        self._never(because)
