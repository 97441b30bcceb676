"""What an optimizer trains, as far as it lies in the host's memory: weights, gradients, buffers, moments."""

import weakref


class KeptTorch:
    """Models and their optimizer, weakly."""

    def __init__(self, torch, models, optimizer):
        self.torch = torch
        self.models = [weakref.ref(model) for model in models]
        self.optimizer = weakref.ref(optimizer)

    def _models(self):
        return [model for ref in self.models if (model := ref()) is not None]

    def lives(self):
        return bool(self._models()) or self.optimizer() is not None

    def mark(self):
        """What every update changes."""
        optimizer = self.optimizer()
        if optimizer is not None:
            return [group["params"][0]._version for group in optimizer.param_groups if group["params"]]
        return [first._version for model in self._models() if (first := next(model.parameters(), None)) is not None]

    def rests(self):
        """Nothing is kept of it."""

    def shrink(self):
        """Nothing of it can be had again but from disk."""
        return False

    def blocks(self):
        """Addresses and sizes."""
        found = {}
        for tensor in self._tensors():
            if tensor.device.type == "cpu" and tensor.layout is self.torch.strided and not self._is_pinned(tensor):
                storage = tensor.untyped_storage()
                found[storage.data_ptr()] = storage.nbytes()
        return [(address, size) for address, size in found.items() if address]

    def _is_pinned(self, tensor):
        return self.torch.cuda.is_initialized() and tensor.is_pinned()

    def _tensors(self):
        weights = []
        for model in self._models():
            weights += model.parameters()
            yield from model.buffers()
        optimizer = self.optimizer()
        if optimizer is not None:
            weights += [weight for group in optimizer.param_groups for weight in group["params"]]
            for state in optimizer.state.values():
                yield from (one for one in state.values() if isinstance(one, self.torch.Tensor))
        for weight in weights:
            yield weight
            if weight.grad is not None:
                yield weight.grad
