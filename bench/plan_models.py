"""The models that `bench/plan.py` measures: small ones of many kinds, whose memory is in their activations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn


@dataclass(frozen=True)
class Case:
    """A model, how a batch is made, its loss, and the settings it trains with."""

    name: str
    model: Callable[[float], nn.Module]
    batch: Callable[[int, float], Any]
    loss: Callable[..., Any]
    optimizer: str = "adamw"
    precision: str | None = None
    checkpointing: bool = False


class Residual(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.a, self.m = nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside)
        self.b, self.n = nn.Conv2d(outside, outside, 3, 1, 1, bias=False), nn.BatchNorm2d(outside)
        same = stride == 1 and inside == outside
        self.skip = nn.Identity() if same else nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, x: Any) -> Any:
        return F.relu(self.n(self.b(F.relu(self.m(self.a(x))))) + self.skip(x))


def resnet(scale: float) -> nn.Module:
    w = int(32 * scale)
    stages = [Residual(w, w, 1), Residual(w, w, 1), Residual(w, 2 * w, 2), Residual(2 * w, 2 * w, 1)]
    stages += [Residual(2 * w, 4 * w, 2), Residual(4 * w, 4 * w, 1)]
    body = nn.Sequential(*stages)
    return nn.Sequential(nn.Conv2d(3, w, 3, 1, 1), body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * w, 10))


def vgg(scale: float) -> nn.Module:
    w = int(32 * scale)
    layers: list[nn.Module] = []
    inside = 3
    for outside in (w, 2 * w, 4 * w):
        layers += [nn.Conv2d(inside, outside, 3, 1, 1), nn.ReLU(True), nn.Conv2d(outside, outside, 3, 1, 1)]
        layers += [nn.ReLU(True), nn.MaxPool2d(2)]
        inside = outside
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * w * 16, 256), nn.ReLU(True), nn.Linear(256, 10))


class Encoder(nn.Module):
    def __init__(self, width: int, depth: int, words: int, classes: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, activation="gelu") for _ in range(depth)
        )
        self.out = nn.Linear(width, classes)

    def forward(self, x: Any) -> Any:
        x = self.words(x)
        for block in self.blocks:
            x = block(x)
        return self.out(x.mean(1))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.one, self.two = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Any) -> Any:
        n, t, w = x.shape
        q, k, v = self.qkv(self.one(x)).view(n, t, 3, 4, w // 4).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(n, t, w))
        return x + self.mlp(self.two(x))


class Decoder(nn.Module):
    def __init__(self, width: int, depth: int, words: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, x: Any) -> Any:
        x = self.words(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Recurrent(nn.Module):
    def __init__(self, kind: Any, width: int) -> None:
        super().__init__()
        self.words, self.rnn = nn.Embedding(2000, width), kind(width, width, 2, batch_first=True)
        self.out = nn.Linear(width, 10)

    def forward(self, x: Any) -> Any:
        return self.out(self.rnn(self.words(x))[0][:, -1])


class UNet(nn.Module):
    def __init__(self, w: int) -> None:
        super().__init__()
        self.down = nn.ModuleList([self.pair(3, w), self.pair(w, 2 * w), self.pair(2 * w, 4 * w)])
        self.up = nn.ModuleList([self.pair(4 * w + 2 * w, 2 * w), self.pair(2 * w + w, w)])
        self.out = nn.Conv2d(w, 2, 1)

    @staticmethod
    def pair(inside: int, outside: int) -> nn.Module:
        half = [nn.Conv2d(inside, outside, 3, 1, 1), nn.BatchNorm2d(outside), nn.ReLU()]
        return nn.Sequential(*half, nn.Conv2d(outside, outside, 3, 1, 1), nn.BatchNorm2d(outside), nn.ReLU())

    def forward(self, x: Any) -> Any:
        a = self.down[0](x)
        b = self.down[1](F.max_pool2d(a, 2))
        c = self.down[2](F.max_pool2d(b, 2))
        b = self.up[0](torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        return self.out(self.up[1](torch.cat([F.interpolate(b, scale_factor=2), a], 1)))


class Graph(nn.Module):
    """Messages along edges, added up at their ends; a batch is many small graphs side by side."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.enter = nn.Linear(16, width)
        self.messages = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(3))
        self.out = nn.Linear(width, 10)

    def forward(self, nodes: Any, edges: Any) -> Any:
        n, per = nodes.shape[0], nodes.shape[1]
        base = torch.arange(n, device=nodes.device).view(-1, 1, 1) * per
        source, target = (edges + base).permute(1, 0, 2).reshape(2, -1)
        x = self.enter(nodes.reshape(n * per, -1))
        for layer in self.messages:
            sent = F.relu(layer(torch.cat([x[source], x[target]], 1)))
            x = x + torch.zeros_like(x).index_add(0, target, sent)
        return self.out(x.view(n, per, -1).mean(1))


def mlp(scale: float) -> nn.Module:
    w = int(512 * scale)
    hidden = [layer for _ in range(6) for layer in (nn.Linear(w, w), nn.GELU(), nn.Dropout(0.1))]
    return nn.Sequential(nn.Linear(128, w), nn.ReLU(), *hidden, nn.Linear(w, 10))


class ViT(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, 4)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))
        self.out = nn.Linear(width, 10)

    def forward(self, x: Any) -> Any:
        return self.out(self.blocks(self.patch(x).flatten(2).transpose(1, 2)).mean(1))


def audio(scale: float) -> nn.Module:
    w = int(32 * scale)
    layers: list[nn.Module] = []
    inside = 1
    for n in range(4):
        layers += [nn.Conv1d(inside, w << n // 2, 9, 2, 4), nn.BatchNorm1d(w << n // 2), nn.LeakyReLU(0.1)]
        inside = w << n // 2
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(inside, 10))


class VAE(nn.Module):
    def __init__(self, w: int) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Conv2d(3, w, 4, 2, 1), nn.SiLU(), nn.Conv2d(w, 2 * w, 4, 2, 1), nn.SiLU())
        self.mean, self.spread = nn.Conv2d(2 * w, 8, 1), nn.Conv2d(2 * w, 8, 1)
        self.decode = nn.Sequential(
            nn.Conv2d(8, 2 * w, 1), nn.SiLU(), nn.ConvTranspose2d(2 * w, w, 4, 2, 1), nn.SiLU(),
            nn.ConvTranspose2d(w, 3, 4, 2, 1),
        )  # fmt: skip

    def forward(self, x: Any) -> Any:
        h = self.encode(x)
        mean, spread = self.mean(h), self.spread(h)
        return self.decode(mean + torch.randn_like(mean) * spread.mul(0.5).exp()), mean, spread


def vae_loss(found: Any, x: Any) -> Any:
    back, mean, spread = found
    return F.mse_loss(back, x) + 1e-3 * (mean.pow(2) + spread.exp() - spread - 1).mean()


def images(n: int, scale: float, side: int = 32) -> Any:
    del scale
    return torch.randn(n, 3, side, side), torch.randint(0, 10, (n,))


def words(n: int, scale: float, long: int = 64) -> Any:
    return torch.randint(0, 1000, (n, int(long * scale))), torch.randint(0, 10, (n,))


def text(n: int, scale: float) -> Any:
    tokens = torch.randint(0, 1000, (n, int(64 * scale)))
    return tokens, tokens.clone()


def over_words(logits: Any, target: Any) -> Any:
    return F.cross_entropy(logits.flatten(0, 1).float(), target.flatten())


def graphs(n: int, scale: float) -> Any:
    del scale
    return (torch.randn(n, 20, 16), torch.randint(0, 20, (n, 2, 60)), torch.randint(0, 10, (n,)))


def pixels(n: int, scale: float) -> Any:
    x, _ = images(n, scale)
    return x, torch.randint(0, 2, (n, 32, 32))


def rows(n: int, scale: float) -> Any:
    del scale
    return torch.randn(n, 128), torch.randint(0, 10, (n,))


def waves(n: int, scale: float) -> Any:
    del scale
    return torch.randn(n, 1, 4096), torch.randint(0, 10, (n,))


CASES = [
    Case("resnet", resnet, images, F.cross_entropy, "sgd-momentum"),
    Case("vgg", vgg, images, F.cross_entropy, "sgd"),
    Case("encoder", lambda s: Encoder(int(128 * s), 3, 1000, 10), words, F.cross_entropy, "adamw"),
    Case("decoder", lambda s: Decoder(int(128 * s), 3, 2000), text, over_words, "adamw-fused"),
    Case("lstm", lambda s: Recurrent(nn.LSTM, int(128 * s)), words, F.cross_entropy, "adam"),
    Case("gru", lambda s: Recurrent(nn.GRU, int(128 * s)), words, F.cross_entropy, "sgd"),
    Case("unet", lambda s: UNet(int(16 * s)), pixels, F.cross_entropy, "adam"),
    Case("graph", lambda s: Graph(int(64 * s)), graphs, F.cross_entropy, "adam"),
    Case("mlp", mlp, rows, F.cross_entropy, "adamw-foreach"),
    Case("vit", lambda s: ViT(int(128 * s), 4), images, F.cross_entropy, "adamw"),
    Case("audio", audio, waves, F.cross_entropy, "sgd"),
    Case("vae", lambda s: VAE(int(32 * s)), lambda n, s: (images(n, s)[0],) * 2, vae_loss, "adam"),
    Case("resnet bf16", resnet, images, F.cross_entropy, "sgd-momentum", "bf16"),
    Case("decoder bf16", lambda s: Decoder(int(128 * s), 3, 2000), text, over_words, "adamw", "bf16"),
    Case("vit bf16 again", lambda s: ViT(int(128 * s), 4), images, F.cross_entropy, "adamw", "bf16", True),
    Case("decoder again", lambda s: Decoder(int(128 * s), 3, 2000), text, over_words, "adamw", None, True),
    Case("mlp bf16", mlp, rows, F.cross_entropy, "adam", "bf16"),
]
