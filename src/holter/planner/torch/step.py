"""What one training step consists of, and how it is run: on fake tensors and on real ones alike."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .batch import resized


@dataclass(frozen=True)
class Recipe:
    """A step as the user gave it, and the settings that it is planned with."""

    model: Any
    batch: Any
    rows: int
    optimizer: Any = None  # an optimizer, or what makes one of parameters
    loss: Callable[..., Any] | None = None
    step: Callable[[Any, Any], Any] | None = None
    make_batch: Callable[[int], Any] | None = None
    dim: int = 0
    precision: str | None = None  # "bf16" or "fp16" for autocast
    checkpointing: bool = False
    accumulates: bool = False  # gradients of earlier micro-batches are there

    def with_(self, **changes: Any) -> Recipe:
        return replace(self, **changes)


def batch_for(torch: Any, recipe: Recipe, wanted: int, device: Any, fake: bool) -> Any:
    """A batch of the wanted size."""
    if recipe.make_batch is not None:
        made = recipe.make_batch(wanted)
        return resized(torch, made, -1, -1, 0, device, fake)
    return resized(torch, recipe.batch, recipe.rows, wanted, recipe.dim, device, fake)


def loss_of(torch: Any, recipe: Recipe, model: Any, batch: Any) -> Any:
    """Forward and loss: the user's own step, or the usual ways to call a model."""
    if recipe.step is not None:
        return recipe.step(model, batch)
    if isinstance(batch, Mapping):
        found, target = model(**batch), None
    elif isinstance(batch, (tuple, list)):
        takes_target = recipe.loss is not None and len(batch) > 1
        given, target = (batch[:-1], batch[-1]) if takes_target else (batch, None)
        one = given[0] if len(given) == 1 else None
        found = (
            model(**one)
            if isinstance(one, Mapping)
            else model(*one)
            if isinstance(one, (tuple, list))
            else model(*given)
        )
    else:
        found, target = model(batch), None
    if recipe.loss is not None:
        return recipe.loss(found) if target is None else recipe.loss(found, target)
    own = found.get("loss") if isinstance(found, Mapping) else getattr(found, "loss", None)
    if own is not None:
        return own
    return surrogate(torch, found)


def surrogate(torch: Any, found: Any) -> Any:
    """A loss of no meaning, for outputs whose own loss is not known: their sum."""
    from .batch import leaves

    sums = [t.sum(dtype=torch.float32) for t in leaves(torch, found) if t.is_floating_point() and t.requires_grad]
    if not sums:
        raise ValueError("the model gives nothing that has a gradient")
    return sum(sums[1:], sums[0])


@contextlib.contextmanager
def autocasting(torch: Any, kind: str, precision: str | None) -> Iterator[None]:
    """Autocast for the forward pass, where the settings ask for it."""
    if precision is None:
        yield
        return
    with torch.autocast(kind, dtype={"bf16": torch.bfloat16, "fp16": torch.float16}[precision]):
        yield


def one_step(
    torch: Any, recipe: Recipe, model: Any, optimizer: Any, batch: Any, kind: str, mark: Callable[[str], None]
) -> None:
    """Forward, loss, backward and update; gradients are dropped first, or kept from earlier micro-batches."""
    if not recipe.accumulates:
        drop_gradients(model, optimizer)
    mark("forward")
    with autocasting(torch, kind, recipe.precision):
        loss = loss_of(torch, recipe, model, batch)
    if isinstance(loss, (tuple, list)):
        loss = loss[0]
    mark("backward")
    loss.backward()
    del loss
    mark("optimizer")
    if optimizer is not None:
        optimizer.step()
    mark("after")


def drop_gradients(model: Any, optimizer: Any) -> None:
    """What `zero_grad` does, for parameters outside of the model too."""
    for parameter in model.parameters():
        parameter.grad = None
    if optimizer is not None:
        optimizer.zero_grad(set_to_none=True)


def optimizer_for(torch: Any, given: Any, parameters: Any) -> Any:
    """An optimizer over these parameters, made by a class or a function; None where none is wanted."""
    wanted = [p for p in parameters if p.requires_grad]
    if given is None:
        return None
    if isinstance(given, str):
        given = named_optimizer(torch, given)
    made = given(wanted)
    return made


def named_optimizer(torch: Any, name: str) -> Callable[[Any], Any]:
    """The optimizers that a plan knows by name, each with a rate that leaves the weights as they are."""
    plain, _, how = name.partition("-")
    table = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW", "adafactor": "Adafactor", "rmsprop": "RMSprop"}
    options: dict[str, Any] = {"lr": 1e-12}
    if plain == "sgd" and how == "momentum":
        options["momentum"] = 0.9
    elif how == "fused":
        options["fused"] = True
    elif how == "foreach":
        options["foreach"] = True
    if plain == "adamw8bit":
        import bitsandbytes  # type: ignore[import-not-found, unused-ignore]

        return lambda parameters: bitsandbytes.optim.AdamW8bit(parameters, **options)
    kind = getattr(torch.optim, table[plain])
    return lambda parameters: kind(parameters, **options)
