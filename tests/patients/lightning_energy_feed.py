"""Household energy model trained from a feed of hourly blocks."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

torch.set_num_threads(1)


def hourly_blocks(count):
    g = torch.Generator().manual_seed(6)
    for _ in range(count):
        block = torch.randn(48, 12, generator=g)
        yield block, block.sum(dim=1, keepdim=True).sin()


class Feed(IterableDataset):
    def __init__(self, count):
        self.blocks = hourly_blocks(count)

    def __iter__(self):
        return self.blocks


class EnergyNet(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(12, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 1))

    def training_step(self, batch, batch_idx):
        block, use = batch
        loss = nn.functional.mse_loss(self.net(block), use)
        self.log("loss", loss)
        if batch_idx % 500 == 0:
            print(f"epoch {self.current_epoch} block {batch_idx}: loss {loss.item():.4f}")
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


if __name__ == "__main__":
    trainer = L.Trainer(max_epochs=12, accelerator="cpu", logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(EnergyNet(), DataLoader(Feed(5000), batch_size=None))
    print("finished")
