"""The models of the healing benches on a GPU: a transformer, a convolutional net and an LSTM, with batch and loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812


class Block(nn.Module):
    def __init__(self, wide: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(wide), nn.LayerNorm(wide)
        self.qkv, self.out = nn.Linear(wide, 3 * wide), nn.Linear(wide, wide)
        self.up, self.down = nn.Linear(wide, 4 * wide), nn.Linear(4 * wide, wide)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Any) -> Any:
        size, length, wide = x.shape
        q, k, v = self.qkv(self.before(x)).view(size, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(size, length, wide)
        x = x + self.drop(self.out(seen))
        return x + self.drop(self.down(F.gelu(self.up(self.after(x)))))


class Transformer(nn.Module):
    """About 110 million weights."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(32000, 768), nn.Embedding(1024, 768)
        self.blocks = nn.ModuleList(Block(768, 12) for _ in range(12))
        self.norm, self.head = nn.LayerNorm(768), nn.Linear(768, 32000, bias=False)

    def forward(self, tokens: Any) -> Any:
        x = self.embed(tokens) + self.place(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Conv(nn.Module):
    """A residual net with BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 128, 3, padding=1)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Conv2d(128, 128, 3, padding=1), nn.BatchNorm2d(128), nn.ReLU()) for _ in range(16)
        )
        self.head = nn.Linear(128, 100)

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x.mean((2, 3)))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.rnn, self.head = (
            nn.Embedding(8000, 512),
            nn.LSTM(512, 1024, 3, batch_first=True),
            nn.Linear(1024, 8000),
        )

    def forward(self, tokens: Any) -> Any:
        return self.head(self.rnn(self.embed(tokens))[0])


def language_loss(model: nn.Module, batch: Any, share: float = 1.0) -> Any:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        given = model(batch[0])
        return F.cross_entropy(given.flatten(0, 1), batch[1].flatten()) * share


def picture_loss(model: nn.Module, batch: Any, share: float = 1.0) -> Any:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return F.cross_entropy(model(batch[0]), batch[1]) * share


def tokens(size: int, length: int, words: int) -> Callable[[], Any]:
    def make() -> Any:
        found = torch.randint(words, (size, length + 1), device="cuda")
        return found[:, :-1].contiguous(), found[:, 1:].contiguous()

    return make


def pictures() -> Any:
    return torch.randn(256, 3, 64, 64, device="cuda"), torch.randint(100, (256,), device="cuda")


KINDS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any], Callable[..., Any]]] = {
    "transformer": (Transformer, tokens(64, 512, 32000), language_loss),
    "conv": (Conv, pictures, picture_loss),
    "lstm": (Recurrent, tokens(256, 256, 8000), language_loss),
}
