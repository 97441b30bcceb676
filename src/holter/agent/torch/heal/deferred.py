"""Outputs of a call in chunks that are computed when they are read (PyTorch), so that a loss is made chunk by chunk.

A model that has to be run in chunks gives back tensors that know their shape and not yet their elements. What the
script makes of them, sample by sample (casts, reshapes, a softmax, a loss), is taken down. When the loss is asked for,
by its backward or by its number, each chunk goes through the model, through what was taken down and through backward,
one after the other, as by hand with gradient accumulation: nothing is computed twice, and neither outputs nor loss are
ever there for the full batch. That this comes to the same is proven on a few samples first, as ever (`proof`).

Whatever is not taken down meets the outputs of the full batch, which are computed then and put together (`chunks`).
So do outputs that are still wanted when the weights are about to change.
"""

import functools
import sys
import weakref
from importlib import import_module

from ...heal.leaves import bytes_of, take_out
from ...heal.out_of_memory import drop_own_frames
from .pending import Pending

_SMALL_SHARE = 0.02  # of the limit
# What is told from the shape alone.
_METADATA = frozenset((
    "size", "dim", "numel", "nelement", "ndimension", "element_size", "is_floating_point", "is_complex", "get_device",
    "is_contiguous", "stride", "__len__", "__hash__",
))  # fmt: skip
# What is made of each sample by itself, and sums and means over all of them.
_TAKEN_DOWN = frozenset((
    "add", "sub", "rsub", "mul", "div", "true_divide", "neg", "pow", "abs", "square", "sqrt", "rsqrt", "exp", "log",
    "log1p", "sigmoid", "tanh", "relu", "softplus", "gelu", "logsigmoid", "clamp", "clamp_min", "clamp_max", "sign",
    "maximum", "minimum", "where", "eq", "ne", "lt", "le", "gt", "ge", "logical_not", "logical_and", "logical_or",
    "__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__div__", "__truediv__", "__rtruediv__",
    "__rdiv__", "__pow__", "__neg__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__and__", "__or__",
    "__invert__", "float", "half", "bfloat16", "double", "long", "int", "bool", "to", "type_as", "detach",
    "contiguous", "clone", "view", "reshape", "flatten", "squeeze", "unsqueeze", "transpose", "__getitem__", "gather",
    "softmax", "log_softmax", "normalize", "mean", "sum", "max", "min", "argmax", "argmin", "amax", "norm",
    "cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div",
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_similarity", "gaussian_nll_loss",
    "poisson_nll_loss",
))  # fmt: skip
# What needs no graph.
_READ = frozenset(("item", "tolist", "__float__", "__int__", "__bool__", "__format__"))
# What is told of the tensor itself, and no attribute of it.
_VIEWS = frozenset(("T", "H", "mT", "mH", "real", "imag"))
# What is hung on a tensor, so that a backward meets it there.
_HUNG_ON = frozenset(("__set__", "register_hook", "register_post_accumulate_grad_hook", "retain_grad"))
_OPERATORS = frozenset((
    "__iadd__", "__isub__", "__imul__", "__idiv__", "__itruediv__", "__ifloordiv__", "__imod__", "__ipow__", "__iand__",
    "__ior__", "__ixor__", "__ilshift__", "__irshift__", "__imatmul__",
))  # fmt: skip
_IN_PLACE = {"add_": "add", "sub_": "sub", "mul_": "mul", "div_": "div", "__idiv__": "div"}  # `loss += more`


class Deferring:
    """Makes tensors without elements, and sees to it that none outlives the weights it hangs on."""

    def __init__(self, split):
        self.split, self.torch = split, split.torch
        self.kind = deferred_class(split.torch)
        self.pending = weakref.WeakSet()
        self.to_run = []  # those whose model has running statistics: they are run even where nobody wants their outputs
        self.within_step = False
        self.fake_mode = None

    def outputs(self, call):
        """The outputs of a call that is proven to come to the same in chunks; None where they are made at once."""
        if call.state.axis or any(kind.axis if hasattr(kind, "axis") else len(kind.shape) for kind in call.kinds):
            return None
        if self.fake_mode is None:
            self._arm()
        fakes = [self._fake(kind, call) for kind in call.kinds]
        # An evaluation's outputs are most often read at once.
        if not call.with_graph and (
            bytes_of(fakes) <= self.small(call.state) or self.torch.is_inference_mode_enabled()
        ):
            return None
        call.state.refresh()
        pending = Pending(self, call, fakes)
        self.pending.add(pending)
        if call.state.has_statistics():
            self.to_run.append(pending)
        return pending.outputs()

    def made_real(self, args, kwargs):
        """What a model is called with, where that is the output of another."""
        if self.fake_mode is None:
            return args, kwargs
        return _made_real(self.kind, args, kwargs)

    def small(self, state):
        """Up to so many bytes outputs are kept, in case they are read later."""
        return _SMALL_SHARE * state.budget.limit

    def _arm(self):
        self.fake_mode = import_module("torch._subclasses.fake_tensor").FakeTensorMode()
        optimizers = sys.modules["torch.optim.optimizer"]
        optimizers.register_optimizer_step_pre_hook(self._before_step)
        optimizers.register_optimizer_step_post_hook(self._after_step)

    def _fake(self, kind, call):
        shape = list(kind.shape)
        if hasattr(kind, "axis"):
            shape[kind.axis] = kind.each * call.size
        with self.fake_mode:
            made = self.torch.empty(shape, dtype=kind.dtype, device=call.device)
            return made.requires_grad_() if kind.graded else made

    def _close(self, concerns):
        """The weights of some models are about to change."""
        for one in [one for one in self.pending if not one.closed and concerns(one)]:
            try:
                one.close()
            except Exception as error:
                self.split.agent.guard.caught("split", error)
        self.to_run = [one for one in self.to_run if not one.closed]

    def _before_step(self, optimizer, *_args):
        changed = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
        self._close(lambda one: any(id(thing) in changed for thing in one.hangs_on()))
        self.within_step = True

    def _after_step(self, *_args):
        self.within_step = False

    def after_backward(self, state):
        """Within an update that runs forward and backward itself, or without an optimizer, weights change next."""
        if self.within_step or state.is_updated_by_hand():
            engine = self.torch.autograd.Variable._execution_engine
            engine.queue_callback(lambda: self._close(lambda one: one.state is state))


@functools.lru_cache(maxsize=1)
def deferred_class(torch):
    """The class of tensors without elements."""

    class Deferred(torch.Tensor):  # type: ignore[name-defined, misc]
        @staticmethod
        def __new__(cls, pending, slot, shape, dtype, device):
            made = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device=device)
            made.pending, made.slot, made.moved = pending, slot, False
            made.itself = made.kept = None  # the tensor itself; its elements, when the weights have changed since
            return made

        def backward(self, *args, **kwargs):
            pending = self.pending
            if pending is None:
                return self.itself.backward(*args, **kwargs)
            plain = not args and kwargs.get("gradient") is None and not kwargs.get("create_graph")
            args, kwargs = _made_real(type(self), args, kwargs)
            with torch.enable_grad():
                real = pending.real(self.slot, plain)
            return real.backward(*args, **kwargs)

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            name, kwargs = getattr(func, "__name__", ""), kwargs or {}
            if name == "__get__" and getattr(func, "__self__", None) is torch.Tensor.data:
                func, name = torch.Tensor.detach, "detach"
            if name == "__get__" and getattr(getattr(func, "__self__", None), "__name__", "") in _VIEWS:
                name = "view of another kind"
            if name in _METADATA or name == "__get__":
                made = args[0] if type(args[0]) is cls and name != "__hash__" else None
                if made is not None and made.itself is not None:
                    return func(made.itself, *args[1:], **kwargs)
                with torch._C.DisableTorchFunctionSubclass():
                    return func(*args, **kwargs)
            try:
                if name in _IN_PLACE and args and type(args[0]) is cls:
                    return _in_place(cls, torch, name, args, kwargs)
                return _apply(cls, torch, func, name, args, kwargs)
            except BaseException as error:
                drop_own_frames(error)
                raise

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            leaves = []
            build = take_out((args, kwargs or {}), lambda thing: type(thing) is cls, leaves)
            if func._schema.is_mutable:
                for leaf in leaves:
                    _settle(leaf)
            args, kwargs = build(iter([_elements(leaf) for leaf in leaves]))
            return func(*args, **kwargs)

    return Deferred


def _settle(made):
    """Before something is written to it or hung on it: it has to be the tensor that the script takes it for."""
    if made.itself is None and not made.pending.closed:
        made.pending.settle(made.slot)


def _made_real(cls, args, kwargs):
    leaves = []
    build = take_out((args, kwargs), lambda thing: type(thing) is cls, leaves)
    return build(iter([_itself(leaf) for leaf in leaves])) if leaves else (args, kwargs)


def _changed(name, args, kwargs):
    """What an operation writes to, or hangs something on, by the names that PyTorch gives such operations."""
    found = list(kwargs["out"]) if isinstance(kwargs.get("out"), (list, tuple)) else [kwargs.get("out")]
    in_place = name[-1:] == "_" != name[-2:-1] or name == "__setitem__" or name in _OPERATORS
    if in_place or name in _HUNG_ON or kwargs.get("inplace") or (name == "relu" and True in args[1:]):
        found += args[:1] or [kwargs.get("input")]
    return found


def _elements(made):
    """For a way into PyTorch that is not seen: gradients come back by a node of its own."""
    if made.itself is not None:
        return made.itself.detach()
    if made.kept is not None:
        return made.kept
    if made.moved or made.pending.closed:
        made.pending.call.refuse("an output was read after the weights had changed")
    return made.pending.elements(made.slot)


def _apply(cls, torch, func, name, args, kwargs):
    """An operation: taken down, or done with the tensors themselves."""
    leaves = []
    build = take_out((args, kwargs), lambda thing: type(thing) is cls, leaves)
    changed = [one for one in _changed(name, args, kwargs) if type(one) is cls]
    for made in changed:
        _settle(made)
    own = all(_is_as_made(torch, leaf) for leaf in leaves)
    waiting = {leaf.pending for leaf in leaves if leaf.itself is None}
    if own and len(waiting) == 1 and name in _TAKEN_DOWN and not changed:
        some, more = build(iter([leaf if leaf.itself is None else leaf.itself for leaf in leaves]))
        found = waiting.pop().guarded_take_down(func, name, some, more)
        if found is not None:
            return found
    if name in _READ and own and len(waiting) == 1 and (found := waiting.pop().known(args[0].slot)) is not None:
        return func(found, *args[1:], **kwargs)
    if own:
        for leaf in sorted((leaf for leaf in leaves if leaf.itself is None), key=lambda leaf: leaf.slot):
            _itself(leaf)  # what others are made of comes first: they hang on it
        leaves = [_itself(leaf) for leaf in leaves]
        args, kwargs = build(iter(leaves))
    if any(type(leaf) is cls for leaf in leaves):
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)
    return func(*args, **kwargs)


def _itself(made):
    """After the weights have changed, what was kept of it is met through its own node in the graph."""
    if made.itself is None and not made.pending.closed:
        return made.pending.real(made.slot)
    return made if made.itself is None else made.itself


def _is_as_made(torch, made):
    """False where somebody has given it another place in the graph: a function of the script's, `requires_grad_`."""
    with torch._C.DisableTorchFunctionSubclass():
        graded, node = made.requires_grad, made.grad_fn
    if not made.graded:
        return not graded
    return node is not None and getattr(node, "call", None) is made.call


def _in_place(cls, torch, name, args, kwargs):
    """Whoever holds the tensor holds the result from here on, where no other shares its memory."""
    made = args[0]
    if made.itself is None and not made.shape and not made.pending.is_shared(made.slot):
        found = _apply(cls, torch, getattr(torch.Tensor, _IN_PLACE[name]), _IN_PLACE[name], args, kwargs)
        if type(found) is cls and found.shape == made.shape and found.dtype == made.dtype:
            made.slot, made.moved = found.slot, True
            made.pending.alive[made.slot] = weakref.ref(made)
            return made
    return _apply(cls, torch, getattr(torch.Tensor, name), name, args, kwargs)
