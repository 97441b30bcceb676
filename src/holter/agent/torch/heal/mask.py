"""Leave single elements out of a backward (PyTorch): those whose gradient an operation turns into a non-finite one.

A logarithm of a probability that has become zero, or a square root at zero, spoils one element of a batch and with it
every weight. In the backward of such a loss each operation is looked after: where it gives a few elements that are no
numbers, they become zeros, and the rest is learnt from. Where it gives many, it is not a matter of elements, and
nothing is touched: the update is then held back as a whole.
"""

_NODES = 2000
_MOST = 0.5  # the share of elements that may be left out


class Mask:
    """What was left out of one backward."""

    def __init__(self, torch, guard):
        self.torch, self.guard = torch, guard
        self.count = self.of = 0
        self.operation = ""

    def put_on(self, loss):
        """Look after the operations between a loss and the weights; they go with their graph."""
        seen, waiting = set(), [loss.grad_fn]
        while waiting and len(seen) < _NODES:
            node = waiting.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            name = node.name()
            if "AccumulateGrad" not in name:  # it outlives the graph
                node.register_hook(self._hook(name))
                waiting.extend(function for function, _ in node.next_functions)

    def _hook(self, name):
        def look(gradients, _given):
            try:
                return self._masked(gradients, name)
            except Exception as error:
                self.guard.caught("mask", error)
                return None

        return look

    def _masked(self, gradients, name):
        found, changed = [], False
        for gradient in gradients:
            bad = self._bad(gradient)
            if bad is not None:
                count = int(bad.sum())
                if count > _MOST * bad.numel():
                    return None
                if not self.count:
                    self.operation, self.of = name.split("Backward")[0].lower(), bad.numel()
                    self.count = count
                gradient, changed = gradient.masked_fill(bad, 0.0), True
            found.append(gradient)
        return tuple(found) if changed else None

    def _bad(self, gradient):
        torch = self.torch
        if gradient is None or not gradient.is_cpu or not gradient.is_floating_point():
            return None
        if gradient.layout is not torch.strided:
            return None
        total = gradient.detach().sum().item()
        if total - total == 0.0:
            return None
        bad = ~torch.isfinite(gradient.detach())
        return bad if bool(bad.any()) else None
