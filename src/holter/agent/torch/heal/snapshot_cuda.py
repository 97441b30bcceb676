"""Copies of a state that lies on a GPU: into pinned memory, on a stream of their own, while the training goes on.

Weights and moments change in an optimizer's step alone, so that they are copied while the next forward and backward
run; the next step waits for the rest of the copy on the device, not on the host. Buffers change in the forward pass
and are set aside first. Two copies take turns: the one being written may turn out to hold what is non-finite, which is
asked on the device and known when its event has passed.
"""

from time import monotonic_ns

from .snapshot import Snapshot

_PIECE = 5_000_000  # ns of pinning memory at a time


class CudaCopies:
    """Stands in for one `Snapshot`: the last of two that is complete and finite."""

    def __init__(self, torch):
        self.torch = torch
        self.pair = [Snapshot(torch), Snapshot(torch)]
        self.room = {}  # place -> two pinned tensors
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
            pair = self.room.get(place)
            if pair is None or pair[0].shape != tensor.shape or pair[0].dtype is not tensor.dtype:
                if monotonic_ns() > until:
                    return False
                like = {"dtype": tensor.dtype, "pin_memory": tensor.is_cuda}
                self.room[place] = [self.torch.empty(tensor.shape, **like) for _ in range(2)]
        for place in self.room.keys() - state.tensors.keys():
            del self.room[place]
        return True

    def begin(self, state, step):
        """Start a copy; the one that is good meanwhile stays."""
        torch = self.torch
        if self.pinned_by is not None and not self.pinned_by.query():
            return
        target = min(self.pair, key=lambda one: one.step)
        which = self.pair.index(target)
        target.step = 0
        target.kept = {place: pair[which] for place, pair in self.room.items()}
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
