"""Runs that ran out of memory or hang are started again from their last state, with a change, and never without end."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import holter
from tests.endings.conftest import memory_cgroup  # noqa: F401 - a fixture
from tests.endings.ward import Case, as_text, left_of

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

# A loop with all that makes a bit differ: shuffled data, dropout, noise, moments, a schedule. `at` is called after
# each step with the number of steps so far.
LOOP = """
import os, random, signal, sys, time
import torch, holter
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)
random.seed(0)
data = TensorDataset(torch.randn(120, 8), torch.randn(120, 1))
loader = DataLoader(data, batch_size=10, shuffle=True, generator=torch.Generator().manual_seed(5))
model = nn.Sequential(nn.Linear(8, 32), nn.Dropout(0.3), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.7)
losses = []


def once():
    if os.path.exists("struck"):
        return False
    open("struck", "w").close()
    return True


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def at(step):
    AT


state = dict(model=model, optimizer=optimizer, schedule=schedule, losses=losses)
begun = None
for epoch in holter.resumable(range(4), every=0.02, **state):
    for x, y in holter.resumable(loader):
        begun = len(losses) if begun is None else begun
        noise = random.random() * 0.01 * torch.randn_like(x)
        loss = (model(x + noise) - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        time.sleep(0.004)
        at(len(losses))
    schedule.step()
print("begun", begun)
print("result", repr(losses), repr([p.tolist() for p in model.parameters()]), optimizer.param_groups[0]["lr"])
"""


# The same without any framework: what is kept is a list. `grow` leaks 8 MB: with 48 steps a process in a container of
# 200 MB is killed by the kernel after about 20 of them.
ROOM = 200_000_000
PLAIN = """
import os, signal, sys, time
import holter

grown = []


def grow():
    grown.append(b"x" * 8_000_000)


def die():
    time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGKILL)


def at(step):
    AT


kept = []
for epoch in holter.resumable(range(4), every=0.0, kept=kept):
    for number in holter.resumable(range(12)):
        kept.append((epoch, number))
        time.sleep(0.03)
        at(len(kept))
print("result", kept == [(epoch, number) for epoch in range(4) for number in range(12)])
"""


def loop(at: str, text: str = LOOP) -> str:
    return text.replace("AT\n", at + "\n")


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Callable[[str], Case]]:
    made: list[Case] = []

    def make(text: str) -> Case:
        made.append(Case(tmp_path / f"case-{len(made)}", text))
        return made[-1]

    yield make
    for one in made:
        assert left_of(one) == []
        one.holter.close()


@pytest.fixture(scope="module", autouse=True)
def hung(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    """A run whose workers come to a halt: to see that takes a while, in which the other tests are run."""
    stuck = """
class Stuck(TensorDataset):
    def __getitem__(self, index):
        if torch.utils.data.get_worker_info() is not None and drawn.value > 20:
            time.sleep(1e6)
        drawn.value += 1
        return super().__getitem__(index)


drawn = torch.multiprocessing.Value("i", 0)
data = Stuck(*data.tensors)
"""
    plain = "loader = DataLoader(data, batch_size=10, shuffle=True, generator=torch.Generator().manual_seed(5))"
    text = loop("pass").replace(plain, stuck + plain[:-1] + ", num_workers=2, prefetch_factor=2)")
    one = Case(tmp_path_factory.mktemp("hung") / "case", text).start(**heal("--on-hang", "restart"))
    yield one
    one.holter.close()


def heal(*options: str) -> dict[str, Any]:
    return {"options": ["--heal", *options]}


def result(case: Case) -> str:
    return next(line for line in case.out.splitlines() if line.startswith("result"))


def attempts(case: Case) -> int:
    return len(list((case.holter.home / "runs").iterdir()))


def told(case: Case, kind: str, number: int) -> list[dict[str, Any]]:
    return case.holter.events(kind, number)


def test_outside_holter_a_resumable_loop_is_a_plain_one() -> None:
    """Whatever it iterates over, whatever it is told to keep."""
    rows = [(a, b) for a in holter.resumable(range(3), model=object()) for b in holter.resumable(iter("xy"), every=1)]

    assert rows == [(a, b) for a in range(3) for b in "xy"]


def test_one_that_always_dies_at_the_same_step_is_given_up(
    case: Callable[[str], Case],
    memory_cgroup: Callable[[int], Callable[[], None]],  # noqa: F811
) -> None:
    """What it needs grows with its step: after three restarts that came no further, or once the curve shows that none
    would help, it ends with its true ending, and what was tried."""
    run = case(loop("while len(grown) < step: grow()", PLAIN)).run(before=memory_cgroup(ROOM), **heal())
    verdict = run.verdict()
    declined = [act["because"] for act in verdict["interventions"] if not act["done"] and act["act"] == "restart"]

    assert 2 <= attempts(run) <= 4
    assert verdict["ending"]["kind"] == "oom-killed"
    assert len(declined) == 1
    assert run.code == (123 if "3 restarts in a row did not get past" in declined[0] else 137)


def test_a_leak_gets_its_room_again_until_the_run_is_done(
    case: Callable[[str], Case],
    memory_cgroup: Callable[[int], Callable[[], None]],  # noqa: F811
) -> None:
    """No single process has room for all steps: each that the kernel kills is gone on from, with what it has done."""
    run = case(loop("grow()", PLAIN)).run(before=memory_cgroup(ROOM), **heal())

    assert run.code == 0, as_text(run)
    assert run.out == "result True\n"
    acts = [act for act in told(run, "intervention", attempts(run)) if act["act"] == "restart"]
    assert len(acts) == attempts(run) - 1 >= 2
    assert {act["keeps"] for act in acts} == {"equivalent"}
    assert "was killed by the kernel: out of memory" in run.err
    assert list((run.holter.home / "states").iterdir()) == []


def test_without_heal_nothing_is_started_again(
    case: Callable[[str], Case],
    memory_cgroup: Callable[[int], Callable[[], None]],  # noqa: F811
) -> None:
    """The same kill ends the run, and no state is written."""
    run = case(loop("grow()", PLAIN)).run(before=memory_cgroup(ROOM))

    assert run.code == 137
    assert attempts(run) == 1
    assert told(run, "state", 1) == []
    assert not (run.holter.home / "states").exists()


@pytest.mark.parametrize(
    ("at", "code"),
    [
        ("if step == 17: raise ValueError('a mistake')", 1),
        ("if step == 17: sys.exit(3)", 3),
        ("if step == 17: os.kill(os.getpid(), signal.SIGTERM)", 143),
        ("if step == 17: die()", 137),
        ("grow(); step < 17 or sys.exit(1)", 1),
        ("grow(); step < 17 or os._exit(1)", 1),
        ("grow(); step < 17 or die()", 137),
    ],
    ids=["error", "exit", "SIGTERM", "SIGKILL", "exit near the limit", "_exit near the limit", "SIGKILL of a leak"],
)
def test_what_the_script_means_is_respected(
    case: Callable[[str], Case],
    at: str,
    code: int,
    memory_cgroup: Callable[[int], Callable[[], None]],  # noqa: F811
) -> None:
    """An error of its own, an exit, a signal from anywhere: never a second attempt, nor a word about one, though memory
    was growing towards its limit."""
    run = case(loop(at, PLAIN)).run(before=memory_cgroup(ROOM), **heal())

    assert run.code == code
    assert attempts(run) == 1, run.err
    assert told(run, "declined", 1) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_its_user_ends_is_over(
    case: Callable[[str], Case], number: int, wait_for: Callable[..., Any]
) -> None:
    """Also when the trainer does not listen, and is killed for that."""
    deaf = "if step == 9: [signal.signal(n, lambda *_: die()) for n in (2, 15)]; print('ready', flush=True)\n"
    run = case(loop(deaf + "    time.sleep(0.05)", PLAIN)).start(**heal())
    assert run.process is not None
    assert run.process.stdout is not None
    assert run.process.stdout.readline() == b"ready\n"
    wait_for(lambda: told(run, "state", 1), "a state")
    run.process.send_signal(number)
    run.finish()

    assert run.code == 137
    assert attempts(run) == 1


def test_resume_args_are_added_to_the_command(
    case: Callable[[str], Case],
    memory_cgroup: Callable[[int], Callable[[], None]],  # noqa: F811
) -> None:
    """A script that knows how to resume is told to, and only when it is started again."""
    text = """
        import sys, time, holter
        print("words", sys.argv[1:], flush=True)
        kept = []
        for step in holter.track(range(60)):
            if "--resume" not in sys.argv:
                kept.append(b"x" * 8_000_000)
            time.sleep(0.03)
        """
    run = case(text).run(before=memory_cgroup(ROOM), **heal("--resume-args", "--resume 'last one.pt'"))

    assert run.code == 0, as_text(run)
    assert run.out.splitlines() == ["words []", "words ['--resume', 'last one.pt']"]


def test_a_crash_in_compiled_code_is_not_repeated(case: Callable[[str], Case]) -> None:
    """No change is known that would cure it: one attempt, its own exit code, and the reason."""
    run = case(loop("if step == 17: import ctypes; ctypes.string_at(0)", PLAIN)).run(**heal())

    assert run.code == 139
    assert attempts(run) == 1
    assert "Holter knows no change" in told(run, "declined", 1)[0]["because"]


def test_a_worker_that_hangs_is_done_without(hung: Case, case: Callable[[str], Case]) -> None:
    """The run is ended and goes on with num_workers=0, from its state, to the same bits as without workers."""
    plain = case(loop("pass")).run()
    hung.finish()

    assert (hung.code, plain.code) == (0, 0), as_text(hung)
    assert result(hung) == result(plain)
    assert attempts(hung) == 2
    restart = told(hung, "intervention", 2)[0]
    assert (restart["cause"], restart["change"]) == ("hang.worker", "no-workers")
    assert "data are loaded in the trainer instead of in 2 workers" in hung.err
