import random
from typing import NamedTuple

import torch
import torch.nn as nn
import torch.nn.functional as F


class Transition(NamedTuple):
    frame: torch.Tensor
    action: int
    reward: float
    following: torch.Tensor


class Catch:
    """A ball falls through an 84 x 84 field, a paddle moves below."""

    def reset(self):
        self.ball, self.row, self.paddle = random.randrange(84), 0, 42
        return self.draw()

    def draw(self):
        frame = torch.zeros(2, 84, 84)
        frame[0, min(self.row, 83), self.ball] = 1.0
        frame[1, 83, max(0, self.paddle - 4):self.paddle + 5] = 1.0
        return frame

    def step(self, action):
        self.paddle = min(83, max(0, self.paddle + (action - 1) * 3))
        self.row += 4
        done = self.row >= 83
        reward = float(abs(self.paddle - self.ball) <= 4) if done else 0.0
        return self.draw(), reward, done


class Agent:
    def __init__(self):
        def net():
            return nn.Sequential(nn.Conv2d(2, 8, 8, stride=4), nn.ReLU(), nn.Conv2d(8, 16, 4, stride=2), nn.ReLU(),
                                 nn.Flatten(), nn.Linear(16 * 81, 64), nn.ReLU(), nn.Linear(64, 3))
        self.online, self.target = net(), net()
        self.target.load_state_dict(self.online.state_dict())
        self.opt = torch.optim.Adam(self.online.parameters(), lr=5e-4)
        self.memory = []

    def remember(self, *values):
        self.memory.append(Transition(*values))

    def learn(self, batch_size=16, gamma=0.95):
        batch = Transition(*zip(*random.sample(self.memory, batch_size)))
        q = self.online(torch.stack(batch.frame)).gather(1, torch.tensor(batch.action)[:, None]).squeeze(1)
        with torch.no_grad():
            best = self.target(torch.stack(batch.following)).max(1).values
        loss = F.smooth_l1_loss(q, torch.tensor(batch.reward) + gamma * best)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()


torch.manual_seed(0)
env, agent = Catch(), Agent()
for episode in range(5000):
    frame, done, losses = env.reset(), False, []
    while not done:
        action = random.randrange(3) if random.random() < 0.2 else agent.online(frame[None]).argmax().item()
        following, reward, done = env.step(action)
        agent.remember(frame, action, reward, following)
        frame = following
        if len(agent.memory) > 64:
            losses.append(agent.learn())
    if episode % 20 == 0:
        print(f"episode {episode} loss {sum(losses) / max(1, len(losses)):.4f} memory {len(agent.memory)}", flush=True)
        agent.target.load_state_dict(agent.online.state_dict())
