"""Which models, optimizers and loaders were made on which line, and which models an optimizer trains."""

import functools
import os
import sys
import weakref
from functools import partial
from typing import Any

from ...core import frame_locals
from ...core.creation_sites import site_of
from ...core.user_frame import is_user_file
from ...observe import wrap
from .visibility import children_of, weights_of

_NEWBORN = 256


class _Made:
    """What the constructor below needs: the compiler can't take a function in that holds on to things of ours."""

    inner: "Any" = None
    born: "Any" = None
    guard: "Any" = None
    is_compiling: "Any" = None


def _module_init(module, *args, **kwargs):
    if _Made.is_compiling():
        return _Made.inner(module, *args, **kwargs)
    try:
        _Made.inner(module, *args, **kwargs)
    except BaseException as error:
        wrap.drop_own_frame(error)
        raise
    try:
        _Made.born(module)
    except Exception as error:
        _Made.guard.caught("Module.__init__", error)
    return None


class Births:
    """Knows every module that lives, weakly, and takes whole models into the census: not the parts of others."""

    def __init__(self, agent, torch):
        self.agent = agent
        self.torch = torch
        self.modules = {}  # id -> weak reference; half-built modules can't always be hashed
        self.newborn = []  # modules made since the last count, with the line that made them

    def patch(self, optimizer_born, unseen):
        nn, optim, data = self.torch.nn, self.torch.optim, self.torch.utils.data
        census, guard = self.agent.census, self.agent.guard

        def born(optimizer):
            with unseen():
                weights = {id(p): p.numel() * p.element_size() for g in optimizer.param_groups for p in g["params"]}
            census.born("optimizer", optimizer, wrap.maker_of(optimizer, 2), weights=sum(weights.values()))
            optimizer_born(optimizer)

        def loader_born(loader):
            census.born("loader", loader, wrap.maker_of(loader, 2), **loader_facts(loader))

        _Made.inner, _Made.born, _Made.guard = nn.Module.__init__, self._module_born, guard
        _Made.is_compiling = getattr(self.torch.compiler, "is_compiling", None) or self.torch._utils.is_compiling
        nn.Module.__init__ = functools.wraps(nn.Module.__init__)(_module_init)
        wrap.after(optim.Optimizer, "__init__", born, guard)
        wrap.after(data.DataLoader, "__init__", loader_born, guard)

    def _module_born(self, module):
        number, modules = id(module), self.modules
        modules[number] = weakref.ref(module, lambda _ref: modules.pop(number, None))
        frame = maker = sys._getframe(2)
        while frame is not None:
            code = frame.f_code
            if code.co_name == "__init__" and code.co_argcount and code.co_varnames[0] == "self":
                owner = frame_locals.read(frame, "self").get("self")
                if owner is module:
                    maker = frame.f_back  # still its own constructor, or one that it inherits from
                elif isinstance(owner, self.torch.nn.Module):
                    return  # a part of another model
            frame = frame.f_back
        while maker is not None and not is_user_file(maker.f_code.co_filename):
            maker = maker.f_back
        self.newborn.append((weakref.ref(module), site_of(maker)))
        if len(self.newborn) >= _NEWBORN:
            self.count()

    def count(self):
        """Take the new modules into the census, those left out that have since become a part of another."""
        newborn, self.newborn = self.newborn, []
        alive = [(module, site) for module, site in ((ref(), site) for ref, site in newborn) if module is not None]
        parts = {id(child) for module, _ in alive for child in children_of(module)}
        for module, site in alive:
            if site is not None and id(module) not in parts:
                self.agent.census.born("model", module, site)

    def models_with_gradients(self):
        """The outermost models that a backward has gone through."""
        everyone = [module for module in (ref() for ref in list(self.modules.values())) if module is not None]
        own = (p for one in everyone for p in (one.__dict__.get("_parameters") or {}).values() if p is not None)
        return list(self.models_with({id(p) for p in own if p.is_leaf and p.grad is not None}))

    def models_with(self, parameters):
        """The outermost models that hold any of these parameters, given by their ids."""
        everyone = [module for module in (ref() for ref in list(self.modules.values())) if module is not None]
        parts = {id(child) for module in everyone for child in children_of(module)}
        for module in everyone:
            if id(module) in parts or isinstance(module, self.torch.jit.ScriptModule):
                continue
            if any(id(parameter) in parameters for parameter in weights_of(module)):
                yield module


def _own_code(function, depth=2):
    """The code of a function or callable of the user's, also within a `partial` or a library's wrapper around it."""
    code = getattr(function, "__code__", None) or getattr(vars(type(function)).get("__call__"), "__code__", None)
    if code is not None and is_user_file(code.co_filename):
        return code
    within = [function.func] if isinstance(function, partial) else getattr(function, "__dict__", {}).values()
    found = (_own_code(one, depth - 1) for one in list(within) if depth and callable(one))
    return next((code for code in found if code is not None), None)


def loader_facts(loader):
    """What a DataLoader was made with, as far as it bears on its pace."""
    names = ("num_workers", "batch_size", "prefetch_factor", "pin_memory", "persistent_workers")
    facts = {name: getattr(loader, name, None) for name in names}
    facts["shuffle"] = type(getattr(loader, "sampler", None)).__name__ == "RandomSampler"
    facts["dataset"] = type(getattr(loader, "dataset", None)).__name__
    code = _own_code(getattr(loader, "collate_fn", None))
    if code is not None:
        facts["collate_file"], facts["collate_line"] = os.path.abspath(code.co_filename), code.co_firstlineno
    return {name: value for name, value in facts.items() if isinstance(value, (bool, int, str))}
