import json
import threading
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Tally:
    """How often each sensor was used; a small thread writes it to tally.json for the dashboard."""

    def __init__(self, sensors, path="tally.json"):
        self.used = [0] * sensors
        self.path = path
        self.guard = threading.Lock()
        threading.Thread(target=self._write_now_and_then, daemon=True).start()

    def count(self, sensor):
        with self.guard:
            self.used[sensor] += 1

    def _write_now_and_then(self):
        time.sleep(12)
        while True:
            with self.guard:
                for attempt in range(3):  # the share is slow to show the file, look three times
                    with open(self.path, "w") as f:
                        json.dump(self.used, f)
                    time.sleep(0.25)
            time.sleep(1.0)


class Vibrations(Dataset):
    def __init__(self, n, sensors, tally):
        self.n, self.sensors, self.tally = n, sensors, tally

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        sensor = int(rng.integers(self.sensors))
        wave = rng.normal(size=256).astype("float32") + np.sin(np.arange(256, dtype="float32") * (1 + sensor % 5) / 9)
        self.tally.count(sensor)
        return torch.from_numpy(wave[None]), sensor % 5


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    tally = Tally(40)
    loader = DataLoader(Vibrations(1600, 40, tally), batch_size=32, shuffle=True, num_workers=2)
    net = torch.nn.Sequential(
        torch.nn.Conv1d(1, 24, 9, stride=2), torch.nn.ReLU(),
        torch.nn.Conv1d(24, 48, 9, stride=2), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool1d(1), torch.nn.Flatten(), torch.nn.Linear(48, 5),
    )
    sgd = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(60):
        hits = 0
        for wave, kind in loader:
            scores = net(wave)
            loss = torch.nn.functional.cross_entropy(scores, kind)
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            hits += (scores.argmax(1) == kind).sum().item()
        print(f"epoch {epoch}: accuracy {hits / 1600:.3f}", flush=True)


if __name__ == "__main__":
    main()
