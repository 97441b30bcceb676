# %% [markdown]
# Ingredient tagger, notebook exported with nbconvert. Timings of the operators are printed at the end.

# %%
import torch
import torch.nn as nn
from torch.profiler import ProfilerActivity, profile, record_function

torch.manual_seed(3)
WIDTH, TAGS, DEPTH = 800, 12, 5

# %%
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.fc = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + torch.relu(self.fc(self.norm(x)))


model = nn.Sequential(nn.Linear(120, WIDTH), *[Block() for _ in range(DEPTH)], nn.Linear(WIDTH, TAGS))
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
crit = nn.CrossEntropyLoss()
centres = torch.randn(TAGS, 120)

# %%
def fake_recipes(n):
    tags = torch.randint(0, TAGS, (n,))
    return centres[tags] + torch.randn(n, 120), tags


def train(n_steps):
    running = 0.0
    for i in range(n_steps):
        recipes, tags = fake_recipes(96)
        with record_function("forward"):
            out = model(recipes)
            loss = crit(out, tags)
        with record_function("backward"):
            opt.zero_grad()
            loss.backward()
        with record_function("update"):
            opt.step()
        running = 0.95 * running + 0.05 * loss.item()
        if i % 50 == 0:
            print("step", i, "loss", round(running, 4), flush=True)


# %%
with profile(activities=[ProfilerActivity.CPU]) as prof:
    train(20000)

# %%
print(prof.key_averages().table(sort_by="cpu_time_total", row_limit=15))
