"""A small language model in mixed precision."""

import torch
from torch import nn

torch.manual_seed(0)
vocabulary, width, length = 4096, 512, 256


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        layer = nn.TransformerEncoderLayer(width, 8, 2048, batch_first=True, dropout=0.1)
        self.body = nn.TransformerEncoder(layer, 6)
        self.out = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        return self.out(self.body(self.embed(tokens), mask=mask, is_causal=True))


model = Reader().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")
text = torch.randint(vocabulary, (4096, length + 1))
for epoch in range(6):
    for start in range(0, len(text), 32):
        batch = text[start : start + 32].cuda(non_blocking=True)
        with torch.autocast("cuda", dtype=torch.float16):
            logits = model(batch[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    print(f"epoch {epoch} loss {loss.item():.3f} scale {scaler.get_scale():.0f}", flush=True)
