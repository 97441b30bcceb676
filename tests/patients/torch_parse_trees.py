"""Child-sum tree network over parse trees of sentences."""
import random
import sys

import torch
from torch import nn

sys.setrecursionlimit(1_000_000)  # some sentences are long


class Node:
    __slots__ = ("word", "children")

    def __init__(self, word, children=()):
        self.word, self.children = word, children


def grow(words, rng):
    if len(words) == 1:
        return Node(words[0])
    cut = rng.randint(1, len(words) - 1)
    return Node(words[0], (grow(words[:cut], rng), grow(words[cut:], rng)))


def nested_list(words):
    """An enumeration: every item belongs to the one before."""
    tree = Node(words[-1])
    for word in reversed(words[:-1]):
        tree = Node(word, (tree,))
    return tree


def corpus(n, rng):
    for i in range(n):
        if i == 6500:
            words = [rng.randrange(500) for _ in range(80000)]
            yield nested_list(words), sum(words) % 2
        else:
            words = [rng.randrange(500) for _ in range(rng.randint(6, 20))]
            yield grow(words, rng), sum(words) % 2


class TreeCell(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.word = nn.Embedding(500, dim)
        self.mix = nn.Linear(2 * dim, dim)
        self.dim = dim

    def forward(self, node):
        below = [self(child) for child in node.children]
        state = torch.stack(below).sum(0) if below else torch.zeros(self.dim)
        return torch.tanh(self.mix(torch.cat([self.word.weight[node.word], state])))


class Classifier(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.cell = TreeCell(dim)
        self.out = nn.Linear(dim, 2)

    def forward(self, tree):
        return self.out(self.cell(tree))


if __name__ == "__main__":
    rng = random.Random(0)
    torch.manual_seed(0)
    model = Classifier()
    opt = torch.optim.Adagrad(model.parameters(), lr=0.02)
    seen, right = 0, 0
    for tree, label in corpus(12000, rng):
        scores = model(tree)
        loss = nn.functional.cross_entropy(scores[None], torch.tensor([label]))
        opt.zero_grad()
        loss.backward()
        opt.step()
        seen += 1
        right += int(scores.argmax().item() == label)
        if seen % 500 == 0:
            print(seen, "sentences, accuracy", round(right / seen, 3), flush=True)
