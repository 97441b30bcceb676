"""Losses on a GPU: kept there, and read when one that came back late is non-finite. Nothing ever waits for the device.

The last losses are held where they are: a reference costs a microsecond, a copy would be one more kernel at every
step. When one is seen to be non-finite, they and a figure for every weight are sent to the host, and read when their
event has passed: by then the update has been done, but the losses up to the first bad step are all there. Data is
looked for in the host's memory: in what the loader's dataset holds.
"""

import sys
import weakref
from collections import deque

from ...observe import numpy_finite
from ...observe.loss_history import short
from .finite import Clock, describe, readable
from .graph import Graph

_KEPT = 256
_MAX_LOSSES = 64
_MAX_HELD_BYTES = 4096  # bytes: a loss that is a view of something large is not held, but copied
# Its memory is used again whoever still refers to it, and a reference makes it record its graphs anew.
_GRAPHS = "torch._inductor.cudagraph_trees"
_SECONDS = 0.5


class DeviceNan:
    """What `NanWatch` is for the CPU, for losses on a device."""

    def __init__(self, torch, watch):
        self.torch = torch
        self.watch = watch
        self.losses = deque(maxlen=_KEPT)  # with their steps
        self.bad_step = 0
        self.pending = None
        self.loader = None  # weakly, the one that is drawn from

    def loss(self, tensor, step):
        """A loss before its backward."""
        torch = self.torch
        if self.pending is not None:
            self.collect()
        if not tensor.is_cuda or tensor.numel() != 1 or torch.cuda.is_current_stream_capturing():
            return
        kept = tensor.detach()
        if _GRAPHS in sys.modules or kept.untyped_storage().nbytes() > _MAX_HELD_BYTES:
            kept = kept.clone()
        self.losses.append((kept, step))
        if self.bad_step and self.pending is None:
            self._send(tensor)

    def came_back(self, loss, step):
        """A loss that was sent to the host some steps ago."""
        history = self.watch.history
        if loss - loss == 0.0:
            history.add(loss)
            return
        if history.wants_look():
            self.bad_step = step  # the next loss brings its graph with it
        if self.watch.heal is not None:
            self.watch.heal.met_late(step)

    def _send(self, tensor):
        torch, watch = self.torch, self.watch
        fields = {"framework": "torch", "dtype": str(tensor.dtype).replace("torch.", ""), "updated": True}
        if tensor.grad_fn is not None and "float16" in Graph(torch, tensor, Clock(_SECONDS / 4)).dtypes():
            fields["autocast"] = "float16"
        optimizers = [optimizer for ref in watch.optimizers if (optimizer := ref()) is not None]
        named = [
            (name, p) for name, p in watch.look.parameters(optimizers) if p.is_cuda and p.is_floating_point()
        ]  # fmt: skip
        named = [(name, p) for name, p in named if p.device == tensor.device]
        scales = [s for s in (getattr(ref(), "_scale", None) for ref in watch.scalers) if s is not None and s.is_cuda]
        with torch.no_grad():
            norms = torch._foreach_norm([p.detach() for _, p in named], float("inf")) if named else []
            losses = [(loss, step) for loss, step in self.losses if loss.device == tensor.device]
            figures = [*(loss for loss, _ in losses), *norms, *scales]
            sent = torch.cat([figure.float().reshape(1) for figure in figures])
            host = torch.empty(sent.shape, dtype=torch.float32, pin_memory=True)
            host.copy_(sent, non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        dtypes = [str(p.dtype).replace("torch.", "") for _, p in named]
        fields.update(watch.look.rate(optimizers))
        self.pending = (host, event, [name for name, _ in named], dtypes, bool(scales), fields, [s for _, s in losses])

    def collect(self):
        """Say what came back, once it is there."""
        if self.pending is None or not self.pending[1].query():
            return
        (host, _event, names, dtypes, scaled, fields, steps), self.pending = self.pending, None
        values = host.tolist()
        losses, first = _until_bad(values, steps)
        fields.update(step=first or self.bad_step, what="loss", loss="nan")
        self.bad_step = 0
        fields["losses"] = [short(loss) for loss in losses[-_MAX_LOSSES:]] or self.watch.history.fields()["losses"]
        largest = values[len(steps) : len(steps) + len(names)]
        if names:
            bad = [name for name, value in zip(names, largest) if value - value != 0.0]  # noqa: B905
            finite = [value for value in largest if value - value == 0.0]
            fields["params"] = {"bad": len(bad), "of": len(names), "max": short(max(finite, default=0.0))}
            fields["params"]["dtype"] = max(set(dtypes), key=dtypes.count)
            if bad:
                fields["params"].update(first=bad[0], last=bad[-1])
        if scaled:
            fields["scale"] = short(values[-1])
        data = self._data(Clock(_SECONDS))
        fields["looked_at"] = len(data)
        worst = next((one for one in data if one.get("bad")), None)
        if worst is not None:
            fields["inputs"] = worst
            fields["what"] = "input" if worst["bad"] != "outlier" else "loss"
        self.watch.agent.say("nan", **fields)

    def draws_from(self, loader):
        """The loader of a pass that begins."""
        self.loader = weakref.ref(loader)

    def _data(self, clock):
        """Arrays and tensors that the dataset holds in the host's memory, by its own attributes: no code of it runs."""
        loader = self.loader() if self.loader is not None else None
        dataset = getattr(loader, "dataset", None)
        for _ in range(4):  # subsets of subsets
            inner = getattr(dataset, "__dict__", {}).get("dataset")
            dataset = inner if inner is not None else dataset
        found = []
        for name, value in list(getattr(dataset, "__dict__", {}).items())[:16]:
            several = isinstance(value, (list, tuple)) and len(value) <= 16
            for one in value if several else (value,):
                described = self._read(name, one, clock)
                if described is not None:
                    found.append(described)
        return found

    def _read(self, name, value, clock):
        if readable(self.torch, value) and value.dim():
            described = describe(self.torch, name, value, clock)
            if described is not None and "sample" in described:
                described["row"] = described.pop("sample")
            return described
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, numpy.ndarray) and value.ndim:
            return numpy_finite.describe(name, value, clock)
        return None


def _until_bad(losses, steps):
    """The losses before the first that is non-finite, and its step."""
    found = []
    for loss, step in zip(losses, steps):  # noqa: B905
        if loss - loss != 0.0:
            return found, step
        found.append(loss)
    return found, 0
