"""Weights on a GPU that may be non-finite: asked on the device, and known some steps later. Nothing ever waits.

The update itself can't be held back there: whether it is a number is known on the device only, after the host has
already asked for it, and to mask every gradient at every step would cost more than the 1 % that calm may cost. So a
loss that came back as non-finite has the weights asked, and if they are too the training goes back.
"""


class LateLook:
    """One question at a time."""

    def __init__(self, torch):
        self.torch = torch
        self.asked = 0  # the step whose loss was non-finite
        self.after = 0  # losses up to this step say nothing any more
        self.pending = None

    def suspect(self, step):
        if step > self.after and not self.asked:
            self.asked = step

    def forget(self):
        self.asked, self.pending = 0, None

    def answer(self, optimizers):
        """True or False once it is known whether weights are non-finite, None before."""
        try:
            return self._answer(optimizers)
        except Exception:
            self.forget()
            raise

    def _answer(self, optimizers):
        torch = self.torch
        if self.pending is None:
            params = {id(p): p for o in optimizers for group in o.param_groups for p in group["params"]}
            weights = [p.detach() for p in params.values() if p.is_cuda and p.is_floating_point() and p.numel()]
            if torch.cuda.is_current_stream_capturing():
                return None
            if not weights:
                self.forget()
                return None
            with torch.no_grad():
                norms = torch._foreach_norm(weights, float("inf"))
                figure = torch.empty((), dtype=torch.float32, pin_memory=True)
                figure.copy_(torch.stack([norm.float() for norm in norms]).sum(), non_blocking=True)
            event = torch.cuda.Event()
            event.record()
            self.pending = figure, event
            return None
        figure, event = self.pending
        if not event.query():
            return None
        self.forget()
        total = float(figure)
        return total - total != 0.0
