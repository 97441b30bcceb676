"""Memory that another process holds: on a GPU and on the host, and what only looks like it."""

from __future__ import annotations

import pytest
from build import GB, TRAINER, causes, exception, ordinary_run

from holter.diagnosis.core.doctor import verdict

GIB = 1 << 30
# The words of PyTorch 2.11 on an H200.
OTHERS = "Process 4711 has 125.00 GiB memory in use. "
SAID = (
    "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 139.81 GiB of which 14.06 GiB is "
    "free. {others}Including non-PyTorch memory, this process has 520.00 MiB memory in use. {allowed}Of the allocated "
    "memory 2.00 MiB is allocated by PyTorch, and 18.00 MiB is reserved by PyTorch but unallocated."
)
STRANGER = {"pid": 4711, "used": 125 * GIB, "name": "python", "command": "python other.py", "user": "ana"}


def refused(others: str = "", allowed: str = "", beside: tuple[dict, ...] = (), script: str = "train.py"):
    """A run that a GPU refused 20 GiB in its first step."""
    record = ordinary_run()
    record.meta["command"] = ["python", script]
    for at in (1, 50):
        used = 520 * (1 << 20) + sum(one["used"] for one in beside)
        row = {"index": 0, "total": 139.81 * GIB, "used": used, "tree": 520 * (1 << 20), "processes": [*beside]}
        record.sample(at, nvidia={"list": [row]})
    message = SAID.format(others=others, allowed=allowed)
    return exception(record, 59, "OutOfMemoryError", message).exit(60, 1)


def test_a_stranger_on_the_gpu_is_named():
    """Who, whose, how much, since when, and what was left; a smaller batch comes last."""
    diagnosis = verdict(refused(OTHERS, beside=(STRANGER,)))

    assert causes(diagnosis)[0] == "oversize.neighbour"
    assert "oversize.batch" not in causes(diagnosis)
    claim = diagnosis.findings[0].claim
    assert "134 GB of the GPU's 150 GB: pid 4711 (python other.py, user ana), since before this run began" in claim
    assert diagnosis.findings[0].grade == "established"
    assert "kill 4711" in diagnosis.findings[0].cures[0].how


def test_pytorchs_own_words_are_enough():
    """In a container the driver's process numbers have no names."""
    diagnosis = verdict(refused(OTHERS))

    assert causes(diagnosis)[0] == "oversize.neighbour"
    assert "pid 4711" in diagnosis.findings[0].claim


@pytest.mark.parametrize(
    ("command", "words"), [("python train.py", "earlier run"), ("python -m ipykernel_launcher", "restart its kernel")]
)
def test_ones_own_forgotten_process_is_told_as_such(command: str, words: str):
    """The leftover of a killed run, and a notebook that still holds its tensors."""
    diagnosis = verdict(refused(OTHERS, beside=({**STRANGER, "command": command},)))

    assert words in diagnosis.findings[0].cures[0].title


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"others": "Process 9 has 300.00 MiB memory in use. "},
        {"others": OTHERS, "allowed": "27.96 GiB allowed; "},
    ],
    ids=["alone", "a desktop", "its own limit"],
)
def test_what_is_no_neighbours_doing_is_not_told_as_such(how: dict):
    """Nobody beside it, little beside it, or a limit that the process set itself."""
    assert "oversize.neighbour" not in causes(verdict(refused(**how)))


def test_the_limit_that_a_process_set_itself_is_the_limit():
    """`set_per_process_memory_fraction`: the card's size says nothing of what was allowed."""
    diagnosis = verdict(refused(allowed="27.96 GiB allowed; "))

    assert "the limit that the process set itself" in diagnosis.findings[0].claim
    assert "30.0 GB" in diagnosis.findings[0].claim or "30 GB" in diagnosis.findings[0].claim


def test_what_others_hold_on_the_card_does_not_count_against_a_limit_of_its_own():
    """Two runs on one card, each with a limit: this one held 0.5 GB of its 30, the other 134."""
    diagnosis = verdict(refused(allowed="27.96 GiB allowed; ", beside=(STRANGER,)))

    assert "stood at 545 MB" in diagnosis.findings[0].claim


def on_host(others: float, own: float = 4 * GB):
    """A run on a machine without containers, that was refused 2 GB after it had trained for a minute."""
    record = ordinary_run(seconds=0)
    who = {"name": "python", "command": "python sweep.py", "user": "ana", "started": 5.0}
    for at in range(60):
        listed = [{"pid": TRAINER, "name": "python", "rss": own}]
        record.sample(
            at,
            processes={"rss": own, "count": 1, "list": listed},
            memory={"total": 32 * GB, "available": 0.2 * GB},
            neighbours={"list": [{"pid": 4711, "rss": others, **who}]},
        )
        record.steps(at, (at + 1) * 10)
    said = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 2000000000 bytes"
    return exception(record, 59, "RuntimeError", said).exit(60, 1)


def test_another_program_that_fills_the_machine_is_named():
    """By its resident size, with what was left for the run."""
    diagnosis = verdict(on_host(24 * GB))

    assert causes(diagnosis)[0] == "oversize.neighbour"
    assert (
        "24.0 GB of the machine's 32.0 GB: pid 4711 (python sweep.py, user ana), since before"
        in diagnosis.findings[0].claim
    )


def test_a_small_program_beside_a_large_run_is_no_neighbour():
    """The run itself is what filled the machine."""
    assert "oversize.neighbour" not in causes(verdict(on_host(2 * GB, own=29 * GB)))
