"""A training's state as it is at one moment: copies in the host's memory, and the random generators.

Copies from a GPU are queued behind the step and waited for in another thread, so that no step waits for them.
"""

import pickle
import random
import sys
from collections import OrderedDict


class Held:
    """Stands for a tensor, by its number."""

    def __init__(self, number):
        self.number = number


class Snapshot:
    """Copies of what the user named: whatever has a `state_dict`, lists and dicts."""

    def __init__(self, things):
        self.torch = sys.modules.get("torch")
        self.tensors = []
        self.devices = set()
        self.things = {name: self._of(thing) for name, thing in things.items()}
        self.events = [self.torch.cuda.current_stream(device).record_event() for device in self.devices]

    def wait(self):
        """Until all copies have arrived; not for the thread that trains."""
        for event in self.events:
            event.synchronize()

    def _of(self, thing):
        return self._copy(thing.state_dict()) if hasattr(thing, "state_dict") else pickle.dumps(thing, 4)

    def _copy(self, value):
        torch = self.torch
        if torch is not None and isinstance(value, torch.Tensor) and value.layout == torch.strided:
            self.tensors.append(self._tensor(value.detach()))
            return Held(len(self.tensors) - 1)
        if isinstance(value, dict):
            # A plain dict could not hold the versions of the layers, which PyTorch hangs on to what it gives.
            ordered = type(value).__name__ == "OrderedDict" or hasattr(value, "_metadata")
            made = OrderedDict() if ordered else {}
            for key, one in value.items():
                made[key] = self._copy(one)
            if hasattr(value, "_metadata"):
                setattr(made, "_metadata", value._metadata)
            return made
        if type(value) in (list, tuple):
            return type(value)(self._copy(one) for one in value)
        if isinstance(value, (int, float, str, bytes, type(None))):
            return value
        return pickle.loads(pickle.dumps(value, 4))

    def _tensor(self, tensor):
        torch = self.torch
        if not tensor.is_cuda:
            return torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor)
        self.devices.add(tensor.device)
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)


def put_back(things, saved, tensors):
    """Give each thing the state that was copied from it; lists and dicts are filled in place."""
    for name, thing in things.items():
        if name not in saved:
            continue
        if hasattr(thing, "load_state_dict"):
            thing.load_state_dict(_filled(saved[name], tensors))
        else:
            kept = pickle.loads(saved[name])
            thing.clear()
            (thing.update if isinstance(thing, dict) else thing.extend)(kept)


def _filled(value, tensors):
    if isinstance(value, Held):
        return tensors[value.number].clone()
    if isinstance(value, dict):
        made = type(value)()
        for key, one in value.items():
            made[key] = _filled(one, tensors)
        if hasattr(value, "_metadata"):
            setattr(made, "_metadata", value._metadata)
        return made
    if type(value) in (list, tuple):
        return type(value)(_filled(one, tensors) for one in value)
    return value


def can_be_kept(thing):
    """True for what can be copied and put back."""
    return (hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict")) or type(thing) in (list, dict)


def random_state():
    """The generators of Python, NumPy and PyTorch; to read them makes no device wait."""
    found: "dict" = {"python": random.getstate()}
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if hasattr(numpy, "random"):
        found["numpy"] = numpy.random.get_state()
    if hasattr(torch, "get_rng_state"):
        found["torch"] = raw(torch.get_rng_state())
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            found["cuda"] = [raw(state) for state in torch.cuda.get_rng_state_all()]
        if torch.backends.mps.is_available():
            found["mps"] = raw(torch.mps.get_rng_state())
    return found


def put_back_random(state):
    """Set the generators to what `random_state` gave."""
    random.setstate(state["python"])
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and "numpy" in state:
        numpy.random.set_state(state["numpy"])
    if torch is None or "torch" not in state:
        return
    torch.set_rng_state(cooked(state["torch"]))
    if "cuda" in state:
        torch.cuda.set_rng_state_all([cooked(one) for one in state["cuda"]])
    if "mps" in state:
        torch.mps.set_rng_state(cooked(state["mps"]))


def generators_of(items):
    """Generators of a loader's own, which the global ones know nothing of: the loader's, its samplers'."""
    found = []
    for path in ((), ("sampler",), ("batch_sampler",), ("batch_sampler", "sampler")):
        thing = items
        for name in path:
            thing = getattr(thing, name, None)
        generator = getattr(thing, "generator", None)
        if hasattr(generator, "get_state") and hasattr(generator, "set_state") and generator not in found:
            found.append(generator)
    return found


def raw(state):
    """A generator's state as bytes: a pickled tensor would go through the script's `torch.save`."""
    return bytes(state.tolist())


def cooked(state):
    return sys.modules["torch"].frombuffer(bytearray(state), dtype=sys.modules["torch"].uint8)
