"""Models that are kept and no longer trained are put on disk in place when memory runs out, and are what they were."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holter.beacon.reflexes.lay_aside import Kept, LayAside
from tests.beacon.guest_run import run
from tests.heal.conftest import Three

if sys.platform != "linux":
    pytest.skip("Linux's mappings", allow_module_level=True)

from holter.beacon.reflexes import _on_disk_linux as on_disk

KIND = on_disk._kind_of(tempfile.gettempdir())
needs_a_disk = pytest.mark.skipif(KIND not in on_disk._DISKS, reason=f"temporary files lie on {KIND}, which is no disk")

BLOCKS = """
import ctypes, json, sys, threading
from holter.beacon.reflexes import _host_room
from holter.beacon.reflexes._on_disk_linux import OnDisk

MB = 1 << 20
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.calloc.restype, libc.calloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t, ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]


def block(size, value):
    found = libc.malloc(size)
    libc.memset(found, value, size)
    return found


def reads_as(address, size):
    return sorted(set(ctypes.string_at(address, size)))


told = {}
libc.mallopt(-3, MB)
alone = [block(40 * MB + 100, n) for n in (1, 2, 3)]
libc.mallopt(-3, 32 * MB)
heaped = block(8 * MB, 4)
elsewhere = []
thread = threading.Thread(target=lambda: elsewhere.append(block(8 * MB, 5)))
thread.start()
thread.join()
disk = OnDisk([sys.argv[1]])
before = _host_room.status("RssAnon")
told["put"] = [disk.put([(one, size)]) // MB for one, size in
               [(alone[1], 40 * MB + 100), (heaped, 8 * MB), (elsewhere[0], 8 * MB)]]
told["gone"] = (before - _host_room.status("RssAnon")) // MB
told["read"] = [reads_as(one, 40 * MB + 100) for one in alone] + [reads_as(heaped, 8 * MB)]
libc.memset(alone[1] + 20 * MB, 7, 10 * MB)
told["written"] = reads_as(alone[1], 40 * MB), reads_as(alone[1] + 20 * MB, 10 * MB), reads_as(alone[2], 40 * MB)
told["again"] = disk.put([(alone[1], 40 * MB + 100)]) // MB, reads_as(alone[1], 40 * MB)
for one in (*alone, heaped):
    libc.free(one)
empty = [libc.calloc(size, MB) for size in (8, 40)]
told["empty"] = [reads_as(one, size * MB) for one, size in zip(empty, (8, 40))]
print(json.dumps(told))
"""


@needs_a_disk
def test_what_is_put_on_disk_reads_and_is_written_to_as_before(tmp_path: Path) -> None:
    """Blocks of their own and those of the first heap; those of another thread's heap are left where they are."""
    done = subprocess.run([sys.executable, "-c", BLOCKS, str(tmp_path)], capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)

    assert [abs(size - wanted) <= 1 for size, wanted in zip(told["put"], (40, 8, 0), strict=True)] == [True] * 3
    assert told["gone"] >= 44
    assert told["read"] == [[1], [2], [3], [4]]
    assert told["written"] == [[2, 7], [7], [3]]
    assert told["again"][1] == [2, 7]
    assert told["empty"] == [[0], [0]]
    assert list(tmp_path.iterdir()) == []  # its file has no name


FULL = """
import ctypes, resource, sys
from holter.beacon.reflexes._on_disk_linux import OnDisk

block = ctypes.create_string_buffer(b"x" * (64 << 20), 64 << 20)
resource.setrlimit(resource.RLIMIT_FSIZE, (20 << 20, resource.RLIM_INFINITY))
try:
    OnDisk([sys.argv[1]]).put([(ctypes.addressof(block), 64 << 20)])
except OSError as error:
    print("declined", error.errno is not None)
print(block.raw == b"x" * (64 << 20))
"""


@needs_a_disk
def test_a_disk_that_takes_no_more_costs_nothing(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=True)

    assert done.stdout == "declined True\nTrue\n"


CLOSED = """
import ctypes, os, sys
from holter.beacon.reflexes._on_disk_linux import OnDisk

block = ctypes.create_string_buffer(64 << 20)
disk = OnDisk([sys.argv[1]])
os.closerange(3, 1 << 16)
os.dup2(os.open(os.path.join(sys.argv[1], "mine"), os.O_CREAT | os.O_RDWR), disk.file)
try:
    disk.put([(ctypes.addressof(block), 64 << 20)])
except OSError as error:
    print(error)
print(os.fstat(disk.file).st_size)
"""


@needs_a_disk
def test_a_script_that_closed_its_file_and_uses_the_number_is_left_alone(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", CLOSED, str(tmp_path)], capture_output=True, text=True, check=True)

    assert done.stdout == "the script has closed its file, and may be using the number\n0\n"


def test_a_folder_in_memory_is_no_disk() -> None:
    with pytest.raises(OSError, match="no folder on a disk of this machine"):
        on_disk.OnDisk(["/dev/shm"])


class Model:
    """Something that is trained when the test says so."""

    def __init__(self, size: int) -> None:
        self.updates, self.size, self.rested, self.shrunk = 0, size, 0, 0

    def lives(self) -> bool:
        return True

    def mark(self) -> int:
        return self.updates

    def rests(self) -> None:
        self.rested += 1

    def shrink(self) -> bool:
        self.shrunk += 1
        return True

    def blocks(self) -> list[tuple[int, int]]:
        return [(id(self), self.size)]


class Training:
    """A process whose memory and time the test tells."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
        self.now, self.room, self.held, self.garbage = 100.0, room, 1000, 0
        self.said: list[dict[str, Any]] = []
        self.guest = SimpleNamespace(beat=SimpleNamespace(steps=0), say=lambda _, **more: self.said.append(more))
        self.aside = LayAside(self.guest, None)
        self.aside.ready = True  # nothing is set in the process of the tests
        self.aside.disk = SimpleNamespace(at=0, put=self.put, pid=os.getpid())
        self.put_there: list[int] = []
        place = "holter.beacon.reflexes.lay_aside."
        for name, value in {
            "monotonic": lambda: self.now, "held": lambda: self.held, "left": lambda: self.room,
            "let_all_go": lambda: 0, "collect_of": lambda _: self, "raise_the_wall": lambda _: None,
        }.items():  # fmt: skip
            monkeypatch.setattr(place + name, value)

    def collect(self, *_: float) -> None:
        """There is no garbage, unless the test says so."""
        self.room, self.held, self.garbage = self.room + self.garbage, self.held - self.garbage, 0

    def put(self, blocks: list[tuple[int, int]]) -> int:
        self.put_there += [address for address, _ in blocks]
        self.aside.disk.at += blocks[0][1]
        self.room, self.held = self.room + blocks[0][1], self.held - blocks[0][1]
        return blocks[0][1]

    def goes_on(self, seconds: float, *trained: Model) -> None:
        for _ in range(int(seconds)):
            self.now += 1.0
            self.guest.beat.steps += 10
            for one in trained:
                one.updates += 10
            self.aside.look()


def test_the_oldest_that_is_not_trained_goes_first_and_only_as_far_as_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(monkeypatch, room=400)
    models = [Model(310) for _ in range(4)]
    for model in models:
        training.aside.watch(model, model)
        training.goes_on(3, model)

    assert training.put_there == [id(models[0])]
    assert (models[0].shrunk, models[1].shrunk) == (1, 0)
    assert training.said[0]["keeps"] == "exact"


def test_where_letting_garbage_go_is_enough_nothing_is_laid_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(monkeypatch, room=400)
    training.garbage = 300
    for model in (Model(310), Model(310)):
        training.aside.watch(model, model)
        training.goes_on(3, model)

    assert training.put_there == []


def test_models_that_are_trained_in_turns_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(monkeypatch, room=100)
    one, other = Model(300), Model(300)
    training.aside.watch(one, one)
    training.aside.watch(other, other)
    training.goes_on(20, one, other)

    assert training.put_there == []


def test_with_room_nothing_is_laid_aside_but_copies_of_what_rests_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(monkeypatch, room=5000)
    one, other = Model(300), Model(300)
    training.aside.watch(one, one)
    training.goes_on(3, one)
    training.aside.watch(other, other)
    training.goes_on(6, other)

    assert training.put_there == []
    assert (one.rested, other.rested) == (1, 0)


def test_one_that_is_trained_again_can_be_laid_aside_again(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(monkeypatch, room=100)
    one, other = Model(100), Model(100)
    training.aside.watch(one, one)
    training.aside.watch(other, other)
    training.goes_on(4, other)
    training.goes_on(4, one, other)
    training.goes_on(4, other)

    assert training.put_there == [id(one), id(one)]


def test_what_is_watched_twice_is_laid_aside_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An optimizer is met when it is made and when it first steps."""
    training = Training(monkeypatch, room=100)
    one, other = Model(100), Model(100)
    for model in (one, one, other):
        training.aside.watch(model, model)
    training.goes_on(4, other)

    assert training.put_there == [id(one)]


def test_a_pause_of_all_training_makes_nothing_idle() -> None:
    kept = Kept(Model(1))
    kept.is_idle(0.0, 5)

    assert not kept.is_idle(60.0, 5)
    assert kept.is_idle(62.0, 9)


def test_many_steps_of_others_make_it_idle_at_once_and_a_few_only_with_time() -> None:
    """One that is trained every few steps, in turns with another, is none."""
    kept = Kept(Model(1))
    kept.is_idle(0.0, 5)

    assert not kept.is_idle(1.0, 12)
    assert kept.is_idle(1.0, 16)


# Models and optimizers that stay in a list, 32 MB each; in the end all of them are used.
TORCH = """
    import time, torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    trials = []
    for trial in range(20):
        model = torch.nn.Sequential(torch.nn.Linear(1400, 1400), torch.nn.Tanh(), torch.nn.Linear(1400, 1))
        optimizer = torch.optim.Adam(model.parameters())
        for step in range(10):
            loss = model(torch.randn(8, 1400)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.04)
        trials.append((model, optimizer))
    x = torch.randn(4, 1400)
    print("votes", [round(model(x).mean().item(), 7) for model, _ in trials])
    print("moments", sum(state["exp_avg"].double().sum().item() for _, one in trials for state in one.state.values()))
    """
# Each holds 24 MB of variables, and some ten MB that were traced for it.
KERAS = """
    import os
    os.environ.update(KERAS_BACKEND="tensorflow", TF_CPP_MIN_LOG_LEVEL="3")
    import keras, numpy as np

    keras.utils.set_random_seed(0)
    x, y = np.random.rand(64, 400).astype("float32"), np.random.rand(64, 1).astype("float32")
    committee = []
    for fold in range(14):
        model = keras.Sequential([keras.layers.Dense(5000, activation="relu"), keras.layers.Dense(1)])
        model.compile("adam", "mse")
        model.fit(x, y, epochs=1, batch_size=8, verbose=0)
        committee.append(model)
    print("votes", [round(float(model.predict(x, verbose=0).mean()), 5) for model in committee])
    committee[0].fit(x, y, epochs=2, batch_size=8, verbose=0)
    print("again", int(committee[0].optimizer.iterations))
    """


@needs_a_disk
@pytest.mark.parametrize(
    ("framework", "text", "room"),
    [("torch", TORCH, 560_000_000), ("keras", KERAS, 680_000_000)],
    ids=["torch", "keras"],
)
def test_a_script_that_keeps_all_its_models_finishes_with_the_same_result(
    three_ways: Callable[[str, int], Three], framework: str, text: str, room: int
) -> None:
    """Killed without --heal; with it in one go, and what the kept ones say in the end is what they say with room."""
    pytest.importorskip(framework)
    dies, _free, healed = three_ways(text, room)

    assert dies.code in (137, -9, 139, 134)  # TensorFlow may crash where the kernel refuses it memory
    acts = {(act["act"], act["keeps"]) for act in healed.verdict()["interventions"]}
    assert ("lay-aside", "exact") in acts
    assert acts <= {("lay-aside", "exact"), ("collect", "exact")}


NESTED = """
    import os
    os.environ.update(KERAS_BACKEND="tensorflow", TF_CPP_MIN_LOG_LEVEL="3")
    import keras, numpy as np
    from _holter.beacon.reflexes._kept_keras import KeptKeras

    x, y = np.random.rand(64, 8).astype("float32"), np.random.rand(64, 1).astype("float32")

    def made():
        model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(1)])
        model.compile("adam", "mse")
        return model

    class Within(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            inner = made()
            inner.fit(x, y, verbose=0)
            for model in (outer, inner):
                KeptKeras(model, model.train_function.hold).shrink()
            print(outer.train_function is None, inner.train_function is None)

    outer = made()
    outer.fit(x, y, epochs=2, verbose=0, callbacks=[Within()])
    print(int(outer.optimizer.iterations))
    """


def test_a_model_in_whose_fit_another_is_trained_keeps_what_was_traced(tmp_path: Path) -> None:
    pytest.importorskip("keras")
    done = run(tmp_path, NESTED.replace("\n    ", "\n"), HOLTER_HEAL="safe")

    assert done.code == 0, done.err
    assert done.out.split() == ["False", "True", "False", "True", "4"]
