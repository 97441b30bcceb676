"""The random generators that a call of a model may draw from: as they are at one moment, and silenced for a proof.

Each chunk draws its own dropout masks and noise, and draws them again when it is computed a second time. They are not
those that the full batch would have drawn: a model that draws is split as `equivalent`.
"""

import functools
import random
import sys


class RandomState:
    """All generators of the process as they are now: PyTorch's for the host and one device, Python's, NumPy's."""

    def __init__(self, torch, device):
        self.torch, self.device = torch, device
        self.host = torch.get_rng_state()
        self.on_device = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        self.python, self.numpy = random.getstate(), _numpy_state()

    def put_back(self):
        """Make the generators as they were."""
        self.torch.set_rng_state(self.host)
        if self.on_device is not None:
            self.torch.cuda.set_rng_state(self.on_device, self.device)
        random.setstate(self.python)
        if self.numpy is not None:
            sys.modules["numpy.random"].set_state(self.numpy)

    def torch_drew(self, later):
        """Tell whether PyTorch's generators were drawn from between this and a later state."""
        if not self.torch.equal(self.host, later.host):
            return True
        return self.on_device is not None and not self.torch.equal(self.on_device, later.on_device)

    def others_drew(self, later):
        """The same of Python's and NumPy's."""
        if self.python != later.python or (self.numpy is None) != (later.numpy is None):
            return True
        if self.numpy is None:
            return False
        return self.numpy[2:] != later.numpy[2:] or not bool((self.numpy[1] == later.numpy[1]).all())


def _numpy_state():
    numpy = sys.modules.get("numpy.random")
    return numpy.get_state() if hasattr(numpy, "get_state") else None


@functools.lru_cache(maxsize=1)
def nothing_drawn_class(torch):
    """A mode under which dropout drops nothing and noise is a constant; `met` tells whether there was any."""
    functional, tensor = torch.nn.functional, torch.Tensor
    names = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
    dropouts = {getattr(functional, name) for name in names}
    noises, fills = {torch.rand_like, torch.randn_like}, {tensor.normal_, tensor.uniform_, tensor.exponential_}

    class NothingDrawn(torch.overrides.TorchFunctionMode):  # type: ignore[name-defined, misc]
        met = False

        def __torch_function__(self, func, types, args=(), kwargs=None):
            kwargs = dict(kwargs or {})
            if func in dropouts:
                self.met |= kwargs.get("training", True) and kwargs.get("p", 0.5) > 0.0
                return args[0]
            if func in noises or func in fills:
                self.met = True
                return torch.full_like(args[0], 0.5) if func in noises else args[0].fill_(0.5)
            if func is functional.scaled_dot_product_attention:
                given = args[4] if len(args) > 4 else kwargs.pop("dropout_p", 0.0)
                self.met |= given > 0.0
                return func(*args[:4], *((0.0,) if len(args) > 4 else ()), *args[5:], **kwargs)
            if func is functional.multi_head_attention_forward and "training" in kwargs:
                self.met |= kwargs["training"] and args[10] > 0.0
                kwargs["training"] = False
            return func(*args, **kwargs)

    return NothingDrawn
