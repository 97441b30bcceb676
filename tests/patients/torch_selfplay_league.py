import random

import torch
import torch.nn as nn
from torch.distributions import Categorical

torch.manual_seed(3)
random.seed(3)


class Policy(nn.Module):
    def __init__(self, obs=84, actions=9, hidden=768):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.pi = nn.Linear(hidden, actions)

    def forward(self, obs):
        return Categorical(logits=self.pi(self.body(obs)))


def play(learner, opponent, games=96):
    """One batched round; whoever picks the higher move wins."""
    obs = torch.randn(games, 84)
    mine = learner(obs)
    a = mine.sample()
    with torch.no_grad():
        b = opponent(-obs).sample()
    reward = (a > b).float() - (a < b).float()
    return mine.log_prob(a), reward


learner = Policy()
opt = torch.optim.Adam(learner.parameters(), lr=3e-4)
league = [Policy().eval()]
baseline = 0.0

for update in range(1, 20001):
    opponent = random.choice(league[-40:])
    logp, reward = play(learner, opponent)
    baseline = 0.95 * baseline + 0.05 * reward.mean().item()
    loss = -(logp * (reward - baseline)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()

    if update % 8 == 0:
        rival = Policy().eval()
        rival.load_state_dict(learner.state_dict())
        league.append(rival)
    if update % 100 == 0:
        print(f"update {update} loss {loss.item():+.4f} win rate {baseline:+.3f}", flush=True)
