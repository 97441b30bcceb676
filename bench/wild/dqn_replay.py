"""Deep Q-learning on a toy world: a replay buffer, a target network, no loader."""

import random
from collections import deque, namedtuple

import torch
import torch.nn as nn

torch.manual_seed(0)
random.seed(0)
Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))
memory = deque([], maxlen=2000)


class World:
    def reset(self):
        self.x = torch.zeros(8)
        return self.x

    def step(self, action):
        self.x = self.x + 0.1 * torch.randn(8)
        self.x[action] += 0.2
        return self.x.clone(), float(-self.x.abs().mean()), self.x.abs().max() > 2


def net():
    return nn.Sequential(nn.Linear(8, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4))


policy, target = net(), net()
target.load_state_dict(policy.state_dict())
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3, amsgrad=True)
world = World()
state = world.reset()
for t in range(400):
    with torch.no_grad():
        action = random.randrange(4) if random.random() < 0.3 else policy(state).argmax().item()
    next_state, reward, done = world.step(action)
    memory.append(Transition(state, action, next_state, reward))
    state = world.reset() if done else next_state
    if len(memory) < 128:
        continue
    batch = Transition(*zip(*random.sample(memory, 128)))
    states, next_states = torch.stack(batch.state), torch.stack(batch.next_state)
    actions, rewards = torch.tensor(batch.action).unsqueeze(1), torch.tensor(batch.reward)
    values = policy(states).gather(1, actions).squeeze(1)
    with torch.no_grad():
        expected = rewards + 0.99 * target(next_states).max(1).values
    loss = nn.functional.smooth_l1_loss(values, expected)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(policy.parameters(), 100)
    optimizer.step()
    for kept, new in zip(target.parameters(), policy.parameters()):
        kept.data.mul_(0.995).add_(new.data, alpha=0.005)
    if t % 50 == 0:
        print(f"{t} loss {loss.item():.6f}")
print("digest", f"{sum(p.double().sum().item() for p in policy.parameters()):.9f}")
