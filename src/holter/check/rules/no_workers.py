"""A DataLoader makes every batch in the training process itself.

What it does: finds a DataLoader for training with no `num_workers`, over a dataset that reads or decodes each sample.
Why it halts or slows a run: the device waits while files are read and images decoded, one after the other; each step
takes the sum of both.
Example:
    loader = DataLoader(ImageFolder(path, transform), batch_size=64, shuffle=True)
Instead:
    loader = DataLoader(ImageFolder(path, transform), batch_size=64, shuffle=True, num_workers=4)
When the fix is safe: never by itself: how many workers pay depends on the machine, and each has random numbers of its
own.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from holter.check.problem import Hit
from holter.finding import Cure
from holter.source.datasets import class_of_dataset
from holter.source.module import Module
from holter.source.values import argument, number, spread

CODE = "HLT402"
CAUSE = "input-bound.no-prefetch"
NEEDS = ("DataLoader",)
CURES = (
    Cure(
        "let 4 workers make the batches while the step computes: num_workers=4",
        "+ num_workers=4, persistent_workers=True",
        "equivalent",
    ),
)

_FILES = re.compile(
    r"torchvision\.datasets\.(?:ImageFolder|DatasetFolder|Coco\w+|ImageNet|VOC\w+|Cityscapes|CelebA|Places365|"
    r"OxfordIIITPet|Flowers102|Food101|StanfordCars|Kinetics\w*)$"
)
_READS = re.compile(
    r"Image\.open|cv2\.imread|imread\(|torchaudio\.load|librosa\.load|sf\.read|soundfile|decode_|read_image|nib\.load|"
    r"np\.load\(|torch\.load\(|h5py\.File|pd\.read_|pydicom|rasterio\.open|\bopen\("
)


def examine(module: Module) -> Iterator[Hit]:
    """Look at loaders of a file that trains."""
    if not module.training.backwards and not module.imports.uses("lightning", "pytorch_lightning"):
        return
    for call in module.calls:
        if not module.qualified(call.func).endswith("utils.data.DataLoader") or spread(call):
            continue
        workers = argument(call, "num_workers", 5)
        given = argument(call, "dataset", 0)
        if (workers is not None and number(module, workers) != 0) or given is None:
            continue
        what = _reads(module, given)
        shuffled = argument(call, "shuffle", 2)
        trains = shuffled is not None and not (isinstance(shuffled, ast.Constant) and not shuffled.value)
        if what and trains:
            yield Hit(
                module.statement_of(call),
                f"{what} for each sample, in the process that trains: no worker does it ahead",
                "note",
            )


def _reads(module: Module, given: ast.expr) -> str:
    """Say what a dataset does for each sample, if that is visibly slow."""
    owner = class_of_dataset(module, given)
    if isinstance(owner, ast.ClassDef):
        for method in owner.body:
            if isinstance(method, ast.FunctionDef) and method.name == "__getitem__":
                found = _READS.search(module.said(method))
                return f"`{owner.name}` reads a file ({found[0].rstrip('(')})" if found else ""
        return ""
    return f"{owner.rpartition('.')[2]} reads and decodes a file" if owner and _FILES.search(owner) else ""
