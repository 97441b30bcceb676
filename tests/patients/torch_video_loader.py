import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Clips(Dataset):
    def __init__(self, count=2000, frames=16, side=48):
        self.count, self.frames, self.side = count, frames, side

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        length = self.frames if i < 700 else self.frames * 6
        clip = torch.full((3, length, self.side, self.side), (i % 10) / 10)
        return clip[:, :length], i % 10


def collate(samples):
    clips, labels = zip(*samples)
    longest = max(c.shape[1] for c in clips)
    batch = torch.zeros(len(clips), 3, longest, *clips[0].shape[2:])
    for row, clip in zip(batch, clips):
        row[:, :clip.shape[1]] = clip
    return batch, torch.tensor(labels)


def main():
    model = nn.Sequential(
        nn.Conv3d(3, 8, (3, 5, 5), stride=(2, 4, 4)), nn.ReLU(), nn.AdaptiveAvgPool3d(2), nn.Flatten(), nn.Linear(64, 10)
    )
    loader = DataLoader(Clips(), batch_size=8, num_workers=4, collate_fn=collate)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for epoch in range(3):
        for step, (clips, labels) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(clips), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f} {tuple(clips.shape)}", flush=True)


if __name__ == "__main__":
    main()
