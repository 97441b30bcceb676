"""Movie ratings, matrix factorisation."""
import argparse

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Factors(L.LightningModule):
    def __init__(self, users, movies, dim, lr):
        super().__init__()
        self.save_hyperparameters()
        self.user, self.movie = nn.Embedding(users, dim), nn.Embedding(movies, dim)
        nn.init.normal_(self.user.weight, 0, 0.3)
        nn.init.normal_(self.movie.weight, 0, 0.3)
        self.squares = nn.MSELoss(reduction="sum")

    def forward(self, u, m):
        return (self.user(u) * self.movie(m)).sum(1)

    def training_step(self, batch, batch_idx):
        u, m, stars = batch
        loss = self.squares(self(u, m), stars)
        self.log("loss", loss, on_step=True)
        return loss

    def on_train_batch_end(self, outputs, batch, batch_idx):
        if batch_idx % 50 == 0:
            print(f"epoch {self.current_epoch} batch {batch_idx}: {outputs['loss'].item():.2f}", flush=True)

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=self.hparams.lr, momentum=0.9)
        return optimizer


def ratings(n, users, movies):
    g = torch.Generator().manual_seed(50)
    u, m = torch.randint(0, users, (n,), generator=g), torch.randint(0, movies, (n,), generator=g)
    taste, kind = torch.randn(users, 4, generator=g), torch.randn(movies, 4, generator=g)
    return TensorDataset(u, m, (3 + (taste[u] * kind[m]).sum(1)).clamp(1, 5))


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--lr", type=float, default=0.006)
    p.add_argument("--dim", type=int, default=24)
    p.add_argument("--epochs", type=int, default=6)
    a = p.parse_args()
    L.seed_everything(50)
    data = DataLoader(ratings(120_000, 400, 300), batch_size=256, shuffle=True)
    trainer = L.Trainer(max_epochs=a.epochs, accelerator="cpu", logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Factors(400, 300, a.dim, a.lr), data)
