"""Runs that were killed or hang are started again from their last state, with a change, and never without end."""

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


# The same without any framework: what is kept is a list.
PLAIN = """
import os, signal, sys, time
import holter


def die():
    time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGKILL)


def at(step):
    AT


kept = []
for epoch in holter.resumable(range(4), every=0.0, kept=kept):
    for number in holter.resumable(range(12)):
        kept.append((epoch, number))
        time.sleep(0.01)
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


def test_a_killed_loop_goes_on_to_the_same_bits(case: Callable[[str], Case]) -> None:
    """A SIGKILL in the third epoch: the losses and weights of the end are those of a run that nobody disturbed, and
    only the one step is done again that came after the last copy."""
    strike = "if step == 30: time.sleep(2)\n    if step == 31 and once(): time.sleep(0.5); die()"
    killed = case(loop(strike)).start(**heal())
    plain = case(loop("pass")).start()
    killed.finish()
    plain.finish()

    assert (killed.code, plain.code) == (0, 0), as_text(killed)
    assert result(killed) == result(plain)
    assert killed.printed("begun") == 30
    assert attempts(killed) == 2
    verdict = killed.verdict()
    assert verdict["healthy"]
    acts = {act["act"]: act for act in verdict["interventions"]}
    assert acts["restart"]["text"].startswith("r-0001 was killed with SIGKILL")
    assert acts["resume"]["keeps"] == "exact"
    assert "goes on after step" in killed.err
    assert list((killed.holter.home / "states").iterdir()) == []


def test_a_loop_that_was_done_is_not_done_again(case: Callable[[str], Case]) -> None:
    """A kill after the last step: what was kept is put back, and no pass is made twice."""
    text = (
        loop("print('pass', step)", PLAIN) + "\nif not os.path.exists('struck'):\n    open('struck', 'w')\n    die()\n"
    )
    run = case(text).run(**heal())

    assert run.code == 0, as_text(run)
    assert run.out.count("pass") == 48
    assert run.out.endswith("result True\n")


def test_one_that_always_dies_at_the_same_step_is_given_up(case: Callable[[str], Case]) -> None:
    """After three restarts that came no further: exit code 123, the true cause, and what was tried."""
    run = case(loop("if step == 17: die()", PLAIN)).run(**heal())

    assert run.code == 123
    assert attempts(run) == 4
    verdict = run.verdict()
    assert verdict["ending"]["kind"] == "killed"
    assert verdict["findings"][0]["cause"] == "external.signal"
    declined = [act for act in verdict["interventions"] if not act["done"]]
    assert [act["act"] for act in declined] == ["restart"]
    assert "3 restarts in a row came no further than step 16" in declined[0]["because"]
    assert "a new process with fresh memory (3 times)" in declined[0]["because"]


def test_progress_is_what_counts(case: Callable[[str], Case]) -> None:
    """One that dies five times, each time further on, ends well."""
    strike = "if step % 8 == 0 and step <= 40 and not os.path.exists(f'at{step}'): open(f'at{step}', 'w'); die()"
    run = case(loop(strike, PLAIN)).run(**heal())

    assert run.code == 0, as_text(run)
    assert attempts(run) == 6
    assert run.out == "result True\n"


def test_without_heal_nothing_is_started_again(case: Callable[[str], Case]) -> None:
    """The same kill ends the run, and no state is written."""
    run = case(loop("if step == 17: die()", PLAIN)).run()

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
    ],
    ids=["error", "exit", "SIGTERM"],
)
def test_what_the_script_means_is_respected(case: Callable[[str], Case], at: str, code: int) -> None:
    """An error of its own, an exit, a signal that asks it to end: never a second attempt, nor a word about one."""
    run = case(loop(at, PLAIN)).run(**heal())

    assert run.code == code
    assert attempts(run) == 1
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


def test_a_kill_without_a_state_is_declined_with_the_way_out(case: Callable[[str], Case]) -> None:
    """A plain loop: there is nothing to go on from, and that is what the verdict says."""
    run = case("import os, signal, time\ntime.sleep(0.5)\nos.kill(os.getpid(), signal.SIGKILL)\n").run(**heal())

    assert run.code == 137
    assert attempts(run) == 1
    assert "holter.resumable" in told(run, "declined", 1)[0]["because"]
    assert "holter.resumable" in run.page()


def test_resume_args_are_added_to_the_command(case: Callable[[str], Case]) -> None:
    """A script that knows how to resume is told to, and only when it is started again."""
    text = """
        import os, signal, sys, time
        time.sleep(0.3)
        print("words", sys.argv[1:])
        if "--resume" not in sys.argv:
            os.kill(os.getpid(), signal.SIGKILL)
        """
    run = case(text).run(**heal("--resume-args", "--resume 'last one.pt'"))

    assert run.code == 0, as_text(run)
    assert run.out.splitlines() == ["words []", "words ['--resume', 'last one.pt']"]


def test_a_leak_gets_its_room_again_until_the_run_is_done(
    case: Callable[[str], Case],
    memory_cgroup: Callable[[int], Callable[[], None]],  # noqa: F811
) -> None:
    """8 MB a step in a container of 500 MB: no single process has room for all steps, two in a row have."""
    text = """
        import time, torch, holter

        torch.set_num_threads(1)
        model = torch.nn.Linear(64, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        kept, done = [], []
        for step in holter.resumable(range(40), model=model, optimizer=optimizer, done=done, every=0.1):
            kept.append(torch.ones(2_000_000))
            loss = model(torch.randn(32, 64)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done.append(step)
            time.sleep(0.03)
        print("done", done == list(range(40)), len(kept))
        """
    run = case(text).run(before=memory_cgroup(500_000_000), **heal())

    assert run.code == 0, as_text(run)
    assert "done True" in run.out
    acts = [act for act in told(run, "intervention", attempts(run)) if act["act"] == "restart"]
    assert len(acts) == attempts(run) - 1 >= 1
    assert {act["cause"].partition(".")[0] for act in acts} == {"leak"}
    assert {act["keeps"] for act in acts} == {"equivalent"}


def test_a_crash_in_compiled_code_is_not_repeated(case: Callable[[str], Case]) -> None:
    """No change is known that would cure it: one attempt, its own exit code, and the reason."""
    run = case(loop("if step == 17: import ctypes; ctypes.string_at(0)", PLAIN)).run(**heal())

    assert run.code == 139
    assert attempts(run) == 1
    assert "no change is known" in told(run, "declined", 1)[0]["because"]


def test_a_keras_fit_goes_on_in_its_epoch(case: Callable[[str], Case]) -> None:
    """Killed in the third epoch of five, with no callback of the script's own: it goes on there, and the history that
    the script reads in the end is whole."""
    pytest.importorskip("keras")
    text = """
        import os, signal, time
        os.environ.update(KERAS_BACKEND="tensorflow", TF_CPP_MIN_LOG_LEVEL="3")
        import keras, numpy as np

        keras.utils.set_random_seed(0)
        x = np.random.rand(64, 8).astype("float32")
        model = keras.Sequential([keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)])
        model.compile("adam", "mse")

        class Strike(keras.callbacks.Callback):
            def on_epoch_begin(self, epoch, logs=None):
                print("epoch", epoch + 1, flush=True)
                time.sleep(0.3)
                if epoch == 2 and not os.path.exists("struck"):
                    open("struck", "w").close()
                    os.kill(os.getpid(), signal.SIGKILL)

        past = model.fit(x, x.sum(1), epochs=5, batch_size=8, verbose=0, callbacks=[Strike()])
        print("history", past.epoch, len(past.history["loss"]), int(model.optimizer.iterations))
        """
    run = case(text).run(**heal())

    assert run.code == 0, as_text(run)
    assert [line for line in run.out.splitlines() if "epoch" in line] == [f"epoch {n}" for n in (1, 2, 3, 3, 4, 5)]
    assert "history [0, 1, 2, 3, 4] 5 40" in run.out
    assert "goes on after epoch 2, from its backup" in run.err


def test_many_keras_fits_go_on_in_the_one_that_was_killed(case: Callable[[str], Case]) -> None:
    """A search over models that is killed in its tenth fit, and again in its eleventh: the models of all fits that were
    done are what they were, and what is the same of each is told once."""
    pytest.importorskip("keras")
    text = """
        import os, signal
        os.environ.update(KERAS_BACKEND="tensorflow", TF_CPP_MIN_LOG_LEVEL="3")
        import keras, numpy as np

        keras.utils.set_random_seed(0)
        x = np.random.rand(64, 8).astype("float32")
        known = os.path.exists("known") and open("known").read().splitlines() or []
        for number in range(11):
            model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(1)])
            model.compile("adam", "mse", run_eagerly=True)
            model.fit(x, x.sum(1), epochs=2, batch_size=32, verbose=0)
            line = "%d %.5f" % (number, model.evaluate(x, x.sum(1), verbose=0))
            print(line, flush=True)
            if number < len(known):
                assert line == known[number], (line, known[number])
                continue
            open("known", "a").write(line + "\\n")
            if number >= 9:
                os.kill(os.getpid(), signal.SIGKILL)
        """
    run = case(text).run(**heal())

    assert run.code == 0, as_text(run)
    assert len(set(run.out.splitlines())) == 11
    said = [line for line in run.err.splitlines() if line.startswith("holter:")]
    assert ["Started again" in line for line in said] == [True, False] * 2, said


def test_trainers_go_on_from_their_own_checkpoints(case: Callable[[str], Case]) -> None:
    """Lightning, then Hugging Face, each killed once: of each the newest checkpoint of this run is used, and the first
    fit is not done again when the second one is killed."""
    pytest.importorskip("lightning")
    pytest.importorskip("transformers")
    text = """
        import os, signal, torch
        import lightning.pytorch as pl

        torch.manual_seed(0)
        torch.set_num_threads(1)

        def strike(word):
            if not os.path.exists(word):
                open(word, "w").close()
                os.kill(os.getpid(), signal.SIGKILL)

        class Net(pl.LightningModule):
            def __init__(self):
                super().__init__()
                self.net = torch.nn.Linear(8, 1)
            def training_step(self, batch, number):
                if self.current_epoch == 2 and number == 3:
                    strike("one")
                return (self.net(batch[0]) - batch[1]).pow(2).mean()
            def on_train_epoch_start(self):
                print("epoch", self.current_epoch + 1, flush=True)
            def configure_optimizers(self):
                return torch.optim.Adam(self.parameters())

        pairs = torch.utils.data.TensorDataset(torch.randn(40, 8), torch.randn(40, 1))
        quiet = dict(enable_progress_bar=False, logger=False, enable_model_summary=False)
        trainer = pl.Trainer(max_epochs=4, accelerator="cpu", default_root_dir="one-out", **quiet)
        trainer.fit(Net(), torch.utils.data.DataLoader(pairs, batch_size=8))
        print("lightning", trainer.global_step, flush=True)

        from transformers import Trainer, TrainingArguments

        class Plain(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.net, self.calls = torch.nn.Linear(8, 1), 0
            def forward(self, x=None, labels=None):
                self.calls += 1
                if self.calls == 12:
                    strike("two")
                return {"loss": (self.net(x) - labels).pow(2).mean()}

        rows = [{"x": x, "labels": y} for x, y in pairs]
        more = dict(save_steps=4, report_to=[], use_cpu=True, disable_tqdm=True)
        given = TrainingArguments(output_dir="two-out", per_device_train_batch_size=8, num_train_epochs=4, **more)
        model = Plain()
        trainer = Trainer(model=model, args=given, train_dataset=rows)
        trainer.train()
        print("transformers", trainer.state.global_step, model.calls)
        """
    run = case(text).run(**heal())

    assert run.code == 0, as_text(run)
    assert attempts(run) == 3
    assert [line for line in run.out.splitlines() if line.startswith("epoch")] == [
        f"epoch {n}" for n in (1, 2, 3, 3, 4)
    ]
    assert run.out.count("lightning 20") == 2
    assert "transformers 20 12" in run.out
    assert "from epoch=1-step=10.ckpt" in run.err
    assert "from checkpoint-8" in run.err


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
