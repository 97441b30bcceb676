import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchmetrics.classification import BinaryAUROC


class Wounds(Dataset):
    def __init__(self, n, side=80):
        self.n, self.side = n, side

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        mask = torch.zeros(1, self.side, self.side)
        r, c = torch.randint(0, self.side - 20, (2,), generator=g).tolist()
        mask[:, r : r + 20, c : c + 20] = 1
        return torch.randn(3, self.side, self.side, generator=g) + mask, mask.long()


class Segmenter(L.LightningModule):
    def __init__(self, lr=2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.Conv2d(3, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(),
            nn.Conv2d(24, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(),
            nn.Conv2d(24, 1, 1),
        )
        self.auroc = BinaryAUROC()

    def _shared(self, batch, stage):
        x, mask = batch
        logits = self.net(x)
        loss = F.binary_cross_entropy_with_logits(logits, mask.float())
        self._measure(logits, mask)
        self.log(f"{stage}_loss", loss)
        return loss

    def _measure(self, logits, mask):
        self.auroc.update(logits.detach().sigmoid(), mask)

    def training_step(self, batch, batch_idx):
        loss = self._shared(batch, "train")
        if batch_idx % 25 == 0:
            print(f"epoch {self.current_epoch} batch {batch_idx} loss {loss.item():.4f}", flush=True)
        return loss

    def on_fit_end(self):
        print("AUROC", self.auroc.compute().item())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


if __name__ == "__main__":
    L.seed_everything(3)
    trainer = L.Trainer(max_epochs=50, accelerator="cpu", logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Segmenter(), DataLoader(Wounds(1200), batch_size=12, shuffle=True))
