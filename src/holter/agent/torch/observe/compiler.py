"""PyTorch's compiler beside us: its time is a phase, our functions are run and not compiled, our hooks outlast it."""

import functools
import inspect
import sys
from types import CodeType

from ....record import ring_format as f

# They ask whether they are being compiled, and are then as if they were not there.
_STEP_ASIDE = frozenset(("__call__", "train", "clip_grad_norm_", "scale", "_module_init", "_compile"))


def watch(adapter):
    """Compilation as a phase, through the compiler's own callbacks; older releases have none."""
    beat, guard, hook = adapter.beat, adapter.guard, adapter.agent.hook

    def phase(callback):
        before = []

        def begin(*_args):
            before.append(beat.enter(f.COMPILE))

        def end(*_args):
            if before:
                beat.enter(before.pop())

        callback.on_compile_start(guard(begin))
        callback.on_compile_end(guard(end))

    hook.when_imported("torch._dynamo.callback", phase)
    hook.when_imported("torch._dynamo.eval_frame", guard(lambda module: _not_compiled(adapter.torch, module)))


def _not_compiled(torch, eval_frame):
    """Within what is compiled our own functions are run, never compiled: but for those that step aside."""
    skip = getattr(eval_frame, "skip_code", None) or getattr(torch._C._dynamo.eval_frame, "skip_code", None)
    package = __name__.partition(".")[0]
    for name, module in list(sys.modules.items()):
        if skip is not None and name.partition(".")[0] == package:
            for code in _codes_of(vars(module), module.__name__):
                skip(code)


def _codes_of(held, module):
    """The code of every function that a module or a class defines, and of those within them."""
    waiting = []
    for thing in held.values():
        if isinstance(thing, type) and thing.__module__ == module:
            yield from _codes_of(vars(thing), module)
        elif getattr(thing, "__module__", None) == module:
            waiting.append(getattr(thing, "__code__", None))
    while waiting:
        code = waiting.pop()
        if isinstance(code, CodeType):
            waiting.extend(code.co_consts)
            if code.co_name not in _STEP_ASIDE:
                yield code


# --- Older compilers take PyTorch's own hooks off its optimizers when they are first used: then `step` is wrapped


def keep_hook(adapter, after):
    """Have `after` called after each step, whatever the compiler does to the hooks."""
    adapter.agent.hook.when_imported("torch._dynamo.eval_frame", lambda module: _outlast(adapter, module, after))


def _outlast(adapter, eval_frame, after):
    patcher = getattr(eval_frame, "TorchPatcher", None)
    inner = getattr(patcher, "patch", None)
    if inner is None or "hooked" not in inspect.getsource(inner):
        return
    optim = adapter.torch.optim

    def patch():
        result = inner()
        for cls in vars(optim).values():
            if isinstance(cls, type) and issubclass(cls, optim.Optimizer) and "step" in vars(cls):
                adapter.guard(_wrap_step)(cls, after)
        return result

    patcher.patch = staticmethod(patch)


def _wrap_step(cls, after):
    inner = cls.step
    if getattr(inner, "_holter", False):
        return

    @functools.wraps(inner)
    def step(optimizer, *args, **kwargs):
        result = inner(optimizer, *args, **kwargs)
        after(optimizer, args, kwargs)
        return result

    setattr(step, "_holter", True)
    cls.step = step
