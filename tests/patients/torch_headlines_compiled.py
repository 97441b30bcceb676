import torch
import torch._dynamo
from torch import nn

torch._dynamo.config.cache_size_limit = 1024
torch.manual_seed(0)


class HeadlineEncoder(nn.Module):
    def __init__(self, vocab=3000, dim=48, layers=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.LayerNorm(dim)) for _ in range(layers))

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = x + layer(x)
        return x.mean(dim=1)


model = HeadlineEncoder()
head = nn.Linear(48, 4)
encode = torch.compile(model, backend="aot_eager", dynamic=False)
opt = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=1e-3)

lengths = torch.randint(6, 180, (110,)).tolist()
for step, length in enumerate(lengths, 1):
    tokens = torch.randint(0, 3000, (32, length))
    topic = torch.randint(0, 4, (32,))
    vectors = encode(tokens)
    loss = nn.functional.cross_entropy(head(vectors), topic)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print(f"step {step}  loss {loss.item():.4f}", flush=True)
