"""Functions of a file that are traced or compiled, and the calls of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from holter.source.bindings import dotted
from holter.source.module import Function, Module
from holter.source.values import argument

TF = ("tensorflow.function",)
JAX = ("jax.jit", "jax.pjit")


def compiled_calls(module: Module) -> Iterator[tuple[ast.Call, str, set[int] | None]]:
    """Give calls of compiled functions: the call, the name, and for JAX the positions of its static arguments.

    For TensorFlow every Python value is static: then there is None in the place of positions. Functions with a
    signature or with relaxed shapes are left out: they are traced once.
    """
    if not module.imports.uses("tensorflow", "jax"):
        return
    for call in module.calls:
        function = module.callee(call)
        if function is not None:
            for decorator in function.decorator_list:
                kind, settings = _compiles(module, decorator)
                if kind == "tf" and not _signed(settings):
                    yield call, function.name, None
                elif kind == "jax":
                    own = isinstance(
                        module.parents.get(function), ast.ClassDef
                    )  # `self` is not among the call's arguments
                    yield call, function.name, {at - own for at in _static(settings, function)}
        elif isinstance(call.func, ast.Name):
            made = module.value(call.func, call.func.id)
            if isinstance(made, ast.Call):
                full = module.qualified(made.func)
                inner = next((one for one in module.functions if made.args and one.name == dotted(made.args[0])), None)
                if full in TF and not _signed(made):
                    yield call, call.func.id, None
                elif full in JAX:
                    yield call, call.func.id, _static(made, inner)


def _compiles(module: Module, decorator: ast.expr) -> tuple[str, ast.Call | None]:
    settings = decorator if isinstance(decorator, ast.Call) else None
    target = settings.func if settings is not None else decorator
    full = module.qualified(target)
    if full == "functools.partial" and settings is not None and settings.args:
        full = module.qualified(settings.args[0])
    return ("tf" if full in TF else "jax" if full in JAX else ""), settings


def _signed(settings: ast.Call | None) -> bool:
    if settings is None:
        return False
    relaxed = argument(settings, "input_signature") or argument(settings, "reduce_retracing")
    return relaxed is not None or argument(settings, "experimental_relax_shapes") is not None


def _static(settings: ast.Call | None, function: Function | None) -> set[int]:
    if settings is None:
        return set()
    numbers = argument(settings, "static_argnums")
    found = (
        {one.value for one in ast.walk(numbers) if isinstance(one, ast.Constant) and isinstance(one.value, int)}
        if numbers
        else set()
    )
    names = argument(settings, "static_argnames")
    if names is not None and function is not None:
        said = {one.value for one in ast.walk(names) if isinstance(one, ast.Constant)}
        found |= {at for at, one in enumerate(function.args.args) if one.arg in said}
    return found
