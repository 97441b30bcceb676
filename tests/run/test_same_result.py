"""Under Holter a training gives the same result, to the last bit and the last byte."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import Holter
from tests.needs import needs

TORCH = """
import torch
from torch import nn
torch.manual_seed(11)
model = nn.Sequential(nn.Linear(12, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 120)
data = torch.utils.data.TensorDataset(torch.randn(480, 12), torch.randint(0, 3, (480,)))
loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True, num_workers=2)
if __name__ == "__main__":
    for epoch in range(4):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            print(loss.item().hex())
    print([p.detach().double().sum().item().hex() for p in model.parameters()], torch.rand(1).item().hex())
"""

KERAS = """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras, numpy as np, tensorflow as tf
keras.utils.set_random_seed(5)
tf.config.experimental.enable_op_determinism()
rng = np.random.default_rng(0)
x, y = rng.normal(size=(256, 10)).astype("float32"), rng.integers(0, 2, size=(256, 1)).astype("float32")
model = keras.Sequential([keras.Input((10,)), keras.layers.Dense(32, activation="relu"),
                          keras.layers.Dropout(0.2), keras.layers.Dense(1, activation="sigmoid")])
model.compile(optimizer="adam", loss="binary_crossentropy", metrics=["accuracy"])
losses = []
class Keep(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        losses.append(float(logs["loss"]).hex())
history = model.fit(x, y, epochs=3, batch_size=32, validation_split=0.25, callbacks=[Keep()], verbose=2)
optimizer = keras.optimizers.SGD(0.01)
for step in range(5):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x[:32], training=True) - y[:32]))
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    losses.append(float(loss).hex())
print(losses)
print([float(w.numpy().astype("float64").sum()).hex() for w in model.weights])
"""


@pytest.mark.parametrize(("framework", "script"), [("torch", TORCH), ("tensorflow", KERAS)])
def test_losses_and_weights_are_identical_to_the_last_bit(
    holter: Holter, monkeypatch: pytest.MonkeyPatch, framework: str, script: str
) -> None:
    """All losses, the weights' sums and stdout as a whole are those of a run without Holter."""
    needs(framework)
    path = holter.script(script)
    monkeypatch.delenv("OMP_NUM_THREADS")  # with as many threads as the framework takes by itself
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")  # which do not spin while they wait for each other
    plain = subprocess.run([sys.executable, path], capture_output=True, check=True, cwd=holter.folder)

    watched = holter.run(sys.executable, path)

    assert watched.returncode == 0, watched.stderr.decode()
    assert _without_times(watched.stdout) == _without_times(plain.stdout)
    assert any(line["state"] == "on" for line in holter.events("adapter")), "the agent was not there"
    assert holter.events("guest-error") == []
    assert sum(line["n"] for line in holter.timeline("steps")) > 20


def _without_times(output: bytes) -> list[str]:
    """Keras prints how long a step took; that alone may differ."""
    import re

    return [re.sub(r"\d+(\.\d+)?(s|ms|us|µs)(/(step|epoch))?", "TIME", line) for line in output.decode().splitlines()]
