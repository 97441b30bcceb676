# cause: hang.deadlock
import threading

import torch
from torch.utils.data import DataLoader, Dataset

guard = threading.Lock()


class Pages(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        with guard:
            return torch.zeros(8)


if __name__ == "__main__":
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Pages(), batch_size=8, num_workers=2)
    guard.acquire()
    batches = iter(loader)
    guard.release()
    for x in batches:
        model(x).sum().backward()
        optimizer.step()
