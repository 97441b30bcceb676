"""The autograd graph of a loss, before its backward: which operation, nearest the inputs, turned numbers into none.

Only what autograd has saved is read. Nothing is computed anew but single operations on saved values, and no code of
the user's runs. What went through hooks (checkpointing, offloading) is left alone.
"""

from . import edges as edges
from .finite import read, readable

_NODES = 4000
_MAX_ELEMENTS = 1 << 22
# Where an operation's inputs stand among those it was made of; a product that is added to something has that first.
_PLACES = {"self": 0, "input": 0, "mat1": 1, "mat2": 2, "other": 1, "weight": 1}
_RESULTS = ("result", "result0", "result1", "output")


class Graph:
    """The nodes of one loss in the order of the forward pass."""

    def __init__(self, torch, loss, clock):
        self.torch = torch
        self.clock = clock
        self.nodes = []
        self.complete = True
        seen, waiting = set(), [loss.grad_fn]
        while waiting:
            node = waiting.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            if len(seen) > _NODES:
                self.complete = False
                break
            self.nodes.append(node)
            waiting.extend(function for function, _ in node.next_functions)
        self.nodes.sort(key=_order)

    def operations(self):
        """The names of the operations in the graph, in the order of the forward pass."""
        return [edges.plain(node.name()) for node in self.nodes if "AccumulateGrad" not in node.name()]

    def dtypes(self):
        """The dtypes that the operations computed in; known also after the backward has freed their values."""
        found = set()
        for node in self.nodes:
            for described in getattr(node, "_input_metadata", ()) or ():
                found.add(str(described.dtype).replace("torch.", ""))
        return found

    def first_bad(self):
        """The first operation whose inputs were finite and whose result was not, as fields; {} where none is found."""
        for node in self.nodes:
            if self.clock.over():
                break
            name = node.name()
            if "AccumulateGrad" in name or "::" in name:
                continue
            found = self._examine(node, edges.plain(name))
            if found is not None:
                return found
        return {}

    def _examine(self, node, name):
        """Fields of a node that is to blame; None for one that is not, {} where those to blame left nothing to read."""
        saved = _saved(node)
        inputs = {key: value for key, value in saved.items() if key not in _RESULTS}
        results = [saved[key] for key in _RESULTS if readable(self.torch, saved.get(key))]
        tensors = [value for value in inputs.values() if readable(self.torch, value)]
        if any(self._bad(value) for value in tensors):
            # What came in was bad already and no operation before it shows why: its makers saved nothing.
            if name in edges.PLACING:
                return None
            return self._from_makers(node, inputs) if self._nan(tensors) else self._overflown(node, inputs)
        # Autograd saves what it needs: a scalar operand as a number.
        a, b = _operands(name, inputs)
        out = next((result for result in results if self._bad(result)), None)
        if out is not None and a is None and name in ("exp", "sqrt", "rsqrt", "reciprocal", "softmax", "log_softmax"):
            words = {"exp": "exp overflows", "sqrt": "square root of a negative number"}.get(name, "")
            if "softmax" in name and not self._nan([out]):
                return None
            return self._fields(node, name, words, out)
        words = edges.forward(name, a, b, out) if hasattr(a, "numel") and a.numel() <= _MAX_ELEMENTS else ""
        if not words:
            return self._fields(node, name, "", out) if out is not None and name not in edges.PLACING else None
        again = self._again(name, a, b) if out is None else out
        return self._fields(node, name, words, again) if again is None or self._bad(again) else None

    def _again(self, name, a, b):
        """The operation once more on what was saved, to see that it does give a non-finite value."""
        function = getattr(self.torch, name, None)
        if function is None:
            return None
        try:
            return function(a) if b is None else function(a, b)
        except Exception:
            return None

    def _overflown(self, node, inputs):
        """The maker of an infinity in half precision, which ends at 65,504: nobody asks for one."""
        for (maker, _), key in zip(node.next_functions, ("self", "other")):  # noqa: B905 - Python 3.9 has no `strict`
            value = inputs.get(key)
            half = readable(self.torch, value) and value.dtype is self.torch.float16
            if maker is None or not half or not bool((value == float("inf")).any()):
                continue
            name = edges.plain(maker.name())
            if name not in edges.PLACING and "AccumulateGrad" not in maker.name():
                return self._fields(maker, name, "%s overflows" % name, value)
        return None

    def _from_makers(self, node, inputs):
        """The maker of what came in; what nothing of the graph has made came in from outside of it."""
        makers = [maker for maker, _ in node.next_functions]
        places = {key: at - (len(makers) < 3 and key in ("mat1", "mat2")) for key, at in _PLACES.items()}
        bad = [key for key, value in inputs.items() if readable(self.torch, value) and self._nan([value])]
        known = [makers[places[key]] for key in bad if places.get(key, len(makers)) < len(makers)]
        for maker in known:
            if maker is None:
                return {"outside": True}
        for maker in known or makers:
            if maker is not None and "AccumulateGrad" not in maker.name():
                name = edges.plain(maker.name())
                if name not in edges.PLACING:
                    return self._fields(maker, name, "", None)
        return {}

    def _fields(self, node, name, words, out):
        fields = {"op": name, "via": "graph"}
        if words:
            fields["edge"] = words
        if out is not None:
            fields["op_dtype"] = str(out.dtype).replace("torch.", "")
        parameter = _parameter_of(node)
        if parameter is not None:
            fields["parameter"] = parameter
        lines = node.metadata.get("traceback_") if hasattr(node, "metadata") else None
        if lines:
            fields["stack"] = list(lines)
        return fields

    def _bad(self, tensor):
        found = read(self.torch, tensor, self.clock)
        return found is not None and found.bad

    def _nan(self, tensors):
        return any(found is not None and found.nan for found in (read(self.torch, t, self.clock) for t in tensors))


def _order(node):
    try:
        return node._sequence_nr()
    except AttributeError:
        return 0


def _saved(node):
    """What a node has kept for its backward; nothing that somebody's hook would have to bring back."""
    found = {}
    for attribute in dir(node):
        if attribute.startswith("_raw_saved_"):
            raw = getattr(node, attribute)
            if getattr(raw, "unpack_hook", raw) is None:  # older releases don't say whether there is a hook
                found[attribute[11:]] = raw.data
        elif attribute.startswith("_saved_") and not hasattr(type(node), "_raw" + attribute):
            try:
                found[attribute[7:]] = getattr(node, attribute)
            except RuntimeError:
                continue  # freed
    return found


def _operands(name, inputs):
    a = inputs.get("self")
    b = inputs.get("exponent") if name == "pow" else inputs.get("other", inputs.get("target"))
    if a is None and name == "div" and hasattr(b, "numel"):
        a = b.new_ones(())  # the dividend is saved only when the divisor is trained
    return a, b


def _parameter_of(node):
    """The trained tensor that an operation takes directly, or through a transpose."""
    for maker, _ in node.next_functions:
        for near in (maker, *(f for f, _ in maker.next_functions)) if maker is not None else ():
            variable = getattr(near, "variable", None)
            if variable is not None:
                return variable
    return None
