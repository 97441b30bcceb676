"""Image classifier, from scratch."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Photos(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.rand(3, 224, 224, generator=generator), index % 100


def block(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1), nn.BatchNorm2d(cout), nn.ReLU())


model = nn.Sequential(
    block(3, 96), block(96, 96), block(96, 96), block(96, 128), nn.MaxPool2d(2), block(128, 256), block(256, 256),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 100),
).cuda()
loader = DataLoader(Photos(), batch_size=3072, num_workers=8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step, (photos, labels) in enumerate(loader):
    logits = model(photos.cuda())
    loss = nn.functional.cross_entropy(logits, labels.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), flush=True)
    if step == 20:
        break
