"""Stand-ins for a model's weights, which gather the gradients of all chunks before the weights themselves see any.

A stand-in is a leaf over the same memory. So hooks on a weight, gradients that were there before, and whoever steps
within backward meet one gradient of the full batch, as they would have without the split.
"""

import weakref

from ..observe.visibility import modules_of


class StandIns:
    """The weights of one model that are trained, and where in it they are found."""

    def __init__(self, torch, module):
        self.torch = torch
        self.places = []  # (dict or list, key, the weight, its stand-in)
        self.weights = []
        self.stand_ins = []
        known = {}
        for layer in modules_of(module):
            for key, weight in layer._parameters.items():
                if weight is not None and weight.requires_grad:
                    self._add(layer._parameters, key, weight, known)
            # Recurrent layers hand their kernels a list of their own, and make it anew where its weights are others.
            flat = layer.__dict__.get("_flat_weights")
            if isinstance(flat, list):
                mine = [known.get(id(weight), weight) for weight in flat]
                self.places.append((layer.__dict__, "_flat_weights", flat, mine))
                refs = layer.__dict__.get("_flat_weight_refs")
                if refs is not None:
                    new = [None if weight is None else weakref.ref(weight) for weight in mine]
                    self.places.append((layer.__dict__, "_flat_weight_refs", refs, new))

    def _add(self, holder, key, weight, known):
        if id(weight) not in known:
            known[id(weight)] = stand_in = weight.detach().requires_grad_()
            self.weights.append(weight)
            self.stand_ins.append(stand_in)
        self.places.append((holder, key, weight, known[id(weight)]))

    def still_true(self):
        """Tell whether the model still holds these weights, at the same place in memory."""
        if any(holder[key] is not weight for holder, key, weight, _ in self.places):
            return False
        pairs = zip(self.weights, self.stand_ins)  # noqa: B905
        return all(weight.data_ptr() == stand_in.data_ptr() and weight.requires_grad for weight, stand_in in pairs)

    def __enter__(self):
        for holder, key, _weight, stand_in in self.places:
            holder[key] = stand_in

    def __exit__(self, *_exc):
        for holder, key, weight, _stand_in in self.places:
            holder[key] = weight

    def forget(self):
        """Drop what gradients the stand-ins have gathered."""
        for stand_in in self.stand_ins:
            stand_in.grad = None

    def gradients(self):
        """Hand over what was gathered."""
        found = [stand_in.grad for stand_in in self.stand_ins]
        self.forget()
        return found
