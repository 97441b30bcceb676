"""Half-supervised learning from two loaders at once, weights averaged at the end, BatchNorm brought up to date."""

import torch
import torch.nn as nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(40, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 4))
labelled = torch.utils.data.TensorDataset(torch.randn(300, 40), torch.randint(0, 4, (300,)))
unlabelled = torch.utils.data.TensorDataset(torch.randn(1200, 40))
few = torch.utils.data.DataLoader(labelled, batch_size=30, shuffle=True)
many = torch.utils.data.DataLoader(unlabelled, batch_size=120, shuffle=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
averaged, swa_rate = AveragedModel(model), SWALR(optimizer, swa_lr=0.01, anneal_epochs=2)
for epoch in range(4):
    for (x, y), (u,) in zip(few, many):
        with torch.no_grad():
            guess = model(u).softmax(1)
            sure, target = guess.max(1)
        logits, noisy = model(x), model(u + 0.1 * torch.randn_like(u))
        loss = nn.functional.cross_entropy(logits, y)
        loss = loss + (nn.functional.cross_entropy(noisy, target, reduction="none") * (sure > 0.4)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if epoch >= 2:
        averaged.update_parameters(model)
        swa_rate.step()
    print(f"epoch {epoch} loss {loss.item():.6f}")
update_bn(many, averaged)
print("digest", f"{sum(p.double().sum().item() for p in averaged.parameters()):.9f}")
