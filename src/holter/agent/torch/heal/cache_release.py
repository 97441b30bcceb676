"""Empties PyTorch's queue of what a failed backward has left in it.

A backward that runs out of memory leaves the branches that were still to come in the queue of its thread, and with them
all that they have saved. They are thrown away when they are next met, which within a backward of somebody's is only
after it: too late for another try. A backward of the oldest graph there is comes after them all, and so meets them.
"""

from threading import Thread


class Drain:
    """One tiny graph of a device, older than any other: nodes are numbered anew in each thread."""

    def __init__(self, torch, device):
        self.torch = torch
        self.pair = None

        def make():
            try:
                with torch.enable_grad():
                    leaf = torch.zeros((), device=device, requires_grad=True)
                    self.pair = leaf, leaf * 1.0
            except Exception:
                return

        thread = Thread(target=make)
        try:
            thread.start()
        except RuntimeError:  # no more threads are allowed
            return
        thread.join()

    def empty(self):
        """Without a graph, for which there was no room either, what lies in the queue is thrown away later."""
        if self.pair is not None:
            leaf, out = self.pair
            self.torch.autograd.grad(out, leaf, retain_graph=True)
