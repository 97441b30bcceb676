"""REINFORCE with a baseline: log-probabilities gathered over an episode, returns computed backwards."""

import torch
import torch.nn as nn
from torch.distributions import Categorical

torch.manual_seed(543)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine, self.action, self.value = nn.Linear(6, 128), nn.Linear(128, 3), nn.Linear(128, 1)

    def forward(self, x):
        h = torch.relu(self.affine(x))
        return torch.softmax(self.action(h), -1), self.value(h)


policy = Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
for episode in range(20):
    state, saved, rewards = torch.zeros(6), [], []
    for _ in range(60):
        probs, value = policy(state)
        m = Categorical(probs)
        action = m.sample()
        saved.append((m.log_prob(action), value))
        state = (0.9 * state + 0.1 * torch.randn(6)).detach()
        state[action] += 0.3
        rewards.append(-float(state.pow(2).sum()))
    R, returns = 0.0, []
    for r in reversed(rewards):
        R = r + 0.99 * R
        returns.insert(0, R)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + 1e-8)
    losses = [-log_prob * (R - value.item()) for (log_prob, value), R in zip(saved, returns)]
    values = [nn.functional.smooth_l1_loss(value, R.view(1)) for (_, value), R in zip(saved, returns)]
    loss = torch.stack(losses).sum() + torch.stack(values).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if episode % 5 == 4:
        print(f"{episode} loss {loss.item():.6f} reward {sum(rewards):.4f}")
print("digest", f"{sum(p.double().sum().item() for p in policy.parameters()):.9f}")
