"""Real jobs of several ranks on gloo, under one Holter and under one for each rank, with real faults."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Holter
from tests.needs import needs

pytestmark = pytest.mark.torch
needs("torch")

JOB = Path(__file__).with_name("job.py")
LINES = JOB.read_text().splitlines()


def line_with(mark: str) -> int:
    return next(number for number, line in enumerate(LINES, 1) if mark in line)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def torchrun(holter: Holter, fault: str, ranks: int = 2, *options: str) -> str:
    """Run a job under one Holter; returns what it wrote to stderr."""
    shutil.copy(JOB, holter.folder / "job.py")
    words = [sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={ranks}", f"--master_port={free_port()}"]
    done = holter("run", *options, "--", *words, "job.py", fault, env={"OMP_NUM_THREADS": "1"})
    return done.stderr.decode()


def first(found: dict[str, Any]) -> tuple[str, int | None, int | None]:
    one = found["findings"][0]
    return one["cause"], one["rank"], one["culprit"] and one["culprit"]["line"]


def test_the_rank_that_stands_still_is_named_with_its_line(holter: Holter) -> None:
    """The other waits in backward, which is the exchange of gradients."""
    said = torchrun(holter, "stuck", 2, "--on-hang", "stop")

    assert first(holter.why()) == ("hang.collective", 1, line_with("# stands here"))
    assert "rank 1 never came to all_reduce" in said


def test_a_rank_that_never_comes_is_told_within_half_a_minute(holter: Holter) -> None:
    """Its peer waits in init_process_group; after a minute that is a hang, with the line where the other stands."""
    said = torchrun(holter, "never", 2, "--on-hang", "stop")

    assert "waits in init_process_group" in said
    assert "for 2" in said.partition("init_process_group")[2][:30]
    assert first(holter.why()) == ("hang.collective", 1, line_with("# never comes"))


def test_a_rank_that_is_killed_is_named_and_not_its_victims(holter: Holter) -> None:
    """The others lost their connection first."""
    torchrun(holter, "killed", 3)

    found = holter.why()
    assert (found["ending"]["kind"], first(found)[:2]) == ("killed", ("external.signal", 2))


def test_ranks_in_other_operations_never_meet(holter: Holter) -> None:
    """One of three gathers what the others reduce; told as soon as all of them stand there."""
    torchrun(holter, "extra", 3, "--on-hang", "stop")

    found = holter.why()
    assert first(found) == ("hang.collective", 2, line_with("# the others do not")) or found["ending"]["signal"]


def test_a_straggler_in_backward_is_named_with_its_lateness(holter: Holter) -> None:
    """80 ms late at every step, though the steps of all ranks take equally long."""
    torchrun(holter, "slow-backward", 2)

    found = holter.why()
    assert first(found) == ("straggler.rank", 1, line_with("# the delay"))
    late = float(found["findings"][0]["evidence"][0]["value"].partition(" ms")[0])
    assert 72 <= late <= 110


@pytest.mark.parametrize("calm", ["evaluates", "late", "jitter"])
def test_no_rank_is_accused_in_a_healthy_job(holter: Holter, calm: str) -> None:
    """The first rank evaluates alone for long, one starts later than the other, ranks vary by a tenth."""
    torchrun(holter, calm, 2, "--on-hang", "stop")

    found = holter.why()
    assert (found["ending"]["kind"], found["healthy"], found["findings"]) == ("completed", True, [])


def test_a_holter_for_each_rank_gives_one_verdict(holter: Holter) -> None:
    """As under Slurm: each record knows where the other rank stands, and both together say the same."""
    shutil.copy(JOB, holter.folder / "job.py")
    job = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    started = []
    for rank in ("0", "1"):
        mine = {**job, "RANK": rank, "LOCAL_RANK": "0", "SLURM_JOB_ID": "77"}
        started.append(
            holter.start("run", "--on-hang", "stop", "--", sys.executable, "job.py", "stuck", env=mine)
        )  # fmt: skip
    for one in started:
        one.communicate(timeout=600)

    done = holter("why", "--job", "slurm:77", "--json")

    found = json.loads(done.stdout)
    assert first(found) == ("hang.collective", 1, line_with("# stands here"))
    assert found["run"]["job"]["ranks"] == [0, 1]
    each = [first(holter.why(run)) for run in sorted(os.listdir(holter.home / "runs")) if run.startswith("r-")]
    assert {one[2] for one in each} == {line_with("# stands here")}
