from collections import defaultdict

import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(21)

# spectrogram-like inputs: 1 x 40 mel bands x 64 frames, 8 keywords
clips = torch.randn(1200, 1, 40, 64)
keywords = torch.randint(0, 8, (1200,))
clips += keywords[:, None, None, None] * 0.15
train_dl = DataLoader(TensorDataset(clips, keywords), batch_size=24, shuffle=True)

stem = nn.Sequential(nn.Conv2d(1, 24, 5, padding=2), nn.ReLU(), nn.Conv2d(24, 24, 3, stride=2, padding=1), nn.ReLU())
model = nn.Sequential(
    stem,
    nn.Conv2d(24, 20, 3, padding=1), nn.ReLU(),
    nn.AdaptiveAvgPool2d((5, 8)), nn.Flatten(),
    nn.Linear(800, 64), nn.ReLU(), nn.Linear(64, 8),
)

captured = defaultdict(list)


def watch(name):
    def hook(module, args, output):
        captured[name].append(output.detach())
    return hook


for name, layer in model.named_children():
    if isinstance(layer, (nn.Conv2d, nn.Linear)):
        layer.register_forward_hook(watch(name))

optimizer = optim.Adam(model.parameters(), lr=1e-3)
loss_fn = nn.CrossEntropyLoss()

for epoch in range(60):
    correct = total = 0
    for clip, keyword in train_dl:
        optimizer.zero_grad()
        scores = model(clip)
        loss = loss_fn(scores, keyword)
        loss.backward()
        optimizer.step()
        correct += (scores.argmax(1) == keyword).sum().item()
        total += len(keyword)
    spread = {k: round(v[-1].std().item(), 3) for k, v in captured.items()}
    print(f"epoch {epoch + 1} loss {loss.item():.3f} acc {correct / total:.2%} std {spread}", flush=True)
