"""A Lightning module: training and validation steps, a scheduler, a checkpoint, early stopping, gradient clipping."""

import logging
import tempfile
import warnings

import lightning as L
import torch
from torch import nn

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
L.seed_everything(0, verbose=False)


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, 10))

    def training_step(self, batch, _):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.log("train", loss)
        return loss

    def validation_step(self, batch, _):
        x, y = batch
        self.log("val", nn.functional.cross_entropy(self.net(x), y))

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=1e-3)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)]


def loader(n, seed, shuffle):
    g = torch.Generator().manual_seed(seed)
    data = torch.utils.data.TensorDataset(
        torch.randn(n, 1, 28, 28, generator=g), torch.randint(0, 10, (n,), generator=g)
    )
    return torch.utils.data.DataLoader(data, batch_size=512, shuffle=shuffle)


model = Classifier()
trainer = L.Trainer(
    max_epochs=3, accelerator="auto", logger=False, enable_progress_bar=False, enable_model_summary=False,
    gradient_clip_val=1.0, default_root_dir=tempfile.mkdtemp(),
    callbacks=[L.pytorch.callbacks.EarlyStopping("val", patience=2)],
)  # fmt: skip
trainer.fit(model, loader(4096, 0, True), loader(512, 1, False))
print(*(f"{name} {float(value):.6f}" for name, value in sorted(trainer.callback_metrics.items())))
print("digest", f"{sum(p.double().sum().item() for p in model.parameters()):.9f}")
