import torch
import torch.nn as nn

torch.manual_seed(2)

# five thresholds of a pain score from wearable readings
N, FEATURES, LEVELS = 4000, 12, 5
x_all = torch.randn(N, FEATURES)
latent = x_all[:, :3].sum(1)
t_all = (latent[:, None] > torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0])).float()

model = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, LEVELS))
optimizer = torch.optim.Adam(model.parameters(), lr=0.0008)

for epoch in range(1, 121):
    order = torch.randperm(N)
    for i in range(0, N, 80):
        x, target = x_all[order[i:i + 80]], t_all[order[i:i + 80]]
        p = torch.sigmoid(model(x))
        loss = -(target * torch.log(p) + (1 - target) * torch.log(1 - p)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if epoch % 4 == 0:
        with torch.no_grad():
            level = (torch.sigmoid(model(x_all)) > 0.5).sum(1)
            exact = (level == t_all.sum(1)).float().mean()
        print(f"epoch {epoch:3d}  loss {loss.item():.4f}  exact {exact:.3f}", flush=True)
