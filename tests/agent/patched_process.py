"""A script that trains a little with every framework and then writes down what in its process is Holter's.

python patched_process.py OUT HOLTERS_FOLDER [torch]
"""

import functools
import json
import os
import sys
import types
import warnings

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
out, ours = sys.argv[1:3]

import torch  # noqa: E402
import torch._dynamo  # noqa: E402


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.layer(x)


class Opt(torch.optim.SGD):
    pass


def train_torch():
    net = Net()
    optimizer = Opt(net.parameters(), lr=0.1)
    data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randn(64, 2))
    for x, y in torch.utils.data.DataLoader(data, batch_size=16):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(net(x), y).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()


def train_keras():
    import keras
    import lightning.pytorch  # noqa: F401
    import numpy as np
    import tensorflow  # noqa: F401
    from transformers import Trainer  # noqa: F401

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = np.zeros((32, 4), "float32"), np.zeros((32, 1), "float32")
    model.fit(x, y, epochs=2, verbose=0)
    model.evaluate(x, y, verbose=0)


def files(value, depth=0):
    """Which of Holter's files a value's code lies in: its own, and that of what it stands around."""
    if isinstance(value, (staticmethod, classmethod, types.MethodType)):
        return files(value.__func__, depth)
    if isinstance(value, property):
        return [one for part in (value.fget, value.fset) for one in files(part, depth)]
    if isinstance(value, functools.partial):
        return files(value.func, depth)
    if isinstance(value, types.FunctionType):
        path = value.__code__.co_filename.partition("#")[0]  # with a word for `warnings` after it
        own = [path[len(ours) :].lstrip("/")] if path.startswith(ours) else []
        return own + files(vars(value).get("__wrapped__"), depth)
    if isinstance(value, types.ModuleType):
        return []
    if str(type(value).__module__).startswith("_holter."):
        return [str(type(value).__module__)[len("_holter.") :].replace(".", "/") + ".py"]
    # Exactly these kinds: what only looks like one may import half a framework when it is read.
    kind = type(value).__name__
    if depth == 0 and type(value).__module__ in ("builtins", "collections"):
        if kind in ("list", "tuple") and len(value) < 1000:
            return [one for part in value for one in files(part, 1)]
        if kind in ("dict", "OrderedDict") and len(value) < 1000:
            return [one for part in dict.values(value) for one in files(part, 1)]
    return []


def stock():
    """Every attribute of every module and class that leads to code of Holter's; the same value is listed once."""
    found, classes, held = {}, set(), []

    def note(name, value):
        by = files(value)
        if by and isinstance(value, (list, tuple, dict)):
            held.append((name, value, by))
        elif by:
            found.setdefault(id(value), ([], by))[0].append(name)

    for name, module in list(sys.modules.items()):
        if not isinstance(module, types.ModuleType) or name.partition(".")[0] in ("_holter", "holter", "sitecustomize"):
            continue
        for key, value in list(vars(module).items()):
            if not isinstance(value, type):
                note(f"{name}.{key}", value)
            elif id(value) not in classes and not str(value.__module__).startswith("_holter"):
                classes.add(id(value))
                for attribute, inner in list(vars(value).items()):
                    note(f"{value.__module__}.{value.__qualname__}.{attribute}", inner)
    for name, values, by in held:  # not where a table only lists what was found in its own place
        members = dict.values(values) if isinstance(values, dict) else values
        if any(files(one, 1) and id(one) not in found for one in members):
            found[id(values)] = ([name], by)
    return [{"names": sorted(names), "by": by} for names, by in found.values()]


if sys.argv[3:] != ["torch"]:
    train_torch()
    train_keras()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    taken = stock()
with open(out, "w") as file:
    json.dump(taken, file)
