"""A loop with Accelerate: prepare, accumulate, a scheduler, gathered metrics."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed

set_seed(0)
accelerator = Accelerator(gradient_accumulation_steps=2)
data = torch.utils.data.TensorDataset(torch.randn(1024, 128), torch.randn(1024, 1))
loader = torch.utils.data.DataLoader(data, batch_size=128, shuffle=True)
model = torch.nn.Sequential(torch.nn.Linear(128, 512), torch.nn.Tanh(), torch.nn.Linear(512, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 8)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
for epoch in range(3):
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = torch.nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    print(f"epoch {epoch} loss {accelerator.gather(loss.detach().reshape(1)).mean().item():.6f}")
print("digest", f"{sum(p.double().sum().item() for p in model.parameters()):.9f}")
