"""Spectra in shards; the last shards that were unpacked stay on a shelf, as many as fit."""
import gzip
import io
import os
import tempfile
from collections import OrderedDict

import numpy as np
import torch
from torch import nn

ROWS, BANDS = 600, 3000


class Shelf:
    def __init__(self, folder, room):
        self.folder, self.room = folder, room
        self.shards = OrderedDict()

    def __getitem__(self, number):
        if number in self.shards:
            self.shards.move_to_end(number)
            return self.shards[number]
        with gzip.open(os.path.join(self.folder, f"{number:03d}.npy.gz")) as f:
            shard = np.load(io.BytesIO(f.read())).astype(np.float32)
        self.shards[number] = shard
        while len(self.shards) > self.room:
            self.shards.popitem(last=False)
        return shard


def write_shards(folder, count):
    rng = np.random.default_rng(0)
    for number in range(count):
        with gzip.open(os.path.join(folder, f"{number:03d}.npy.gz"), "wb", compresslevel=1) as f:
            np.save(f, rng.integers(0, 6, (ROWS, BANDS)).astype(np.uint8))


def batches(shelf, count, epoch):
    order = np.random.default_rng(epoch).permutation(count)
    for number in order:
        rows = torch.from_numpy(shelf[int(number)])
        yield from torch.utils.data.DataLoader(rows, batch_size=60, shuffle=True)


with tempfile.TemporaryDirectory() as folder:
    write_shards(folder, 80)
    shelf = Shelf(folder, room=62)
    torch.manual_seed(0)
    coder = nn.Sequential(nn.Linear(BANDS, 64), nn.ReLU(), nn.Linear(64, BANDS))
    optimizer = torch.optim.Adam(coder.parameters(), lr=1e-3)
    for epoch in range(5):
        for step, rows in enumerate(batches(shelf, 80, epoch)):
            loss = nn.functional.mse_loss(coder(rows), rows)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}, {len(shelf.shards)} shards on the shelf", flush=True)
