import lightning as L
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Clips(Dataset):
    """Mel-like frames of short voice clips with one tag each."""

    def __init__(self, count):
        g = torch.Generator().manual_seed(21)
        self.tags = torch.randint(0, 8, (count,), generator=g)
        self.centres = torch.randn(8, 40, generator=g)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        frames = self.centres[self.tags[i]] + 0.7 * torch.randn(80, 40)
        return frames, self.tags[i]


class Tagger(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.inp = torch.nn.Linear(40, 96)
        self.mid = torch.nn.Linear(96, 96)
        self.out = torch.nn.Linear(96, 8)
        self.smoothness = []

    def embed(self, frames):
        return torch.tanh(self.mid(torch.tanh(self.inp(frames))))

    def training_step(self, batch, _):
        frames, tags = batch
        loss = F.cross_entropy(self.out(self.embed(frames).mean(1)), tags)
        if self.global_step % 8 == 0:
            jitter = self.embed(frames + 0.05 * torch.randn_like(frames))
            self.smoothness.append((jitter[:, 1:] - jitter[:, :-1]).pow(2).mean())
        if self.global_step % 80 == 0:
            print(f"step {self.global_step} loss {loss.item():.3f} smoothness {self.smoothness[-1].item():.4f}")
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-3)


L.seed_everything(1)
trainer = L.Trainer(max_steps=4000, max_epochs=-1, accelerator="cpu", logger=False, enable_checkpointing=False,
                    enable_progress_bar=False, enable_model_summary=False)
trainer.fit(Tagger(), DataLoader(Clips(1600), batch_size=32, shuffle=True))
