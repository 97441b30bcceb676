import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)


class ToneBlend(L.LightningModule):
    """Separates two mixed tones; small batches are summed up to larger ones."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(1, 32, 9, padding=4), nn.GELU(), nn.Conv1d(32, 32, 9, padding=4), nn.GELU(), nn.Conv1d(32, 2, 1)
        )

    def training_step(self, batch, batch_idx):
        mixed, tones = batch
        loss = nn.functional.l1_loss(self.net(mixed), tones)
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def on_train_epoch_end(self):
        print(f"epoch {self.current_epoch}: loss {self.trainer.callback_metrics['loss'].item():.4f}")

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=2e-3)


torch.manual_seed(110)
t = torch.linspace(0, 1, 256)
low = torch.sin(2 * torch.pi * t * (4 + 4 * torch.rand(2000, 1)))
high = torch.sin(2 * torch.pi * t * (20 + 10 * torch.rand(2000, 1)))
data = TensorDataset((low + high)[:, None], torch.stack([low, high], dim=1))
trainer = L.Trainer(max_epochs=10, accelerator="cpu", precision="bf16-mixed", accumulate_grad_batches=8, logger=False,
                    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer.fit(ToneBlend(), DataLoader(data, batch_size=8, shuffle=True))
