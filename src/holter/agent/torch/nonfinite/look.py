"""One look at a step of PyTorch's whose loss or gradient is non-finite: weights, batch, precision and operation."""

from ...core.user_frame import is_user_file
from ...observe import source_calls
from ...observe.loss_history import short
from ..observe.visibility import modules_of, named_weights_of
from . import edges as edges
from .batch import GIVEN
from .finite import Clock, of_named
from .graph import Graph

_SECONDS = 0.5


class Look:
    """Takes the look, in half a second at most; everything that it reads is left as it was."""

    def __init__(self, torch, adapter, batch, samples):
        self.torch = torch
        self.adapter = adapter
        self.batch = batch
        self.samples = samples

    def spike(self, loss, frame):
        """A loss far above all before it: is it the batch's?"""
        with self.torch.no_grad():
            worst = self._worst(self.batch.describe(Clock(_SECONDS / 4), frame))
        fields = {"step": self.adapter.beat.steps + 1, "loss": short(loss)}
        return fields if worst is None else dict(fields, inputs=worst)

    def seen(self, what, tensor, loss, frame, watch):
        """Everything that is known of the step, as fields of an event."""
        torch, clock = self.torch, Clock(_SECONDS)
        fields = {"step": self.adapter.beat.steps + 1, "what": what, "loss": short(loss), "framework": "torch"}
        optimizers = [optimizer for ref in watch.optimizers if (optimizer := ref()) is not None]
        fields.update(watch.history.fields(), **self.rate(optimizers))
        named = self.parameters(optimizers)
        with torch.no_grad():
            fields["params"] = of_named(torch, named, clock)
            if what == "gradient":
                gradients = [(name, p.grad) for name, p in named if p.grad is not None]
                fields["grads"] = of_named(torch, gradients, clock)
            batch = self.batch.describe(clock, frame)
        worst = self._worst(batch)
        fields["looked_at"] = len(batch)
        given = [one["max"] for one in batch if one["name"].startswith(GIVEN)]
        if worst is not None:
            fields["inputs"] = worst
        elif given:
            fields["largest"] = max(given)
        if worst is not None and worst["bad"] in ("nan", "inf"):
            fields["what"] = "input"
        elif fields["params"].get("bad"):
            fields["what"] = "parameter"
            if what == "loss" and watch.history.losses:
                fields.update(step=fields["step"] - 1, updated=True)  # the loss before was a number: its update was not
        fields.update(self._precision(tensor, watch.scalers))
        if fields["what"] == "parameter":
            fields["slopes"] = self._slopes(tensor, clock, frame)
        else:
            fields.update(self._operation(what, tensor, frame, clock, fields["what"] == "input"))
        return fields

    @staticmethod
    def rate(optimizers):
        """The learning rate, where reading it makes nothing wait."""
        rate = optimizers[-1].param_groups[0].get("lr") if optimizers else None
        return {"lr": short(rate)} if rate is not None and getattr(rate, "is_cpu", True) else {}

    def _worst(self, batch):
        worst = next((one for one in batch if one.get("bad") in ("nan", "inf")), None)
        worst = worst or next((one for one in batch if one.get("bad")), None)
        if worst is not None:
            index = self.samples.index(worst.get("sample"), worst.get("of"))
            if index is not None:
                worst["index"] = index
        return worst

    def parameters(self, optimizers):
        """The trained tensors by the names that their models give them."""
        trained = {id(p): p for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
        named, known = [], set()
        for model in [*self.batch.models(), *self.adapter.births.models_with(set(trained))]:
            for name, p in named_weights_of(model):
                if id(p) not in known:
                    known.add(id(p))
                    named.append((name, p))
        named += [("parameter %d" % at, p) for at, p in enumerate(trained.values()) if id(p) not in known]
        return named

    def _precision(self, tensor, scalers):
        found = {"dtype": str(tensor.dtype).replace("torch.", "")}
        if tensor.grad_fn is not None and "float16" in Graph(self.torch, tensor, Clock(_SECONDS / 4)).dtypes():
            found["autocast"] = "float16"
        for scaler in (ref() for ref in scalers):
            scale = getattr(scaler, "_scale", None)
            if scale is not None and scale.is_cpu:
                found["scale"] = short(scale.item())
        return found

    # --- which operation ----------------------------------------------------------------------------------

    def _operation(self, what, tensor, frame, clock, bad_input):
        """The operation, from what autograd has saved of the step: nothing of the user's is run again."""
        if tensor.grad_fn is None:
            return {}
        if what == "gradient":
            return {} if bad_input else {"slopes": self._slopes(tensor, clock, frame)}
        with self.torch.no_grad():
            found = Graph(self.torch, tensor, clock).first_bad()
        # A function at its edge, with finite values before it, clears the batch: what is bad in that was not used.
        if "outside" in found:
            return {} if bad_input else found
        return self._placed(found, frame) if found and (found.get("edge") or not bad_input) else {}

    def _placed(self, found, frame):
        """An operation of the graph with its module, and the user's lines on which it may stand."""
        parameter, stack = found.pop("parameter", None), found.pop("stack", None)
        for model in self.batch.models() if parameter is not None else ():
            for name, p in named_weights_of(model):
                if p is parameter:
                    found["module"] = name.rpartition(".")[0] or name
        lines = source_calls.of(found["op"], _user_files(frame, self.batch.models()))
        if len(lines) == 1:
            found.update(lines[0])
        elif lines:
            found["lines"] = lines[:8]
        if stack:
            found["traced"] = [str(line)[:300] for line in stack[-6:]]
        return found

    def _slopes(self, tensor, clock, frame):
        """Operations of the graph whose slope is infinite somewhere, with the user's lines that may hold them."""
        if tensor.grad_fn is None:
            return []
        names = Graph(self.torch, tensor, clock).operations()
        hidden = edges.HIDDEN if not edges.MASKS.isdisjoint(names) else frozenset()
        found = []
        for name in dict.fromkeys(names):
            if name in edges.SLOPES or name in hidden:
                lines = source_calls.of(name, _user_files(frame, self.batch.models()))
                if lines or name in edges.SLOPES:
                    found.append({"op": name, "lines": lines[:4], "sure": name in edges.SLOPES})
        return found[:8]


def _user_files(frame, models):
    """The user's files that take part: those on the stack, and those that define the parts of the models."""
    files = {}
    while frame is not None:
        files[frame.f_code.co_filename] = True
        frame = frame.f_back
    for model in models:
        for part in modules_of(model):
            code = getattr(type(part).forward, "__code__", None)
            if code is not None:
                files[code.co_filename] = True
    return [file for file in files if is_user_file(file)][:12]
