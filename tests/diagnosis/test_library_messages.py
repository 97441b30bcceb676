"""The cures for known errors of the libraries: each error is raised by the library itself, or read in its source."""

from __future__ import annotations

import json
import mmap
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from holter.diagnosis.ending.library_messages import cures_of

TORCH = """
import io, torch
from torch import nn

class Odd: pass

def load():
    file = io.BytesIO()
    torch.save(Odd(), file)
    file.seek(0)
    torch.load(file)

def backward_twice():
    loss = (torch.ones(2, requires_grad=True) ** 2).sum()
    loss.backward()
    loss.backward()

def in_place():
    y = torch.ones(2, requires_grad=True).exp()
    y += 1
    y.sum().backward()

RAISES = {
    "weights_only=False": load,
    "as it was when the file was written": lambda: nn.Linear(3, 1).load_state_dict(nn.Linear(4, 1).state_dict()),
    ".detach()": backward_twice,
    "makes a new tensor": in_place,
    "no_grad()": lambda: torch.ones(2).sum().backward(),
    "in_features": lambda: nn.Linear(3, 1)(torch.ones(2, 4)),
    "collate_fn": lambda: torch.utils.data.default_collate([torch.ones(2), torch.ones(3)]),
    "drop_last": lambda: nn.BatchNorm1d(3)(torch.ones(1, 3)),
    "one type and one device": lambda: nn.Conv1d(1, 1, 1)(torch.ones(1, 1, 4).double()),
    ".float()": lambda: nn.Linear(2, 1)(torch.ones(1, 2).double()),
    "num_embeddings": lambda: nn.Embedding(3, 2)(torch.tensor([3])),
    "init_process_group": lambda: torch.distributed.barrier(),
}
"""

KERAS = """
import keras, numpy as np
model = keras.Sequential([keras.layers.Dense(2)])
def fitted(loss, y):
    model = keras.Sequential([keras.layers.Dense(3, activation="softmax")])
    model.compile(loss=loss)
    model.fit(np.ones((4, 2)), y, verbose=0)

RAISES = {
    "call compile()": lambda: model.fit(np.ones((2, 2)), np.ones((2, 2))),
    "sparse_": lambda: fitted("categorical_crossentropy", np.zeros((4,), "int32")),
    "the same number of samples": lambda: fitted("mse", np.ones((3, 3))),
    ".keras": lambda: model.save("model.sav"),
}
"""

TRY = """
import json
found = {}
for name, call in RAISES.items():
    try:
        call()
    except Exception as error:
        found[name] = f"{type(error).__name__}: {error}"
print(json.dumps(found))
"""

# What is raised only with a GPU, several ranks or another package: a library's file, and its words.
WRITTEN = {
    # Its backend's name is filled in: "CUDA device but torch.cuda".
    "Attempting to deserialize object on a ": ("torch", "serialization.py"),
    "Cannot re-initialize CUDA in forked subprocess": ("torch", "cuda/__init__.py"),
    "Attempting to unscale FP16 gradients": ("torch", "amp/grad_scaler.py"),
    "Torch not compiled with CUDA enabled": ("torch", "cuda/__init__.py"),
    "Expected to have finished reduction in the prior iteration": ("torch", "lib/libtorch_cpu.so"),
    "Expected all tensors to be on the same device": ("torch", "lib/libtorch_cpu.so"),
    "Asking to pad but the tokenizer does not have a padding token": ("transformers", "tokenization_utils_base.py"),
    "Unable to create tensor, you should probably activate truncation and/or padding": (
        "transformers",
        "tokenization_utils_base.py",
    ),
}


def raised_by(program: str) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", program + TRY], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, str] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


@pytest.mark.torch
def test_the_errors_of_pytorch_have_their_own_cures() -> None:
    """Each is raised by PyTorch itself, and what is said to do is about that error."""
    pytest.importorskip("torch")
    found = raised_by(TORCH)

    assert len(found) == TORCH.count("lambda:") + 3
    for wanted, message in found.items():
        titles = [cure.title + cure.how for cure in cures_of(message)]
        assert any(wanted in title for title in titles), (wanted, message)


@pytest.mark.tensorflow
def test_the_errors_of_keras_have_their_own_cures() -> None:
    """Each is raised by Keras itself."""
    pytest.importorskip("tensorflow")
    found = raised_by(KERAS)

    assert len(found) == 4
    for wanted, message in found.items():
        titles = [cure.title + cure.how for cure in cures_of(message)]
        assert any(wanted in title for title in titles), (wanted, message)


@pytest.mark.parametrize("words", WRITTEN)
def test_what_cannot_be_raised_here_stands_in_the_librarys_source(words: str) -> None:
    """The pattern matches what the library has written there."""
    package, name = WRITTEN[words]
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        pytest.skip(f"{package} is not installed")
    with (Path(spec.origin).parent / name).open("rb") as file:
        text = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        assert text.find(words.encode()) >= 0
    assert cures_of(f"RuntimeError: {words}CUDA device but torch.cuda.is_available() is False.")


@pytest.mark.parametrize(
    "message",
    [
        "ValueError: loss went to nan",
        "KeyError: 'weights_only'",
        "RuntimeError: the file provided must end in .csv",
        "IndexError: list index out of range",
        "ValueError: the two arrays must have the same shape",
    ],
)
def test_an_error_of_the_scripts_own_is_none_of_them(message: str) -> None:
    """Words that only sound alike get no cure of a library's."""
    assert cures_of(message) == ()
