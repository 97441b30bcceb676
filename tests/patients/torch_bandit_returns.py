"""REINFORCE on a small corridor. Stops as soon as the walker has learned to reach the door."""
import collections

import torch
from torch import nn
from torch.distributions import Categorical

LENGTH, LIMIT = 14, 60


class Corridor:
    def reset(self):
        self.at, self.age = 2, 0
        return self._see()

    def _see(self):
        view = torch.zeros(LENGTH)
        view[self.at] = 1.0
        return view

    def step(self, move):
        self.age += 1
        self.at = max(0, self.at + (1 if move == 1 else -1))
        if self.at == LENGTH - 1:
            return self._see(), 50.0, True
        if self.at == 0:
            return self._see(), -20.0, True
        return self._see(), -0.2, self.age >= LIMIT


def play(policy, world):
    view, logps, rewards, over = world.reset(), [], [], False
    while not over:
        choice = Categorical(logits=policy(view))
        move = choice.sample()
        logps.append(choice.log_prob(move))
        view, reward, over = world.step(move.item())
        rewards.append(reward)
    total, returns = 0.0, []
    for r in reversed(rewards):
        total = r + 0.99 * total
        returns.insert(0, total)
    return torch.stack(logps), torch.tensor(returns), sum(rewards)


def main():
    torch.manual_seed(12)
    policy = nn.Sequential(nn.Linear(LENGTH, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = torch.optim.SGD(policy.parameters(), lr=3e-6)
    recent = collections.deque(maxlen=150)
    for episode in range(100_000):
        logps, returns, score = play(policy, Corridor())
        loss = -(logps * returns).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recent.append(score)
        average = sum(recent) / len(recent)
        if episode % 200 == 0:
            print(f"episode {episode} loss {loss.item():+.2f} average score {average:.1f}", flush=True)
        if len(recent) == recent.maxlen and average > 40:
            print(f"solved after {episode} episodes", flush=True)
            break


if __name__ == "__main__":
    main()
