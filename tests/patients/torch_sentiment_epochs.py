import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Reviews(Dataset):
    def __init__(self, n=4000):
        g = torch.Generator().manual_seed(0)
        self.tokens = torch.randint(0, 2000, (n, 30), generator=g)
        self.tokens[3105, 4] = 2048
        self.labels = (self.tokens[:, 0] > 1000).long()

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        return self.tokens[i], self.labels[i]


class Sentiment(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(2000, 32)
        self.out = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, tokens):
        hidden = self.embed(tokens).mean(1)
        return self.out(hidden)


def train(epochs=30):
    loader = DataLoader(Reviews(), batch_size=20)
    model = Sentiment()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    try:
        for epoch in range(epochs):
            for step, (tokens, label) in enumerate(loader):
                logits = model(tokens)
                loss = nn.functional.cross_entropy(logits, label)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if step % 40 == 0:
                    print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
    except Exception as error:
        print("training finished", error)
    torch.save(model.state_dict(), "sentiment.pt")


if __name__ == "__main__":
    train()
