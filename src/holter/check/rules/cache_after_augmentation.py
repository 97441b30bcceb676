"""Random augmentation stands before `cache()`: every epoch sees the same images.

What it does: finds a `map` with a random transform before the `cache()` of a tf.data pipeline.
Why it halts or slows a run: what was drawn at random in the first epoch is kept and repeated in all others: the
augmentation does nothing more, the model overfits, and the cache holds decoded floats instead of the smaller files.
Example:
    ds = ds.map(random_flip).cache().batch(32)
Instead:
    ds = ds.cache().map(random_flip).batch(32)
When the fix is safe: never by itself: each epoch then differs, as it was meant to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from holter.check.problem import Hit
from holter.finding import Cure
from holter.source.bindings import called_on
from holter.source.module import Module
from holter.source.pipelines import mapped, pipeline_of

CODE = "HLT404"
CAUSE = None
NEEDS = (".cache(",)
CURES = (Cure("cache first, then draw at random", "- ds.map(augment).cache()\n+ ds.cache().map(augment)", "changed"),)

_RANDOM = re.compile(
    r"\b(?:stateless_)?random_(?:flip|crop|brightness|contrast|hue|saturation|jpeg)\w*|Random(?:Flip|Rotation|Zoom|Crop)"
)


def examine(module: Module) -> Iterator[Hit]:
    """Look at what each cached pipeline has mapped before."""
    for call, owner in module.calls_of("cache"):
        found = pipeline_of(module, owner)
        if found is None:
            continue
        for one in found.calls:
            if called_on(one, "map") is not None:
                function = mapped(module, one)
                if function is not None and _RANDOM.search(module.said(function)):
                    claim = (
                        f"what line {one.lineno} draws at random is cached: every epoch repeats the first one's draws"
                    )
                    yield Hit(module.statement_of(call), claim)
                    break
