"""Soil types from spectra, with a quick validation on part of the data and the best models kept."""

import tempfile

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)


class SoilNet(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(120, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 256), nn.ReLU(),
                                 nn.Linear(256, 7))

    def training_step(self, batch, batch_idx):
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        logits = self.net(batch[0])
        self.log("val_loss", nn.functional.cross_entropy(logits, batch[1]))
        self.log("val_accuracy", (logits.argmax(1) == batch[1]).float().mean())

    def on_validation_epoch_end(self):
        print(f"epoch {self.current_epoch}: val_accuracy {self.trainer.callback_metrics['val_accuracy'].item():.3f}")

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def spectra(count):
    soil = torch.randint(0, 7, (count,))
    centre = torch.randn(7, 120, generator=torch.Generator().manual_seed(1))
    return TensorDataset(centre[soil] + 1.5 * torch.randn(count, 120), soil)


if __name__ == "__main__":
    L.seed_everything(109)
    train, check = DataLoader(spectra(12000), batch_size=32, shuffle=True), DataLoader(spectra(6000), batch_size=32)
    best = ModelCheckpoint(dirpath=tempfile.mkdtemp(), monitor="val_loss", save_top_k=2)
    trainer = L.Trainer(max_epochs=12, accelerator="cpu", logger=False, limit_val_batches=20, callbacks=[best],
                        enable_progress_bar=False)
    trainer.fit(SoilNet(), train, check)
    print("best model", best.best_model_score)
