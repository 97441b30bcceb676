"""The proof that comes before the first act on a model (PyTorch): on two samples of its batch, and undone.

Shown is that the call run in chunks gives the same gradient for every weight and input, and that nothing but the values
it returns hangs on its graph: no auxiliary loss left on a module, no features kept by a hook, no weight from elsewhere.
What can't be shown raises `Unsplittable` with the reason, and the call is left as it is.
"""

import gc
import random
import sys
import weakref

from ...heal.leaves import Unsplittable

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_TABLES = {"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", *_HOOKS}
_BUCKETS = 64  # of a gradient, whose sums are compared: gradients themselves would take the memory that is wanted
_NODES = 200_000  # of a graph that is walked through
_PLAIN = (type(None), bool, int, float, complex, str, bytes, range, slice, type)


# --- what is known without a call -----------------------------------------------------------------------------


def refuse(torch, module, weights):
    """Raise for what no proof could show: weights that are not there, hooks that would see each chunk."""
    for part in module.modules():
        if isinstance(part, torch.jit.ScriptModule) or "_orig_mod" in part._modules or _is_compiled(part):
            raise Unsplittable("the model is compiled")
        for table in _HOOKS:
            for hook in (getattr(part, table, None) or {}).values():
                # PyTorch's own compute a weight from others (weight_norm, spectral_norm).
                if not (getattr(hook, "__module__", None) or "").startswith("torch.nn.utils"):
                    raise Unsplittable("a hook on %s would see each chunk by itself" % type(part).__name__)
    kinds = (torch.Tensor, torch.nn.Parameter)
    for weight in weights:
        if type(weight) not in kinds:
            raise Unsplittable("its weights are of a kind of their own, %s" % type(weight).__name__)
        if weight.device.type == "meta" or not weight.is_leaf:
            raise Unsplittable("its weights %s" % ("are not in memory" if weight.is_leaf else "are computed"))


def _is_compiled(part):
    return part.__dict__.get("_compiled_call_impl") is not None


def returned(torch, unknown):
    """Raise where a value was returned that is no tensor and not plain: a graph may hang on it."""
    for thing in unknown:
        if not isinstance(thing, _PLAIN) and not isinstance(thing, (torch.dtype, torch.device)):
            raise Unsplittable("the model returns a %s, which can't be put together from chunks" % type(thing).__name__)


def left_on(torch, module):
    """Tell whether a call has left something on the model that hangs on a graph."""
    values = (value for part in module.modules() for value in part.__dict__.values())
    return any(isinstance(value, torch.Tensor) and value.grad_fn is not None for value in values)


# --- the graph ----------------------------------------------------------------------------------------------


def nodes_of(outputs, inputs):
    """The nodes of the outputs' graph up to these inputs; None where they are too many to walk through."""
    stop = {tensor.grad_fn for tensor in inputs if tensor.grad_fn is not None}
    ahead = [output.grad_fn for output in outputs if output.grad_fn is not None]
    found = set()
    while ahead:
        node = ahead.pop()
        if node in found or node in stop:
            continue
        found.add(node)
        if len(found) > _NODES:
            return None
        ahead.extend(other for other, _ in node.next_functions if other is not None)
    return found


def is_closed(nodes, leaves):
    """Tell whether a graph ends in these leaves alone."""
    return _ends(nodes) <= {id(leaf) for leaf in leaves}


def is_apart(nodes, leaves):
    """Tell whether a graph ends in none of these leaves."""
    return _ends(nodes).isdisjoint(id(leaf) for leaf in leaves)


def _ends(nodes):
    return {id(node.variable) for node in nodes if hasattr(node, "variable")}


def is_only_ours(torch, nodes, outputs):
    """Tell whether no tensor of Python's but these outputs hangs on a graph."""
    known, clear = {id(output) for output in outputs}, set()
    others = [
        thing
        for thing in gc.get_objects()
        if issubclass(type(thing), torch.Tensor) and id(thing) not in known and _leads_to(thing.grad_fn, nodes, clear)
    ]
    # Those that only the graph itself has saved are referred to by nothing of Python's.
    return not others or not [one for one in gc.get_referrers(*others) if one is not others]


def _leads_to(node, nodes, clear):
    """Tell whether a graph that ends in this node goes through these; `clear` are those known not to."""
    ahead, met = [node] if node is not None else [], set()
    while ahead and len(clear) + len(met) < _NODES:
        node = ahead.pop()
        if node in nodes:
            return True
        if node not in met and node not in clear:
            met.add(node)
            ahead.extend(other for other, _ in node.next_functions if other is not None)
    clear |= met
    return bool(ahead)


# --- states ---------------------------------------------------------------------------------------------------


class Around:
    """What a call of the model may change beside what it returns, as it was before."""

    def __init__(self, torch, module, apart):
        self.torch = torch
        self.module, self.apart = module, {id(part) for part in apart}
        self.random = outside_states()
        self.tables = [(table, dict(table)) for table in self._tables()]
        self.marks = self._marks()
        self.copies = [(buffer, buffer.clone()) for buffer in module.buffers()]

    def _tables(self):
        for part in self.module.modules():
            yield part.__dict__
            yield part._buffers

    def _marks(self):
        found = {}
        for part in self.module.modules():
            if id(part) in self.apart:
                continue
            for table in (part.__dict__, part._buffers):
                for key, value in table.items():
                    if key not in _TABLES and key != "training":
                        found[id(table), key] = type(part).__name__, self._mark(value)
        return found

    def _mark(self, value):
        if isinstance(value, self.torch.Tensor):
            return id(value), value._version
        if isinstance(value, (list, dict, set)):
            return id(value), len(value)
        return value if isinstance(value, _PLAIN) else id(value)

    def settle(self):
        """What a first call has left on the module may be a cache; from here on nothing may change."""
        self.marks = self._marks()

    def check(self, call):
        """Raise where calls have changed the model or their inputs, or drawn what can't be drawn for a chunk."""
        if not call.is_untouched():
            raise Unsplittable("each call changes its inputs or weights in place")
        now = self._marks()
        for where in {*now, *self.marks}:
            if now.get(where) != self.marks.get(where):
                name = (now.get(where) or self.marks.get(where))[0]
                raise Unsplittable("each call changes %s.%s" % (name, where[1]))
        if not same_outside(self.random, outside_states()):
            raise Unsplittable("it draws random numbers with Python's or NumPy's generators")

    def undo(self):
        """Make it all as it was."""
        for table, before in self.tables:
            if len(table) != len(before) or any(table.get(key) is not value for key, value in before.items()):
                table.clear()
                table.update(before)
        with self.torch.no_grad():
            for buffer, copy in self.copies:
                buffer.copy_(copy)
        put_back_outside(self.random)


def outside_states():
    """The states of the generators that are not PyTorch's."""
    numpy = sys.modules.get("numpy.random")
    return random.getstate(), numpy.get_state() if hasattr(numpy, "get_state") else None


def put_back_outside(states):
    random.setstate(states[0])
    if states[1] is not None:
        sys.modules["numpy.random"].set_state(states[1])


def same_outside(one, other):
    """Tell whether nothing was drawn in between."""
    if one[0] != other[0] or (one[1] is None) != (other[1] is None):
        return False
    return one[1] is None or (one[1][2:] == other[1][2:] and bool((one[1][1] == other[1][1]).all()))


# --- gradients ------------------------------------------------------------------------------------------------


def given_for(torch, outputs):
    """A gradient for each output that has one, no two of its elements alike; nothing is drawn for it."""
    found = []
    for output in outputs:
        steps = torch.arange(output.numel(), device=output.device, dtype=torch.float32)
        found.append(steps.mul_(0.7).cos_().reshape(output.shape).to(output.dtype))
    return found


def signature(torch, gradient):
    """Sums over pieces of a gradient, and what they are of: enough to tell two apart."""
    if gradient is None:
        return None
    if gradient.is_sparse:
        gradient = gradient.coalesce()
        return gradient.indices().tolist(), signature(torch, gradient.values())
    flat = gradient.detach().reshape(-1)
    flat = torch.view_as_real(flat).reshape(-1) if flat.is_complex() else flat
    each = max(1, flat.numel() // _BUCKETS)
    pieces = flat[: flat.numel() // each * each].reshape(-1, each) if flat.numel() else flat.reshape(0, 1)
    rest = flat[pieces.numel() :]
    sums = [*pieces.sum(1, dtype=torch.float32).tolist(), float(rest.sum())]
    sizes = [*pieces.abs().sum(1, dtype=torch.float32).tolist(), float(rest.abs().sum())]
    return tuple(flat.shape), sums, sizes


def is_same(one, other, tolerance):
    """Tell whether two signatures are those of the same gradient, within rounding."""
    if one is None or other is None:
        return one is other
    if len(one) == 2 or len(other) == 2:
        return one[0] == other[0] and is_same(one[1], other[1], tolerance)
    if one[0] != other[0]:
        return False
    most = max(one[2])
    rows = zip(one[1], other[1], one[2], other[2])  # noqa: B905
    return all(
        abs(a - b) <= tolerance * (size + 0.02 * most) + 1e-7 and abs(size - of_b) <= tolerance * (size + most) + 1e-7
        for a, b, size, of_b in rows
    )


def gone(refs):
    """Tell whether none of these is alive, once cycles are collected."""
    if all(ref() is None for ref in refs):
        return True
    gc.collect()
    return all(ref() is None for ref in refs)


def weakly(things):
    return [weakref.ref(thing) for thing in things]
