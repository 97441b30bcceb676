"""The proof that comes before the first act on a model (PyTorch): on two samples of its batch, and undone.

Shown is that the call run in chunks gives the same outputs and the same gradient for every weight and input, and that
nothing but the values it returns hangs on its graph: no auxiliary loss left on a module, no features kept by a hook, no
weight from elsewhere. Meanwhile BatchNorm does as in inference and nothing is drawn at random: there two samples differ
from one by what they are made to do. What can't be shown raises `Unsplittable` with the reason, and the call is left as
it is.
"""

import functools
import gc
import random
import sys
import weakref
from contextlib import contextmanager

from ...heal.leaves import Unsplittable, take_out
from ...heal.out_of_memory import let_go
from ..observe.visibility import buffers_of, modules_of, weights_of
from . import joining

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
    refuse(torch, module)
    around = Around(state, modules_of(module))
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


def refuse(torch, module):
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
    for buffer in buffers_of(module):
        if type(buffer) is not torch.Tensor or buffer.layout is not torch.strided or buffer.device.type == "meta":
            raise Unsplittable("its buffers are of a kind of their own, %s" % type(buffer).__name__)


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
    the middle has moved some of them, and is made again. Of buffers beyond `max_bytes` it is only known whether an
    operation has written to them.
    """

    def __init__(self, state, modules, max_bytes=float("inf")):
        self.torch, self.modules, self.device = state.torch, list(modules), state.device
        self.apart = {id(norm) for norm in state.norms}
        self.random = RandomState(self.torch, self.device)
        self.tables = [(table, dict(table)) for table in self._tables()]
        held = [value for table, _ in self.tables for key, value in table.items() if key not in _TABLES]
        self.contents = [
            (value, value.copy()) for value in held if type(value) in (list, dict, set) and len(value) <= _MAX_CONTENTS
        ]
        self.copies, self.versions = self._copied(state.split.unseen.is_plain, max_bytes)

    def _copied(self, is_plain, max_bytes):
        """Buffers with a copy and a name of each, None for what BatchNorm moves; and the others with their version."""
        copies, versions, seen, strided = [], [], set(), self.torch.strided
        for layer in self.modules:
            for name, buffer in layer.__dict__["_buffers"].items():
                if buffer is None or id(buffer) in seen or not is_plain(buffer) or buffer.layout is not strided:
                    continue
                seen.add(id(buffer))
                size = buffer.numel() * buffer.element_size()
                if size > max_bytes or 0 in buffer.stride():  # elements that lie at one place can't be written back
                    versions.append((buffer, _version(buffer)))
                else:
                    max_bytes -= size
                    name = None if id(layer) in self.apart else "%s.%s" % (type(layer).__name__, name)
                    copies.append((buffer, buffer.detach().clone(), name))
        return copies, versions

    def _tables(self):
        for layer in self.modules:
            yield layer.__dict__
            yield layer.__dict__["_buffers"]

    def _marks(self):
        found = {}
        for layer in self.modules:
            if id(layer) in self.apart:
                continue
            for table in (layer.__dict__, layer._buffers):
                for key, value in table.items():
                    if key not in _TABLES and key not in ("training", "dropout"):
                        found[id(table), key] = type(layer).__name__, self._mark(value)
        return found

    def _mark(self, value):
        if isinstance(value, self.torch.Tensor):
            return id(value), _version(value)
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
        # Running statistics are written to past their version.
        for buffer, copy, name in self.copies:
            if name is not None and not self.torch.equal(buffer, copy):
                raise Unsplittable("each call changes %s" % name)
        if self.random.others_drew(RandomState(self.torch, self.device)):
            raise Unsplittable("it draws random numbers with Python's or NumPy's generators")

    def undo(self):
        """Make it all as it was; tells whether it is. A graph that was made before may go on: no version is moved."""
        for table, before in self.tables:
            if len(table) != len(before) or any(table.get(key) is not value for key, value in before.items()):
                table.clear()
                table.update(before)
        for held, copy in self.contents:
            held.clear()
            (held.extend if type(held) is list else held.update)(copy)
        for buffer, copy, name in self.copies:
            if name is None or not self.torch.equal(buffer, copy):
                buffer.data.copy_(copy)
        self.random.put_back()
        return all(_version(buffer) == version for buffer, version in self.versions)


def _version(tensor):
    return 0 if tensor.is_inference() else tensor._version


# --- Stand-ins for a model's weights, which gather the gradients of all chunks before the weights themselves see any
# A stand-in is a leaf over the same memory. So hooks on a weight, gradients that were there before, and whoever steps
# within backward meet one gradient of the full batch, as they would have without the split.


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


# --- The random generators that a call of a model may draw from: as they are at one moment, and silenced for a proof
# Each chunk draws its own dropout masks and noise, and draws them again when it is computed a second time. They are not
# those that the full batch would have drawn: a model that draws is split as `equivalent`.


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
