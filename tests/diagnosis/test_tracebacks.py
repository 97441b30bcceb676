"""Tracebacks and frames, as different launchers and Pythons write them."""

from __future__ import annotations

import pytest

from holter.diagnosis.core.frames import is_user_file
from holter.diagnosis.ending.tracebacks import as_traceback, parse_tracebacks

CHAIN = """\
Traceback (most recent call last):
  File "/home/u/data.py", line 3, in load
    return table[key]
           ~~~~~^^^^^
KeyError: 'x'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/home/u/train.py", line 9, in <module>
    load()
  File "/home/u/train.py", line 5, in load
    raise RuntimeError("no data") from error
RuntimeError: no data
"""


def test_chain_is_one_exception_with_its_root():
    """A chain comes as its last exception, which knows its root, its carets left out."""
    (found,) = parse_tracebacks("epoch 1\n" + CHAIN)

    assert (found.headline, found.root.headline) == ("RuntimeError: no data", "KeyError: 'x'")
    assert [frame.line for frame in found.frames] == [9, 5]
    assert found.root.frames[0].code == "return table[key]"


def test_ranks_prefixes_and_colours_are_taken_off():
    """torchrun's [rank0]: and the colours of newer Pythons do not hide a traceback."""
    text = "".join(f"[rank0]: {line}\n" for line in CHAIN.splitlines()[:4])
    text += "[rank0]: \x1b[1;35mKeyError\x1b[0m: \x1b[35m'x'\x1b[0m\n"

    (found,) = parse_tracebacks(text)

    assert found.headline == "KeyError: 'x'"


def test_two_separate_tracebacks_stay_two():
    """Without a chaining line the second is an exception of its own."""
    first, last = parse_tracebacks(CHAIN.split("\nThe above")[0] + "going on\n" + CHAIN.split("exception:\n\n")[1])

    assert first.name == "KeyError"
    assert last.cause is None


@pytest.mark.parametrize("text", ["", "Traceback (most recent call last):\n", CHAIN[:60], "Error: no\n", "\n" * 99])
def test_cut_or_missing_tracebacks_are_none(text):
    """A traceback that was cut off by a kill is not made up."""
    assert parse_tracebacks(text) == []


@pytest.mark.parametrize(
    ("path", "user"),
    [
        ("/home/u/train.py", True),
        ("train.py", True),
        ("C:\\Users\\u\\train.py", True),
        ("<stdin>", True),
        ("/tmp/ipykernel_7/1.py", True),
        ("/home/u/tools/train", True),
        ("/venv/lib/python3.11/site-packages/torch/nn/module.py", False),
        ("/usr/lib/python3/dist-packages/numpy/x.py", False),
        ("/usr/lib/python3.11/threading.py", False),
        ("C:\\Python311\\Lib\\threading.py", False),
        ("<frozen importlib._bootstrap>", False),
        ("libtorch_cuda.so", False),
        ("/venv/bin/torchrun", False),
        ("ceval.c", False),
        ("", False),
    ],
)
def test_user_files(path, user):
    """The user's own files are told from those of an installation, whatever machine they are from."""
    assert is_user_file(path) is user


def test_an_error_in_a_traced_function_names_its_own_line() -> None:
    """TensorFlow wraps the error of a traced function into a message of its own form; the user's line is in there."""
    message = (
        'in user code:\n\n    File "/home/me/train.py", line 10, in train_step  *\n'
        "        loss = tf.reduce_mean((model(x) - y) ** 2)\n\n"
        "    TypeError: Input 'y' of 'Sub' Op has type float64 that does not match type float32 of argument 'x'.\n"
    )
    (found,) = parse_tracebacks(as_traceback(message))

    assert found.name == "TypeError"
    assert found.message.startswith("Input 'y' of 'Sub' Op")
    assert (found.frames[-1].file, found.frames[-1].line) == ("/home/me/train.py", 10)
