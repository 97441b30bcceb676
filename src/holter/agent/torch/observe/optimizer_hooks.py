"""Older compilers take PyTorch's own hooks off its optimizers when they are first used: then `step` is wrapped."""

import functools
import inspect


def keep(adapter, after):
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
