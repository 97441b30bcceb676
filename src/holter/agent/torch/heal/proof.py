"""The proof that comes before the first act on a model (PyTorch): on two samples of its batch, and undone.

Shown is that the call run in chunks gives the same outputs and the same gradient for every weight and input, and that
nothing but the values it returns hangs on its graph: no auxiliary loss left on a module, no features kept by a hook, no
weight from elsewhere. Meanwhile BatchNorm does as in inference and nothing is drawn at random: there two samples differ
from one by what they are made to do. What can't be shown raises `Unsplittable` with the reason, and the call is left as
it is.
"""

import gc
import weakref
from contextlib import contextmanager

from ...heal.leaves import Unsplittable, take_out
from ...heal.out_of_memory import let_go
from ..observe.visibility import buffers_of, modules_of, weights_of
from . import joining
from .random_numbers import RandomState, nothing_drawn_class
from .weight_proxies import StandIns

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_TABLES = {"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", *_HOOKS}
_MAX_NODES = 200_000  # of a graph that is walked through
_MAX_CONTENTS = 1000  # entries of a list on a module: a longer one is no state of a call
_PLAIN = (type(None), bool, int, float, complex, str, bytes, range, slice, type)


def prove(state, call):
    """How each output of the model joins; raises where chunks can't be shown to come to the same."""
    if call.size < 2:
        raise Unsplittable("the batch has one sample" if call.size else "the batch has no samples")
    torch, module = state.torch, call.module
    _refuse(torch, module)
    around = Around(state, module)
    around.settle()
    counts = joining.label_counts(torch, call.leaves, call.axes)
    picked = _unlike_pair(counts)
    try:
        pair = call.of(picked)
        try:
            found = _prove_pair(state, pair, around, counts, picked)
        finally:
            around.check(pair)  # where it says more, that is the reason
    except Unsplittable:
        raise
    except Exception as error:
        words = "%s: %s" % (type(error).__name__, str(error)[:200])
        let_go(error)
        raise Unsplittable("the model could not be tried out with two samples (%s)" % words) from None
    finally:
        around.undo()
    return found


def _unlike_pair(counts):
    """Two samples whose labels differ most in number: only such tell one mean from another."""
    best = (0, 0, 1)
    for found in counts.values():
        values = found.tolist()
        low, high = values.index(min(values)), values.index(max(values))
        best = max(best, (values[high] - values[low], low, high), key=lambda one: one[0])
    return best[1:]


def _prove_pair(state, pair, around, counts, picked):
    torch = state.torch
    with _standing_still(state, pair.module) as drawn, state.inside():
        with torch.no_grad():
            together = _outputs(state, pair, 0, 2)
            around.settle()
            first, second = (_outputs(state, pair, n, n + 1) for n in (0, 1))
        if around.random.torch_drew(RandomState(torch, state.device)):
            raise Unsplittable(
                "it draws random numbers of its own (rand, randint, randperm), which may belong to the whole batch"
            )
        state.draws = state.draws or drawn()
        pair.kinds = joining.learn(torch, together, first, second, counts, picked)
        together = first = second = None
        if pair.with_graph:
            _check_hangs_alone(state, pair)
            _check_gradients(state, pair)
    return pair.kinds


@contextmanager
def _standing_still(state, module):
    """BatchNorm and dropout do as in inference; gives what tells whether the model draws random numbers."""
    torch, mode = state.torch, nothing_drawn_class(state.torch)()
    training = [(norm, norm.training) for norm in state.norms]
    # Dropout within a recurrent kernel is an attribute: out of training, cuDNN has no backward.
    layers = [(m, m.dropout) for m in modules_of(module) if isinstance(m, torch.nn.RNNBase) and m.dropout]
    for norm, _ in training:
        norm.training = False
    for layer, _ in layers:
        layer.dropout = 0.0
    try:
        with mode:
            yield lambda: mode.met or any(layer.training for layer, _ in layers)
    finally:
        for norm, was in training:
            norm.training = was
        for layer, was in layers:
            layer.dropout = was


def _outputs(state, pair, begin, end):
    _, args, kwargs = pair.fresh(begin, end)
    before, after, flat, unknown = [], [], [], []
    take_out((args, kwargs), state.is_tensor, before, before)
    take_out(pair.inner(pair.module, *args, **kwargs), state.is_tensor, flat, unknown)
    returned(state.torch, unknown)
    take_out((args, kwargs), state.is_tensor, after, after)
    if list(map(id, before)) != list(map(id, after)):
        raise Unsplittable("each call writes into the containers that it is given")
    return flat


# --- what is known without a call -----------------------------------------------------------------------------


def _refuse(torch, module):
    """Raise for what no proof could show: weights that are not there, hooks that would see each chunk."""
    if any(getattr(torch.nn.modules.module, "_global" + table, None) for table in _HOOKS):
        raise Unsplittable("a hook on all modules would see each chunk by itself")
    for layer in modules_of(module):
        compiled = layer.__dict__.get("_compiled_call_impl") is not None
        if isinstance(layer, torch.jit.ScriptModule) or "_orig_mod" in layer._modules or compiled:
            raise Unsplittable("the model is compiled")
        for table in _HOOKS:
            for hook in (getattr(layer, table, None) or {}).values():
                # PyTorch's own compute a weight from others (weight_norm, spectral_norm).
                if not (getattr(hook, "__module__", None) or "").startswith("torch.nn.utils"):
                    raise Unsplittable("a hook on %s would see each chunk by itself" % type(layer).__name__)
    for weight in weights_of(module):
        if type(weight) not in (torch.Tensor, torch.nn.Parameter):
            raise Unsplittable("its weights are of a kind of their own, %s" % type(weight).__name__)
        if weight.device.type == "meta" or not weight.is_leaf:
            raise Unsplittable("its weights %s" % ("are not in memory" if weight.is_leaf else "are computed"))


def returned(torch, unknown):
    """Raise where a value was returned that is no tensor and not plain: a graph may hang on it."""
    for thing in unknown:
        if not isinstance(thing, _PLAIN) and not isinstance(thing, (torch.dtype, torch.device)):
            raise Unsplittable("the model returns a %s, which can't be put together from chunks" % type(thing).__name__)


# --- the graph ------------------------------------------------------------------------------------------------


def _check_hangs_alone(state, pair):
    """Nothing but what the model returns hangs on its graph, which ends in its own weights and inputs."""
    weights = StandIns(state.torch, pair.module)
    alive, closed = [weakref.ref(one) for one in weights.stand_ins], _is_closed(state, pair, weights)
    weights = None
    state.torch.clear_autocast_cache()
    if not closed:
        raise Unsplittable("it also reads weights that are not found among its own")
    if any(ref() is not None for ref in alive):
        gc.collect()
    if any(ref() is not None for ref in alive):
        raise Unsplittable("more than what it returns hangs on its graph: an auxiliary loss, or features kept")


def _is_closed(state, pair, weights):
    """Tell whether the graph of the outputs ends in the model's own weights and inputs alone."""
    flat, found = [], set()
    with weights, state.torch.enable_grad():
        inputs, args, kwargs = pair.fresh(0, 2)
        take_out(pair.inner(pair.module, *args, **kwargs), state.is_tensor, flat)
    known = {id(leaf) for leaf in (*inputs, *weights.stand_ins)}
    ahead = [output.grad_fn for output in flat if output.grad_fn is not None]
    while ahead and len(found) <= _MAX_NODES:
        node = ahead.pop()
        if node not in found:
            found.add(node)
            ahead.extend(other for other, _ in node.next_functions if other is not None)
    return not ahead and all(id(node.variable) in known for node in found if hasattr(node, "variable"))


# --- gradients ------------------------------------------------------------------------------------------------


def _check_gradients(state, pair):
    """Every gradient of the two samples together is that of the two one by one, whose sign is turned around: their
    sum is nothing. So only one set of gradients is there at a time."""
    torch, weights = state.torch, state.weights
    start = RandomState(torch, state.device)
    pair.counts = joining.label_counts(torch, pair.leaves, pair.axes)
    weights.forget()
    try:
        pair.chunks, pair.kept = [(0, 2, start)], pair.run(0, 2)
        given = [_given_for(torch, output) for output in pair.kept[1]]
        wanted = pair.backward_chunks(given)
        sizes = [_size(stand_in.grad) for stand_in in weights.stand_ins]
        pair.chunks = [(0, 1, start), (1, 2, start)]
        found = pair.backward_chunks([None if one is None else -one for one in given])
        rests = [_size(stand_in.grad) for stand_in in weights.stand_ins]
    finally:
        weights.forget()
    for one, other in zip(wanted, found):  # noqa: B905
        sizes.append(_size(one))
        rests.append(None if one is None and other is None else _size(one + other))
    rough = state.is_mixed() or any(weight.element_size() < 4 for weight in weights.weights)
    for size, rest in zip(sizes, rests):  # noqa: B905
        if not _is_nothing(rest, size, 5e-2 if rough else 5e-3):
            raise Unsplittable("its gradients in chunks are not those of the full batch")


def _given_for(torch, output):
    """A gradient for an output that has one, no two of its elements alike; nothing is drawn for it."""
    if not output.requires_grad:
        return None
    steps = torch.arange(output.numel(), device=output.device, dtype=torch.float32)
    return steps.mul_(0.7).cos_().reshape(output.shape).to(output.dtype)


def _size(gradient):
    """The largest element of a gradient, and its norm."""
    if gradient is None:
        return None
    values = gradient.coalesce().values() if gradient.is_sparse else gradient
    values = values.detach()
    if not values.numel():
        return 0.0, 0.0
    return float(values.abs().max()), float(values.norm())


def _is_nothing(rest, size, tolerance):
    """Tell whether the rest of two gradients that cancel is rounding, by each element and by all together."""
    if rest is None or size is None:
        return rest is size
    return all(one <= tolerance * of + 1e-7 for one, of in zip(rest, size))  # noqa: B905


# --- what a call leaves behind --------------------------------------------------------------------------------


class Around:
    """What a call of the model may change beside what it returns, as it was before.

    Buffers, attributes, what lists, dicts and sets among them hold, and the random generators: a call that failed in
    the middle has moved some of them, and is made again.
    """

    def __init__(self, state, module):
        self.torch, self.module, self.device = state.torch, module, state.device
        self.apart = {id(norm) for norm in state.norms}
        self.random = RandomState(self.torch, self.device)
        self.tables = [(table, dict(table)) for table in self._tables()]
        held = [value for table, _ in self.tables for key, value in table.items() if key not in _TABLES]
        self.contents = [
            (value, value.copy()) for value in held if type(value) in (list, dict, set) and len(value) <= _MAX_CONTENTS
        ]
        with self.torch.no_grad():
            self.copies = [(buffer, buffer.clone()) for buffer in buffers_of(module)]

    def _tables(self):
        for layer in modules_of(self.module):
            yield layer.__dict__
            yield layer._buffers

    def _marks(self):
        found = {}
        for layer in modules_of(self.module):
            if id(layer) in self.apart:
                continue
            for table in (layer.__dict__, layer._buffers):
                for key, value in table.items():
                    if key not in _TABLES and key not in ("training", "dropout"):
                        found[id(table), key] = type(layer).__name__, self._mark(value)
        return found

    def _mark(self, value):
        if isinstance(value, self.torch.Tensor):
            return id(value), 0 if value.is_inference() else value._version
        if isinstance(value, (list, dict, set)):
            return id(value), len(value)
        return value if isinstance(value, _PLAIN) else id(value)

    def settle(self):
        """What a first call has left on the module may be a cache; from here on nothing may change."""
        self.marks = self._marks()
        self.alive = [dict(table) for table in self._tables()]  # while they live, no other has their address

    def check(self, call):
        """Raise where calls have changed the model or their inputs, or drawn what can't be drawn for a chunk."""
        if not call.is_untouched():
            raise Unsplittable("each call changes its inputs or weights in place")
        now = self._marks()
        for where in {**self.marks, **now}:
            if now.get(where) != self.marks.get(where):
                name = (now.get(where) or self.marks.get(where))[0]
                raise Unsplittable("each call changes %s.%s" % (name, where[1]))
        if self.random.others_drew(RandomState(self.torch, self.device)):
            raise Unsplittable("it draws random numbers with Python's or NumPy's generators")

    def undo(self):
        """Make it all as it was."""
        for table, before in self.tables:
            if len(table) != len(before) or any(table.get(key) is not value for key, value in before.items()):
                table.clear()
                table.update(before)
        for held, copy in self.contents:
            held.clear()
            (held.extend if type(held) is list else held.update)(copy)
        with self.torch.no_grad():
            for buffer, copy in self.copies:
                buffer.copy_(copy)
        self.random.put_back()
