"""What the layers of a Keras Sequential put out for one sample, where the script says every size."""

from __future__ import annotations

import ast
import math

from holter.source.module import Module
from holter.source.values import argument, number, text

_SAME = (
    "Activation",
    "BatchNormalization",
    "LayerNormalization",
    "Dropout",
    "ReLU",
    "LeakyReLU",
    "Softmax",
    "Rescaling",
)


def activations(module: Module, model: ast.expr) -> float | None:
    """Give the bytes that one sample leaves behind in all layers together; None where a layer is not understood."""
    built = _sequential(module, model)
    if built is None or not built.args or not isinstance(built.args[0], (ast.List, ast.Tuple)):
        return None
    shape: list[float] | None = None
    entries = 0.0
    for layer in built.args[0].elts:
        if not isinstance(layer, ast.Call):
            return None
        name = module.qualified(layer.func).rpartition(".")[2]
        given = argument(layer, "input_shape") or (
            argument(layer, "shape", 0) if name in ("Input", "InputLayer") else None
        )
        if given is not None:
            shape = _sizes(module, given)
        if name in ("Input", "InputLayer"):
            continue
        if shape is None:
            return None
        shape = _out(module, name, layer, shape)
        if shape is None:
            return None
        entries += math.prod(shape)
    return entries * 4


def _sequential(module: Module, model: ast.expr) -> ast.Call | None:
    node: ast.expr | None = model
    for _ in range(4):
        if isinstance(node, ast.Name):
            made = [one.value for one in module.bound(node, node.id) if one.how == "set"]
            node = made[0] if made else None
        elif isinstance(node, ast.Call):
            if module.qualified(node.func).endswith("Sequential"):
                return node
            function = module.callee(node)
            returned = [
                one.value for one in module.within(function) if isinstance(one, ast.Return)
            ] if function is not None else []  # fmt: skip
            node = returned[0] if len(returned) == 1 else None
        else:
            return None
    return None


def _sizes(module: Module, node: ast.expr) -> list[float] | None:
    if isinstance(node, ast.Name):
        value = module.value(node, node.id)
        return _sizes(module, value) if value is not None else None
    if not isinstance(node, (ast.Tuple, ast.List)):
        return None
    found = [number(module, one) for one in node.elts]
    return [one for one in found if one is not None] if all(one is not None for one in found) else None


def _pair(module: Module, node: ast.expr | None, default: float) -> tuple[float, float] | None:
    if node is None:
        return default, default
    if isinstance(node, (ast.Tuple, ast.List)) and len(node.elts) == 2:
        first, second = number(module, node.elts[0]), number(module, node.elts[1])
        return (first, second) if first is not None and second is not None else None
    one = number(module, node)
    return (one, one) if one is not None else None


def _out(module: Module, name: str, layer: ast.Call, shape: list[float]) -> list[float] | None:
    if name in _SAME:
        return shape
    if name == "Flatten":
        return [math.prod(shape)]
    if name == "Dense":
        units = number(module, argument(layer, "units", 0))
        return [*shape[:-1], units] if units is not None else None
    if name in ("Conv2D", "MaxPooling2D", "AveragePooling2D", "MaxPool2D") and len(shape) == 3:
        conv = name == "Conv2D"
        window = _pair(module, argument(layer, "kernel_size", 1) if conv else argument(layer, "pool_size", 0), 2)
        strides = argument(layer, "strides", 2 if conv else 1)
        step = _pair(module, strides, 1) if conv or strides is not None else window
        deep = number(module, argument(layer, "filters", 0)) if conv else shape[2]
        if window is None or step is None or deep is None or not all(step):
            return None
        pad = text(argument(layer, "padding")) == "same"
        sides = [
            math.ceil(side / by) if pad else max(1, (side - width) // by + 1)
            for side, width, by in zip(shape[:2], window, step, strict=True)
        ]
        return [*sides, deep]
    if name.startswith("Global") and len(shape) == 3:
        return [shape[2]]
    return None
