"""A translation transformer: padded batches made by a collate function, masks, a Noam rate, data workers."""

import torch
import torch.nn as nn

torch.manual_seed(0)
V, PAD = 500, 0


class Pairs(torch.utils.data.Dataset):
    def __len__(self):
        return 320

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        n = int(torch.randint(8, 40, (1,), generator=g))
        source = torch.randint(1, V, (n,), generator=g)
        return source, source.flip(0)


def collate(pairs):
    pad = torch.nn.utils.rnn.pad_sequence
    sources, targets = zip(*pairs)
    return pad(sources, batch_first=True, padding_value=PAD), pad(targets, batch_first=True, padding_value=PAD)


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.place = nn.Embedding(V, 128, padding_idx=PAD), nn.Embedding(64, 128)
        self.transformer = nn.Transformer(128, 4, 2, 2, 256, 0.1, batch_first=True)
        self.out = nn.Linear(128, V)

    def embedded(self, x):
        return self.embed(x) + self.place(torch.arange(x.shape[1]))

    def forward(self, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        hidden = self.transformer(
            self.embedded(source), self.embedded(target), tgt_mask=mask, src_key_padding_mask=source == PAD,
            tgt_key_padding_mask=target == PAD, memory_key_padding_mask=source == PAD,
        )  # fmt: skip
        return self.out(hidden)


if __name__ == "__main__":
    model = Translator()
    loader = torch.utils.data.DataLoader(Pairs(), batch_size=64, shuffle=True, collate_fn=collate, num_workers=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: 128**-0.5 * min((s + 1) ** -0.5, (s + 1) * 20**-1.5))
    criterion = nn.CrossEntropyLoss(ignore_index=PAD)
    for epoch in range(2):
        for source, target in loader:
            logits = model(source, target[:, :-1])
            loss = criterion(logits.reshape(-1, V), target[:, 1:].reshape(-1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            rate.step()
            print(f"{epoch} loss {loss.item():.6f}")
    print("digest", f"{sum(p.double().sum().item() for p in model.parameters()):.9f}")
