"""--fix mends what is safe, keeps every other byte, and has nothing left to do the second time."""

from __future__ import annotations

import ast
import difflib
import json
from pathlib import Path

import pytest

from holter.check.engine import check_source
from holter.check.settings import Settings
from holter.check.source import parse_bytes

FIXTURES = sorted(Path(__file__).with_name("fixtures").glob("*/*.py"))
PATIENTS = sorted((Path(__file__).parents[1] / "patients").glob("*.py"))


def fixed(raw: bytes, path: str = "train.py") -> tuple[bytes, int]:
    """What a file is after --fix, and how many fixes were made."""
    done = check_source(parse_bytes(path, raw), Settings(), fix=True)
    return (done.changes[0][2] if done.changes else raw), done.fixed


@pytest.mark.parametrize("path", [*FIXTURES, *PATIENTS], ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_is_mended_parses_and_needs_no_second_mending(path: Path) -> None:
    """Over every fixture and every patient: valid Python, and a second --fix changes nothing."""
    once, _ = fixed(path.read_bytes())
    twice, count = fixed(once)

    ast.parse(once)
    assert (twice, count) == (once, 0)


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_lines_without_a_finding_keep_their_bytes(path: Path) -> None:
    """Only lines that a fix is for differ, or are new."""
    raw = path.read_bytes()
    problems = check_source(parse_bytes("train.py", raw), Settings()).problems
    allowed = {line for problem in problems if problem.fixable for line in range(problem.line, problem.end_line + 1)}
    before, after = raw.splitlines(keepends=True), fixed(raw)[0].splitlines(keepends=True)
    touched = set()
    for kind, start, end, _, _ in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind in ("replace", "delete"):
            touched |= set(range(start + 1, end + 1))

    assert touched <= allowed


def test_a_loss_that_only_numbers_are_made_of_becomes_a_number() -> None:
    """`.item()` where the sum is printed and divided; `.detach()` where it is asked for what only a tensor has."""
    script = b"""import torch
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
total, kept = 0, []
for x in torch.ones(9, 1, 1):
    optimizer.zero_grad()
    loss = model(x).mean()
    loss.backward()
    optimizer.step()
    total += loss  # the sum
    kept.append(loss)
print(total / 9)
print(torch.stack(kept).mean())
"""
    mended, count = fixed(script)

    assert count == 2
    assert b"    total += loss.item()  # the sum\n" in mended
    assert b"    kept.append(loss.detach())\n" in mended


def test_the_mended_loop_gives_the_same_numbers() -> None:
    """The script before and after --fix print the same, run for real."""
    import subprocess
    import sys

    script = b"""import torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses, total = [], 0.0
for x in torch.randn(20, 8, 4):
    optimizer.zero_grad()
    loss = (model(x) ** 2).mean()
    loss.backward()
    optimizer.step()
    losses.append(loss)
    total += loss * 2
print(float(sum(losses)), float(total), [float(value) for value in losses][-1])
"""
    mended, count = fixed(script)
    both = b"\n".join((script, mended))
    said = subprocess.run([sys.executable, "-c", both], capture_output=True, check=True, text=True).stdout
    old, new = ([float(word) for word in line.split()] for line in said.splitlines())

    assert count == 2
    assert new == pytest.approx(old, rel=1e-6)


def test_old_addresses_of_mixed_precision_become_new_ones() -> None:
    """With keywords, over several lines, and imported by name; an argument by position is left alone."""
    script = b"""import torch
from torch.cuda.amp import GradScaler, autocast
scaler = GradScaler(init_scale=2.0)
with torch.cuda.amp.autocast(
    enabled=True,  # always
):
    pass
with autocast(True):
    pass
"""
    mended, count = fixed(script)

    assert count == 2
    assert b'scaler = torch.amp.GradScaler("cuda", init_scale=2.0)\n' in mended
    assert b'with torch.amp.autocast("cuda", \n    enabled=True,  # always\n):' in mended
    assert b"with autocast(True):" in mended


SICK = "import torch\nwith torch.cuda.amp.autocast():\n    größe = 'ü' * 3; x = torch.cuda.amp.GradScaler()\n"
WELL = 'import torch\nwith torch.amp.autocast("cuda"):\n    größe = \'ü\' * 3; x = torch.amp.GradScaler("cuda")\n'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (SICK.encode(), WELL.encode()),
        (b"\xef\xbb\xbf" + SICK.encode(), b"\xef\xbb\xbf" + WELL.encode()),
        (SICK.replace("\n", "\r\n").encode(), WELL.replace("\n", "\r\n").encode()),
        (("# coding: latin-1\n" + SICK).encode("latin-1"), ("# coding: latin-1\n" + WELL).encode("latin-1")),
        (SICK.rstrip("\n").encode(), WELL.rstrip("\n").encode()),
        (SICK.replace("import", "\f\nimport").encode(), WELL.replace("import", "\f\nimport").encode()),
    ],
    ids=["utf-8", "byte order mark", "CRLF", "latin-1", "no last newline", "form feed"],
)
def test_bytes_that_are_not_mended_stay_what_they_are(before: bytes, after: bytes) -> None:
    """Line ends, encodings, marks and letters of more than one byte."""
    assert fixed(before)[0] == after


@pytest.mark.parametrize("indent", [1, 2, None])
def test_a_notebook_is_mended_in_its_cell_and_kept_to_the_byte(indent: int | None) -> None:
    """Outputs, metadata, layout and other cells stay; magics are no trouble."""
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": ["# Über\n"]},
        {
            "cell_type": "code",
            "metadata": {},
            "outputs": [{"data": "é"}],
            "source": ["%matplotlib inline\n", "import torch"],
        },
        {
            "cell_type": "code",
            "metadata": {},
            "outputs": [],
            "source": "!ls\nwith torch.cuda.amp.autocast():\n    pass",
        },
    ]
    raw = (json.dumps({"cells": cells, "nbformat": 4}, indent=indent, ensure_ascii=False) + "\n").encode()
    mended, count = fixed(raw, "notes.ipynb")

    assert count == 1
    assert mended == raw.replace(b"torch.cuda.amp.autocast()", b'torch.amp.autocast(\\"cuda\\")')


def test_a_notebook_that_could_not_be_written_back_is_left_alone() -> None:
    """Its layout is no tool's: better not mended than rewritten."""
    source = json.dumps({"cells": [{"cell_type": "code", "source": "import torch\ntorch.cuda.amp.GradScaler()"}]})
    raw = source.replace(": ", " : ").encode()
    done = check_source(parse_bytes("notes.ipynb", raw), Settings(), fix=True)

    assert done.changes == []
    assert "kept byte for byte" in done.unread[0].why


def test_an_evaluation_gets_its_decorator() -> None:
    """Above the function, at its own indentation."""
    script = b"""import torch
class Runner:
    def score(self):
        self.model.eval()
        for x in self.loader:
            self.add(self.model(x).mean().item())
"""
    assert b"class Runner:\n    @torch.no_grad()\n    def score(self):\n" in fixed(script)[0]
