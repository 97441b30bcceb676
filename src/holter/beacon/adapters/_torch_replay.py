"""One more forward pass of the same batch, in which every operation is looked at: where numbers stop being numbers.

It runs only code that does nothing but compute (`_pure_code`), under `no_grad`, on copies of buffers and inputs, with
the random generators put back, and stops when its time is over. The training goes on as if it had not been.
"""

import random
import sys
from contextlib import ExitStack

from ..user_frame import is_user_file, place
from . import _torch_edges as edges
from ._pure_code import Purity
from ._torch_finite import read, readable

_LARGE = 1 << 22
_MODULES = 2000
_ELEMENTS = 100_000_000


class _Enough(Exception):
    """The time is over, or what was looked for is found."""


class Replay:
    """May a model be run once more, and what happens then."""

    def __init__(self, torch, models, clock):
        self.torch = torch
        self.models = models
        self.clock = clock
        self.verdicts = {}
        self.purity = Purity(torch.Tensor, torch.nn.Module, self.may_call)
        self.names = {}
        for model in models:
            for name, module in model.named_modules():
                self.names.setdefault(id(module), name)

    def may_call(self, module):
        """True for a module whose parts are PyTorch's own layers or only compute, with no hooks on them."""
        known = self.verdicts.get(id(module))
        if known is None:
            self.verdicts[id(module)] = True  # within itself
            known = self.verdicts[id(module)] = self._judge(module)
        return known

    def _judge(self, module):
        parts = list(module.modules())
        if len(parts) > _MODULES:
            return False
        for part in parts:
            hooks = (part._forward_hooks, part._forward_pre_hooks)
            if any(hooks) or isinstance(part, self.torch.jit.ScriptModule) or "parametrizations" in part._modules:
                return False
            forward = type(part).forward
            if "forward" in vars(part):
                return False
            code = getattr(forward, "__code__", None)
            if code is not None and is_user_file(code.co_filename):
                if not self._forward_pure(part, forward):
                    return False
            elif not (type(part).__module__ or "").startswith("torch.nn.") or "parallel" in type(part).__module__:
                return False
        return True

    def _forward_pure(self, part, forward):
        from ._pure_code import function_node

        node = function_node(forward)
        if node is None or node.decorator_list:
            return False
        names = [arg.arg for arg in node.args.args]
        env = dict(forward.__globals__)
        env[names[0] if names else "self"] = part
        return self.purity.statements(node.body, env, names[1:])

    # --- the pass itself ----------------------------------------------------------------------------------

    def run(self, act, slopes=False, random_state=None):
        """Call `act()` with everything restored afterwards; fields of the operation that was found, or {}."""
        torch = self.torch
        held = sum(p.numel() for model in self.models for p in model.parameters())
        if held > _ELEMENTS:
            return {}
        hooks = getattr(torch.nn.modules.module, "_global_forward_hooks", None)
        if hooks or getattr(torch.nn.modules.module, "_global_forward_pre_hooks", None):
            return {}
        probe = _probe_class(torch)(self, slopes)
        with ExitStack() as stack:
            stack.callback(torch.set_rng_state, torch.get_rng_state())
            stack.callback(random.setstate, random.getstate())
            numpy_random = sys.modules.get("numpy.random")
            if numpy_random is not None:
                stack.callback(numpy_random.set_state, numpy_random.get_state())
            stack.enter_context(torch.no_grad())
            for model in self.models:
                buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
                if buffers:
                    swap = torch.nn.utils.stateless._reparametrize_module
                    stack.enter_context(swap(model, buffers))
            stack.enter_context(probe)
            try:
                if random_state is not None:
                    torch.set_rng_state(random_state)
                act()
            except _Enough:
                pass
            except Exception:
                if not probe.found():
                    return {}
        return probe.found()

    def module_name(self, frame):
        """The module whose forward the frame is in, by its name in the model."""
        while frame is not None:
            if frame.f_code.co_name == "forward" and "self" in frame.f_code.co_varnames:
                owner = frame.f_locals.get("self")
                if id(owner) in self.names:
                    return "%s (%s)" % (self.names[id(owner)] or "the model", type(owner).__name__)
            frame = frame.f_back
        return ""


def _probe_class(torch):
    class Probe(torch.overrides.TorchFunctionMode):
        """Sees each call of PyTorch's, with what went in and what came out."""

        def __init__(self, replay, slopes):
            super().__init__()
            self.replay = replay
            self.slopes = slopes
            self.origin = {}  # the first operation that made an infinity or a NaN of finite values
            self.broken = {}  # the first that made a NaN
            self.edge = {}  # the first at which a slope is infinite

        def found(self):
            """The operation to blame."""
            if self.broken and not self.broken.pop("inf_in", False):
                return self.broken
            return self.origin or self.broken or self.edge

        def __torch_function__(self, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            out = func(*args, **kwargs)
            try:
                self._look(func, args, kwargs, out)
            except _Enough:
                raise
            except Exception:
                pass  # an operation of which nothing is known
            return out

        def _look(self, func, args, kwargs, out):
            replay = self.replay
            if replay.clock.over():
                raise _Enough
            outs = [t for t in _flat((out,)) if readable(torch, t) and t.numel() <= _LARGE]
            if not outs:
                return
            name = edges.plain(getattr(func, "__name__", ""))
            ins = [t for t in _flat((args, kwargs)) if readable(torch, t) and t.numel() <= _LARGE]
            after = [read(torch, t, replay.clock) for t in outs]
            if any(found is None for found in after):
                raise _Enough
            if not any(found.bad for found in after):
                if self.slopes and not self.edge:
                    a, b = _pair(args, kwargs)
                    words = edges.backward(name, a, b) if readable(torch, a) else ""
                    if words:
                        self.edge = self._told(func, name, words, outs[0], args, kwargs)
                return
            before = [read(torch, t, replay.clock) for t in ins]
            if any(found is None for found in before):
                raise _Enough
            if not self.origin and name not in edges.PLACING and not any(found.bad for found in before):
                a, b = _pair(args, kwargs)
                words = edges.forward(name, a, b, outs[0]) if torch.is_tensor(a) else ""
                self.origin = self._told(func, name, words, outs[0], args, kwargs)
            if any(found.nan for found in after) and not any(found.nan for found in before):
                a, b = _pair(args, kwargs)
                words = edges.forward(name, a, b, outs[0]) if torch.is_tensor(a) else ""
                self.broken = self._told(func, name, words, outs[0], args, kwargs)
                # An infinity that was put there on purpose, such as a mask's, is no cause by itself.
                self.broken["inf_in"] = any(found.inf for found in before) and bool(self.origin)
                if not self.slopes:
                    raise _Enough

        def _told(self, func, name, words, out, args, kwargs):
            frame = sys._getframe(2)
            module = self.replay.module_name(frame)
            while frame is not None and not is_user_file(frame.f_code.co_filename):
                frame = frame.f_back
            told = dict(place(frame), op=name, via="replay")
            if words:
                told["edge"] = words
            if module:
                told["module"] = module
            told["op_dtype"] = str(out.dtype).replace("torch.", "")
            high = [found.high for found in (read(torch, t, self.replay.clock) for t in _flat((args, kwargs))
                    if readable(torch, t)) if found is not None]  # fmt: skip
            if high:
                told["largest_in"] = float("%.6g" % max(high))
            if out.dtype in (torch.float16, torch.bfloat16):
                told["finite_in_float32"] = self._in_float32(func, args, kwargs)
            return told

        def _in_float32(self, func, args, kwargs):
            def wide(thing):
                if isinstance(thing, (tuple, list)):
                    return type(thing)(wide(one) for one in thing)
                return thing.float() if readable(torch, thing) else thing

            try:
                with torch.autocast("cpu", enabled=False):
                    out = func(*wide(tuple(args)), **{key: wide(value) for key, value in kwargs.items()})
            except Exception:
                return None
            outs = [read(torch, t, self.replay.clock) for t in _flat((out,)) if readable(torch, t)]
            return bool(outs) and not any(found is None or found.bad for found in outs)

    return Probe


def _pair(args, kwargs):
    values = [*args, *kwargs.values()]
    return (values[0] if values else None), (values[1] if len(values) > 1 and _numeric(values[1]) else None)


def _numeric(value):
    return hasattr(value, "numel") or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _flat(things):
    for thing in things:
        if isinstance(thing, (tuple, list)):
            yield from _flat(thing)
        elif isinstance(thing, dict):
            yield from _flat(thing.values())
        elif thing is not None:
            yield thing
