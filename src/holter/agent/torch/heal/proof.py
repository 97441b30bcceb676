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
from ...heal.out_of_memory import broke_onednn, forget, let_go
from ..observe.visibility import buffers_of, modules_of, weights_of
from . import joining
from .around import HOOKS, PLAIN, Around, RandomState, nothing_drawn_class
from .by_sample import Figures
from .stand_ins import StandIns

_MAX_NODES = 200_000  # of a graph that is walked through


def prove(state, call, again=False):
    """How each output of the model joins, and what makes of them that which it returns; raises where chunks can't be
    shown to come to the same."""
    if call.size < 2:
        raise Unsplittable("the batch has one sample" if call.size else "the batch has no samples")
    torch, module = state.torch, call.module
    refuse(torch, module)
    around = Around(state, modules_of(module), given=call.beside_tensors)
    around.settle()
    try:
        with _standing_still(state, module) as mode, state.inside():
            pair = call.of((0, 1))
            try:
                with torch.no_grad():
                    _outputs(state, pair, 0, 2)
                call.ignored = sorted(mode.ignored)
                counts = joining.label_counts(torch, call.leaves, call.axes, call.ignored)
                picked = joining.unlike(torch, counts)
                call.told_apart = picked is not None
                if picked is not None and pair.is_untouched():
                    pair = call.of(picked)
                found = _prove_pair(state, pair, around, mode, counts, picked or (0, 1))
            finally:
                around.check(pair)  # where it says more, that is the reason
    except Unsplittable:
        raise
    except Exception as error:
        words = "%s: %s" % (type(error).__name__, str(error)[:200])
        forget(error)
        if broke_onednn(error) and not again:
            state.ran_out(error)
            return prove(state, call, again=True)
        raise Unsplittable("the model could not be tried out with two samples (%s)" % words) from None
    finally:
        around.undo()
    return found


def _prove_pair(state, pair, around, mode, counts, picked):
    torch = state.torch
    with torch.no_grad():
        around.settle()
        together = _outputs(state, pair, 0, 2, mode)
        rebuild, beside, figures = pair.rebuild, pair.beside, mode.figures
        given = [figures.number(output) for output in together]
        first = _outputs(state, pair, 0, 1, mode)
        bent, mode.figures = figures.bent(mode.figures, given), None
        second = _outputs(state, pair, 1, 2)
    if pair.beside != beside:
        raise Unsplittable("the model returns a number that is no tensor, and another for each chunk")
    if around.random.torch_drew(RandomState(torch, state.device)):
        raise Unsplittable(
            "it draws random numbers of its own (rand, randint, randperm), which may belong to the whole batch"
        )
    state.draws = state.draws or mode.met or any(layer.training for layer, _ in mode.recurrent)
    pair.kinds = joining.learn(torch, together, first, second, counts, picked, pair.rules)
    if any(n in bent and not hasattr(kind, "axis") for n, kind in zip(given, pair.kinds)):  # noqa: B905
        raise Unsplittable("a loss or figure of the whole batch need not be the sum or mean of its samples'")
    together = first = second = None
    if state.is_mixed():
        _check_in_full_precision(state, pair, counts, picked)
    if pair.with_graph:
        _check_hangs_alone(state, pair)
        halves = any(weight.element_size() < 4 for weight in state.weights.weights)
        _check_gradients(state, pair, mode.rounds or halves or state.is_mixed())
        for kind, graded in zip(pair.kinds, pair.graded):  # noqa: B905
            kind.graded = graded
    return pair.kinds, rebuild


def _check_in_full_precision(state, pair, counts, picked):
    """Where mixed precision hides a small difference, it shows; a model that can't be called so shows nothing."""
    try:
        with state.torch.no_grad(), state.torch.autocast(state.device.type, enabled=False):
            together, first, second = (_outputs(state, pair, *rows) for rows in ((0, 2), (0, 1), (1, 2)))
    except Exception as error:
        let_go(error)
        return
    joining.learn(state.torch, together, first, second, counts, picked, pair.rules)


@contextmanager
def _standing_still(state, module):
    """BatchNorm and dropout do as in inference; gives what has met whatever draws random numbers."""
    torch, mode = state.torch, nothing_drawn_class(state.torch)()
    training = [(norm, norm.training) for norm in state.norms]
    # Dropout within a recurrent kernel is an attribute: out of training, cuDNN has no backward.
    layers = [(m, m.dropout) for m in modules_of(module) if isinstance(m, torch.nn.RNNBase) and m.dropout]
    for norm, _ in training:
        norm.training = False
    for layer, _ in layers:
        layer.dropout = 0.0
    try:
        mode.recurrent = layers
        with mode:
            yield mode
    finally:
        for norm, was in training:
            norm.training = was
        for layer, was in layers:
            layer.dropout = was


def _outputs(state, pair, begin, end, mode=None):
    _, args, kwargs = pair.fresh(begin, end)
    before, after, flat, unknown, tensors = [], [], [], [], []
    take_out((args, kwargs), state.is_tensor, before, before)
    if mode is not None:
        take_out((args, kwargs), state.is_tensor, tensors)
        samples = [leaf for leaf, axis in zip(tensors, pair.axes) if axis is not None]  # noqa: B905
        mode.figures = Figures(state.is_tensor, samples)
    pair.rebuild = take_out(pair.inner(pair.module, *args, **kwargs), state.is_tensor, flat, unknown)
    returned(state.torch, unknown)
    pair.beside = unknown
    take_out((args, kwargs), state.is_tensor, after, after)
    if list(map(id, before)) != list(map(id, after)):
        raise Unsplittable("each call writes into the containers that it is given")
    return flat


# --- what is known without a call -----------------------------------------------------------------------------


def refuse(torch, module):
    """Raise for what no proof could show: weights that are not there, hooks that would see each chunk."""
    if any(getattr(torch.nn.modules.module, "_global" + table, None) for table in HOOKS):
        raise Unsplittable("a hook on all modules would see each chunk by itself")
    for layer in modules_of(module):
        compiled = layer.__dict__.get("_compiled_call_impl") is not None
        if isinstance(layer, torch.jit.ScriptModule) or "_orig_mod" in layer._modules or compiled:
            raise Unsplittable("the model is compiled")
        for table in HOOKS:
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
        if not isinstance(thing, PLAIN) and not isinstance(thing, (torch.dtype, torch.device)):
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


def _check_gradients(state, pair, rounds):
    """Every gradient of the two samples together is that of the two one by one, whose sign is turned around: their
    sum is nothing. So only one set of gradients is there at a time."""
    torch, weights = state.torch, state.weights
    start = RandomState(torch, state.device)
    pair.counts = joining.label_counts(torch, pair.leaves, pair.axes, pair.ignored)
    weights.forget()
    before = [(weight, weight.grad, weight.grad is not None and weight.grad._version) for weight in weights.weights]
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
        past = [
            one for one in before if one[0].grad is not one[1] or (one[2] is not False and one[1]._version != one[2])
        ]
        for weight, gradient, _ in past:  # what both have added to a gradient that was there cancels
            weight.grad = gradient
    if past:
        raise Unsplittable("a backward within its own gives its weights gradients (a reentrant checkpoint)")
    for one, other in zip(wanted, found):  # noqa: B905
        sizes.append(_size(one))
        rests.append(None if one is None and other is None else _size(one + other))
    if pair.program and not any(size[0] for size in sizes if size is not None):
        raise Unsplittable("two of its samples have no gradient, by which it could be shown")
    for size, rest in zip(sizes, rests):  # noqa: B905
        if not _is_nothing(rest, size, 5e-2 if rounds else 5e-3):
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
