# cause: resource.shared-memory
# shm: 24m, 512m
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __len__(self):
        return 320

    def __getitem__(self, index):
        return torch.zeros(3, 256, 256)


if __name__ == "__main__":
    model = nn.Linear(256, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x in DataLoader(Images(), batch_size=16, num_workers=2):
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
