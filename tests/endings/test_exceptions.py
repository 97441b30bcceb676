"""Exceptions: the user's own line, whatever lies around it, and messages that do no harm."""

from __future__ import annotations

import signal
import sys

import pytest

from tests.endings.ward import TORCH, as_text

IN_LIBRARY = TORCH + "for step in range(20):\n    train_step(torch.randn(8, 64 if step < 15 else 63))\n"

READER = """
def read(path):
    try:
        return {"train": 1}[path]  # there
    except KeyError as error:
        raise RuntimeError("no such split: \\x1b[2J\\x1b]0;owned\\x07 " + path + "!" * 1_000_000) from error
"""
CHAINED = "import holter\nimport reader\n\nfor _ in range(5):\n    holter.step(loss=1.0)\nreader.read('test')\n"


def test_the_line_is_the_users_though_a_library_raised(case) -> None:
    """Of a traceback that ends deep in PyTorch the culprit is the script's own innermost line."""
    one = case(IN_LIBRARY).run()

    assert (one.code, one.kind(), one.first()["cause"]) == (1, "exception", "user-error"), as_text(one)
    assert one.first()["culprit"]["line"] == one.line("loss = model(batch)")
    assert one.first()["culprit"]["function"] == "train_step"
    assert one.verdict()["ending"]["at_step"] == 15


def test_the_root_of_a_chain_in_another_file(case) -> None:
    """A chain begins in another file: that line is the culprit; a hostile message of 1 MB stays harmless and short."""
    one = case(CHAINED)
    one.holter.script(READER, "reader.py")
    one.run()
    culprit = one.first()["culprit"]

    assert culprit["file"].endswith("reader.py")
    assert culprit["code"] == 'return {"train": 1}[path]  # there'
    assert "KeyError" in one.first()["claim"]
    page = one.page()
    assert "\x1b" not in page
    assert "\x07" not in page
    assert len(page) < 3000


@pytest.mark.parametrize(
    ("leave", "code", "kind"),
    [("sys.exit(3)", 3, "exception"), ("sys.exit('no GPU here')", 1, "exception"), ("sys.exit(0)", 0, "completed")],
)
def test_exit_codes_of_the_scripts_own(case, leave: str, code: int, kind: str) -> None:
    """An exit that the script asked for keeps its code; its last words are shown."""
    one = case(f"import sys\nimport holter\nfor _ in range(5):\n    holter.step(loss=1.0)\n{leave}\n").run()

    assert (one.code, one.kind()) == (code, kind), as_text(one)
    assert "GPU" not in leave or "last output: no GPU here" in one.page()


def test_keyboard_interrupt_is_an_interruption(case) -> None:
    """KeyboardInterrupt that nobody caught is no error of the program."""
    one = case("import holter\nholter.step(loss=1.0)\nraise KeyboardInterrupt\n").run()

    assert (one.code, one.kind()) == (128 + signal.SIGINT, "interrupted"), as_text(one)


RANKS = """
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(50):
    width = 15 if dist.get_rank() == 1 and step == 20 else 16
    loss = model(torch.randn(8, width)).pow(2).mean()  # here
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_the_rank_that_failed_first_is_the_cause(case) -> None:
    """One rank raises, the other loses its peer and the launcher ends it: the first error counts, not the signal."""
    one = case(RANKS)
    one.run(words=[sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", one.script])

    assert (one.kind(), one.first()["cause"]) == ("exception", "user-error"), as_text(one)
    assert "mat1 and mat2" in one.first()["claim"]
    assert one.first()["culprit"]["line"] == one.line("# here")


BROKEN_IMAGE = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __len__(self):
        return 100

    def __getitem__(self, index):
        if index == 50:
            raise ValueError("broken image 50")  # here
        return torch.randn(16)


if __name__ == "__main__":
    model = nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x in DataLoader(Images(), batch_size=8, num_workers=2):
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_an_error_in_a_data_worker_has_the_workers_line(case) -> None:
    """The trainer raises what its worker met; the culprit is the dataset's line."""
    one = case(BROKEN_IMAGE).run()

    assert (one.kind(), one.first()["cause"]) == ("exception", "user-error"), as_text(one)
    assert one.first()["culprit"]["line"] == one.line("# here")
