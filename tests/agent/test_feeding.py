"""What an agent tells of how data come: loaders and threads of PyTorch, inputs and pipelines of Keras on TensorFlow."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.agent_run import Run, run
from tests.needs import needs

TORCH = """
    import time, torch
    torch.set_num_threads(3)

    class Slow(torch.utils.data.Dataset):
        def __len__(self): return 40
        def __getitem__(self, i):
            time.sleep(0.005)
            return torch.zeros(4)

    class Loader(torch.utils.data.DataLoader):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)

    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train_loader = Loader(Slow(), batch_size=4, shuffle=True)
    ahead = torch.utils.data.DataLoader(Slow(), batch_size=8, num_workers=1, prefetch_factor=4)
    for epoch in range(8):
        for x in train_loader:
            loss = model(x).mean()
            optimizer.zero_grad(); loss.backward(); optimizer.step()
"""

KERAS = """
    import time, keras, numpy as np, tensorflow as tf
    keras.utils.set_random_seed(5)
    model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(1)])
    model.compile("sgd", "mse")

    def make(n):
        time.sleep(0.05)
        return np.full((3,), n, "float32")

    def load(n):
        x = tf.ensure_shape(tf.numpy_function(make, [n], tf.float32), (3,))
        return x, 0.0

    def batches():
        while True:
            time.sleep(0.02)
            yield np.zeros((2, 3), "float32"), np.zeros(2, "float32")

    class Files(keras.utils.PyDataset):
        def __len__(self): return 4
        def __getitem__(self, n):
            return np.ones((2, 3), "float32"), np.zeros(2, "float32")

    history = model.fit(tf.data.Dataset.range(100).map(load).batch(2), epochs=1, verbose=0)
    print(history.history["loss"])
    print(model.fit(batches(), steps_per_epoch=20, epochs=1, verbose=0).history["loss"])
    print(model.fit(Files(workers=2), epochs=1, verbose=0).history["loss"])
"""


@pytest.mark.torch
def test_loaders_and_threads_of_pytorch(tmp_path: Path) -> None:
    """A loader is told with what it was made with, at the line of the user's that made it."""
    pytest.importorskip("torch")
    done = run(tmp_path, TORCH)

    assert done.code == 0, done.err
    assert done.kind("guest-error") == []
    made = {e["code"].split(" = ")[0]: e for e in done.kind("made") if e["what"] == "loader"}
    facts = made["train_loader"]
    assert (facts["num_workers"], facts["batch_size"], facts["shuffle"], facts["dataset"]) == (0, 4, True, "Slow")
    assert (made["ahead"]["num_workers"], made["ahead"]["prefetch_factor"]) == (1, 4)
    assert [(e["intra_op"], e["framework"]) for e in done.kind("settings")] == [(3, "torch")]


@pytest.fixture(scope="module")
def fed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    needs("keras", "tensorflow")
    return run(tmp_path_factory.mktemp("fed"), KERAS)


@pytest.mark.tensorflow
def test_what_a_fit_is_fed_with(fed: Run) -> None:
    """Each fit says the kind of its input and the user's own code that makes the batches."""
    assert fed.code == 0, fed.err
    assert fed.kind("guest-error") == []
    inputs = fed.kind("input")
    assert [event["kind"] for event in inputs] == ["tf.data", "generator", "pydataset"]
    assert inputs[0]["stages"] == ["Batch", "Map", "Range"]
    assert inputs[0]["prefetch"] is False
    assert inputs[0]["functions"][0]["file"].endswith("train.py")
    assert inputs[1]["source"]["function"] == "batches"
    assert (inputs[2]["source"]["function"], inputs[2]["workers"], inputs[2]["name"]) == ("__getitem__", 2, "Files")


@pytest.mark.tensorflow
def test_a_pipeline_says_how_large_its_batches_are(fed: Run) -> None:
    """Its elements are drawn inside the traced step, where nobody sees them: the pipeline itself knows."""
    assert fed.kind("batch")[0]["shapes"] == [[[2, 3], "float32"], [[2], "float32"]]


@pytest.mark.tensorflow
def test_how_the_data_came(fed: Run) -> None:
    """tf.data's own account says that making the batches took nearly all the time, in calls into Python."""
    last = fed.kind("feed")[-1]

    assert last["calls"] >= 100
    assert last["busy"] >= 100 * 0.05
    assert last["cpu"] < 0.5 * last["busy"]
    assert last["looks"] >= 1
    assert last["elements"] >= 1
    assert fed.kind("data-thread")


@pytest.mark.tensorflow
def test_the_losses_are_the_same(fed: Run, tmp_path: Path) -> None:
    assert run(tmp_path, KERAS, agent=False).out == fed.out
