"""Next hour's temperature from the hours before, read from the station database."""
import os
import sqlite3
import tempfile

import lightning as L
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

HOURS, STATIONS = 2500, 24


def fill(path):
    rng = np.random.default_rng(0)
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE readings (station INTEGER, hour INTEGER, temperature REAL, wind REAL)")
    for s in range(STATIONS):
        t = 10 + 8 * np.sin(np.arange(HOURS) / 24 * 6.28) + rng.normal(0, 1, HOURS)
        w = rng.gamma(2, 3, HOURS)
        db.executemany("INSERT INTO readings VALUES (?, ?, ?, ?)",
                       [(s, h, float(a), float(b)) for h, (a, b) in enumerate(zip(t, w))])
    db.commit()
    db.close()


class Windows(Dataset):
    def __init__(self, path, count, back=24):
        self.db = sqlite3.connect(path)
        self.back = back
        rng = np.random.default_rng(1)
        self.keys = [(int(s), int(h)) for s, h in zip(rng.integers(0, STATIONS, count),
                                                      rng.integers(0, HOURS - back - 1, count))]

    def __len__(self):
        return len(self.keys)

    def __getitem__(self, i):
        station, hour = self.keys[i]
        rows = self.db.execute(
            "SELECT temperature, wind FROM readings WHERE station = ? AND hour BETWEEN ? AND ? ORDER BY hour",
            (station, hour, hour + self.back)).fetchall()
        table = torch.tensor(rows)
        return table[:-1] / 10, table[-1, :1] / 10


class Forecaster(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, 1))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.mse_loss(self.net(x), y)
        if batch_idx % 20 == 0:
            print(f"{batch_idx}: {loss.item():.4f}", flush=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


if __name__ == "__main__":
    where = os.path.join(tempfile.mkdtemp(), "stations.db")
    fill(where)
    loader = DataLoader(Windows(where, 3200), batch_size=32, shuffle=True)
    trainer = L.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
                        enable_progress_bar=False)
    trainer.fit(Forecaster(), loader)
