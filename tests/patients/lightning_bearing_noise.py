"""Bearing fault detector on vibration windows."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)


class FaultDetector(L.LightningModule):
    def __init__(self, channels=48, faults=4):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv1d(1, channels, 5, stride=2, padding=2), nn.ReLU(),
            nn.Conv1d(channels, channels, 9, padding=4), nn.ReLU(),
            nn.Conv1d(channels, channels, 9, stride=4, padding=4), nn.ReLU(),
        )
        self.head = nn.Linear(channels, faults)
        self.step_outputs = []

    def training_step(self, batch, batch_idx):
        signal, fault = batch
        features = self.encoder(signal)
        logits = self.head(features.mean(dim=-1))
        loss = nn.functional.cross_entropy(logits, fault)
        self.step_outputs.append({"features": features.detach(), "fault": fault, "loss": loss.detach()})
        return loss

    def on_train_epoch_end(self):
        mean = torch.stack([out["loss"] for out in self.step_outputs]).mean()
        print(f"epoch {self.current_epoch}: mean loss {mean:.4f}")

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=2e-3)


def windows(count=2560, length=512):
    torch.manual_seed(5)
    fault = torch.randint(0, 4, (count,))
    t = torch.linspace(0, 1, length)
    signal = torch.sin(2 * torch.pi * (30 + 25 * fault[:, None]) * t) + 0.8 * torch.randn(count, length)
    return TensorDataset(signal[:, None], fault)


if __name__ == "__main__":
    loader = DataLoader(windows(), batch_size=64, shuffle=True)
    trainer = L.Trainer(
        max_epochs=60, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(FaultDetector(), loader)
