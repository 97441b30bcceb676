"""The last good state of a training (PyTorch): weights, buffers, the optimizers' own state and the loss scaler's.

It is kept in the host's memory, in tensors that are made once and copied into again. What lies on a GPU is copied by
`good_states`. Going back writes into the user's own tensors, so that nobody who refers to them is left behind.

Two things are not put back. The random generators go on: a generator that was set back would draw the offending batch,
the last shuffle or the last augmentation again. And so do the rates and other settings of the optimizers: they
follow a schedule that goes on with the loop.
"""

import weakref

from ..observe.visibility import buffers_of

_PLAIN = (bool, int, float, complex, str, type(None))


class CantCopy(Exception):
    """Something of the state is of a kind that is not known."""


class State:
    """The tensors that make up a training, by places that outlive a step, and the plain values beside them."""

    def __init__(self, torch, optimizers, models, scalers):
        self.torch = torch
        self.optimizers = optimizers
        self.weights, self.moments, self.buffers, self.values = {}, {}, {}, {}
        for optimizer in optimizers:
            for p in (p for group in optimizer.param_groups for p in group["params"]):
                self.weights[id(p)] = p
                for key, value in optimizer.state.get(p, {}).items():
                    self._take((id(p), key), value)
        for model in models:
            for buffer in buffers_of(model):
                if type(buffer) is not torch.Tensor or buffer.layout is not torch.strided:
                    raise CantCopy("the model has a buffer of a kind of its own, %s" % type(buffer).__name__)
                if 0 not in buffer.stride():  # else many of its elements lie at one place, and none is written to
                    self.buffers["buffer", id(buffer)] = buffer
        for scaler in scalers:
            for name in ("_scale", "_growth_tracker"):
                tensor = getattr(scaler, name, None)
                if isinstance(tensor, torch.Tensor):
                    self.buffers[name, id(scaler)] = tensor
        self.tensors = {**self.weights, **self.moments, **self.buffers}
        self.devices = {tensor.device for tensor in self.weights.values()}

    def _take(self, place, value):
        if type(value) in (self.torch.Tensor, self.torch.nn.Parameter):  # of another kind, its owner would see a copy
            self.moments[place] = value
        elif isinstance(value, _PLAIN):
            self.values[place] = value
        else:
            raise CantCopy("the optimizer keeps a %s" % type(value).__name__)

    def size(self):
        """Bytes of all of it."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors.values())

    def fits(self, kept):
        """Tell whether these copies are of tensors of the same places and shapes."""
        mine = self.tensors
        return kept.keys() == mine.keys() and all(
            kept[place].shape == tensor.shape and kept[place].dtype is tensor.dtype for place, tensor in mine.items()
        )


class Snapshot:
    """A copy of a state; `step` is the last one that it holds, 0 while there is none."""

    def __init__(self, torch):
        self.torch = torch
        self.kept, self.values = {}, {}
        self.step = 0
        self.owners = []  # weakly: another optimizer's weights may come to lie at the same addresses

    def is_of(self, state):
        """Tell whether this is a copy of the same training."""
        owners = [ref() for ref in self.owners]
        return (
            self.step > 0
            and len(owners) == len(state.optimizers)
            and all(one is other for one, other in zip(owners, state.optimizers))  # noqa: B905
            and all(place in self.kept for place in state.weights)
        )

    def make_tensors(self, state):
        """Make the tensors that the copy goes into, where they are not there yet."""
        if not state.fits(self.kept):
            self.step = 0
            self.kept = {place: self.torch.empty_like(tensor, device="cpu") for place, tensor in state.tensors.items()}

    def take(self, state, step):
        """Copy a state; one that is interrupted is none."""
        self.make_tensors(state)
        self.step = 0
        with self.torch.no_grad():
            for place, tensor in state.tensors.items():
                self.kept[place].copy_(tensor)
        self.note(state)
        self.step = step

    def note(self, state):
        """Keep what is beside the tensors."""
        self.values = dict(state.values)
        self.owners = [weakref.ref(optimizer) for optimizer in state.optimizers]

    def put_back(self, state, non_blocking=False):
        """Write the copy into the tensors it was made of; what the optimizers began since then they begin again."""
        with self.torch.no_grad():
            for place, tensor in state.tensors.items():
                kept = self.kept.get(place)
                if kept is not None and kept.shape == tensor.shape:
                    tensor.copy_(kept, non_blocking=non_blocking)
        for optimizer in state.optimizers:
            for p, held in list(optimizer.state.items()):
                known = [key for key in held if (id(p), key) in self.kept or (id(p), key) in self.values]
                if len(known) < len(held):
                    del optimizer.state[p]
                    continue
                held.update({key: self.values[id(p), key] for key in known if (id(p), key) in self.values})

    def mend(self, state, is_bad):
        """Put back only those buffers that are non-finite now and were at the time; how many."""
        mended = 0
        with self.torch.no_grad():
            for place, tensor in state.buffers.items():
                kept = self.kept.get(place)
                if kept is not None and kept.shape == tensor.shape and is_bad(tensor) and not is_bad(kept):
                    tensor.copy_(kept)
                    mended += 1
        return mended


# --- Whether tensors in the host's memory are finite: one pass over them, the cheapest there is
# A sum that is a number clears a tensor. One that is none may still be the sum of large numbers that are, so that only
# then each element is asked.


def first_bad(torch, tensors):
    """The place of the first tensor that holds an infinity or a NaN; None where there is none."""
    with torch.no_grad():
        for at, tensor in enumerate(tensors):
            tensor = _plain(torch, tensor)
            if tensor is None:
                continue
            total = tensor.sum().item()
            if total - total != 0.0 and not bool(torch.isfinite(tensor).all()):
                return at
    return None


def _plain(torch, tensor):
    """The numbers of a tensor that can be read without making anything wait."""
    if tensor is None or not tensor.is_cpu or not (tensor.is_floating_point() or tensor.is_complex()):
        return None
    tensor = tensor.detach()
    if tensor.layout is not torch.strided:
        tensor = tensor._values() if tensor.is_sparse else None
    return tensor
