import math
import random
from collections import deque

import torch
import torch.nn as nn

random.seed(1)
torch.manual_seed(1)


class Cart:
    def reset(self):
        self.s = [random.uniform(-0.05, 0.05) for _ in range(4)]
        self.t = 0
        return list(self.s)

    def step(self, action):
        x, v, a, w = self.s
        force = 10.0 if action else -10.0
        sin, cos = math.sin(a), math.cos(a)
        temp = (force + 0.05 * w * w * sin) / 1.1
        acc_a = (9.8 * sin - cos * temp) / (0.5 * (4 / 3 - 0.1 * cos * cos / 1.1))
        acc_x = temp - 0.05 * acc_a * cos / 1.1
        self.s = [x + 0.02 * v, v + 0.02 * acc_x, a + 0.02 * w, w + 0.02 * acc_a]
        self.t += 1
        done = abs(self.s[0]) > 2.4 or abs(self.s[2]) > 0.21 or self.t >= 200
        return list(self.s), 1.0, done


q = nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2))
target = nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2))
target.load_state_dict(q.state_dict())
opt = torch.optim.Adam(q.parameters(), lr=1e-3)
buffer = deque(maxlen=5000)
env, epsilon, recent = Cart(), 1.0, deque(maxlen=20)

for episode in range(150):
    s, done, reward_sum = env.reset(), False, 0.0
    while not done:
        if random.random() < epsilon:
            a = random.randrange(2)
        else:
            with torch.no_grad():
                a = q(torch.tensor(s)).argmax().item()
        s2, r, done = env.step(a)
        buffer.append((s, a, r, s2, float(done)))
        s, reward_sum = s2, reward_sum + r
        if len(buffer) >= 128:
            bs, ba, br, bs2, bd = map(torch.tensor, zip(*random.sample(buffer, 64)))
            with torch.no_grad():
                goal = br + 0.98 * (1 - bd) * target(bs2).max(1).values
            loss = nn.functional.smooth_l1_loss(q(bs).gather(1, ba[:, None]).squeeze(1), goal)
            opt.zero_grad()
            loss.backward()
            opt.step()
    epsilon = max(0.05, epsilon * 0.97)
    recent.append(reward_sum)
    if episode % 10 == 0:
        target.load_state_dict(q.state_dict())
        print(f"episode {episode:3d} return {sum(recent) / len(recent):.1f} buffer {len(buffer)}", flush=True)
