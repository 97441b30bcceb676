"""Training loops of many kinds, each with its result: run as they are, and with each batch in chunks.

Printed as one line of JSON each: what the loop has come to, and how many iterations it saw.
"""

LOOPS = r"""
import json, sys
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import SGD, Adam, lr_scheduler
from torch.utils.data import DataLoader, Dataset, TensorDataset

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
SIZE, OF = 12, 60


def net(last=3):
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, last))


def rows(*columns, size=SIZE, of=OF, shuffle=True):
    return DataLoader(TensorDataset(*columns), batch_size=size, shuffle=shuffle)


def xs(of=OF):
    return torch.randn(of, 6)


def labels(of=OF):
    return torch.randint(0, 3, (of,))


def plain(model, loader, loss_of, optimizer=None, epochs=2, after=None):
    optimizer = optimizer or Adam(model.parameters(), lr=0.01)
    seen = 0
    for epoch in range(epochs):
        for batch in loader:
            loss = loss_of(model, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if after is not None:
                after()
            seen += 1
    return model, seen, optimizer


def mean_loss():
    return plain(net(), rows(xs(), labels()), lambda m, b: F.cross_entropy(m(b[0]), b[1]))


def mean_by_hand():
    return plain(net(1), rows(xs(), torch.rand(OF, 1)), lambda m, b: (m(b[0]) - b[1]).pow(2).mean())


def sum_loss():
    model = net()
    optimizer = SGD(model.parameters(), lr=0.002)
    return plain(model, rows(xs(), labels()), lambda m, b: F.cross_entropy(m(b[0]), b[1], reduction="sum"), optimizer)


def sum_over_size():
    model = net(1)
    optimizer = SGD(model.parameters(), lr=0.05)
    return plain(model, rows(xs()), lambda m, b: m(b[0]).pow(2).sum() / len(b[0]), optimizer)


def sum_over_a_constant():
    model = net(1)
    optimizer = SGD(model.parameters(), lr=0.05)
    return plain(model, rows(xs()), lambda m, b: m(b[0]).pow(2).sum() / SIZE, optimizer)


def with_a_penalty():
    model = net()
    loss_of = lambda m, b: F.cross_entropy(m(b[0]), b[1]) + 0.01 * sum(p.pow(2).sum() for p in m.parameters())
    return plain(model, rows(xs(), labels()), loss_of, SGD(model.parameters(), lr=0.05))


def ignored_labels():
    y = labels()
    y[torch.rand(OF) < 0.5] = -100
    model = net()
    loss_of = lambda m, b: F.cross_entropy(m(b[0]), b[1])
    return plain(model, rows(xs(), y), loss_of, SGD(model.parameters(), lr=0.05))


def masked():
    mask = (torch.rand(OF, 3) < 0.4).double()
    model = net()
    loss_of = lambda m, b: (m(b[0]).pow(2) * b[1]).sum() / b[1].sum()
    return plain(model, rows(xs(), mask), loss_of, SGD(model.parameters(), lr=0.05))


def loss_of_the_model():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net()

        def forward(self, x, y):
            out = self.net(x)
            return {"loss": F.cross_entropy(out, y), "out": out}

    return plain(Own(), rows(xs(), labels()), lambda m, b: m(*b)["loss"])


def a_smaller_last_batch():
    return plain(net(), rows(xs(64), labels(64)), lambda m, b: F.cross_entropy(m(b[0]), b[1]))


def dictionaries():
    class Named(Dataset):
        def __init__(self):
            self.x, self.y = xs(), labels()

        def __len__(self):
            return OF

        def __getitem__(self, n):
            return {"x": self.x[n], "more": (self.y[n], "sample %d" % n), "n": n}

    names = []

    def loss_of(m, batch):
        y, text = batch["more"]
        names.extend(text)
        assert len(text) == len(y) == len(batch["n"]) and text[0] == "sample %d" % batch["n"][0]
        return F.cross_entropy(m(batch["x"]), y)

    found = plain(net(), DataLoader(Named(), batch_size=SIZE, shuffle=True), loss_of)
    assert len(names) == 2 * OF and len(set(names)) == OF
    return found


def lists_of_pictures():
    def collate(samples):
        return [sample[0] for sample in samples], [{"y": sample[1]} for sample in samples]

    loader = DataLoader(TensorDataset(xs(), labels()), batch_size=SIZE, collate_fn=collate)
    loss_of = lambda m, b: F.cross_entropy(m(torch.stack(b[0])), torch.stack([one["y"] for one in b[1]]))
    return plain(net(), loader, loss_of)


def sequences_first():
    def collate(samples):
        return torch.stack([s[0] for s in samples], 1), torch.stack([s[1] for s in samples])

    loader = DataLoader(TensorDataset(torch.randn(OF, 5, 6), labels()), batch_size=SIZE, collate_fn=collate)
    return plain(net(), loader, lambda m, b: F.cross_entropy(m(b[0]).mean(0), b[1]))


def workers():
    loader = DataLoader(TensorDataset(xs(), labels()), batch_size=SIZE, num_workers=1, persistent_workers=True)
    return plain(net(), loader, lambda m, b: F.cross_entropy(m(b[0]), b[1]))


def zero_after():
    model, loader, seen = net(), rows(xs(), labels()), 0
    optimizer = SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(2):
        for x, y in loader:
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            model.zero_grad()
            seen += 1
    return model, seen, optimizer


def clipped_and_scheduled():
    model, loader, seen = net(), rows(xs(), labels()), 0
    optimizer = Adam(model.parameters(), lr=0.01)
    schedule = lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=3 * len(loader))
    by_epoch = lr_scheduler.StepLR(optimizer, 1, 0.5)
    norms = []
    for epoch in range(3):
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), 0.2)))
            optimizer.step()
            schedule.step()
            seen += 1
        by_epoch.step()
    assert max(norms) > 0.2, norms
    return model, seen, optimizer, schedule.last_epoch, by_epoch.last_epoch


def scaled():
    model, loader, seen = net(), rows(xs(), labels()), 0
    optimizer = Adam(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
    for epoch in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            scaler.scale(F.cross_entropy(model(x), y)).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.2)
            scaler.step(optimizer)
            scaler.update()
            seen += 1
    return model, seen, optimizer, scaler.get_scale()


def accumulated(tail):
    model, loader, seen, done = net(), rows(xs(84), labels(84)), 0, []
    optimizer = Adam(model.parameters(), lr=0.01)
    optimizer.register_step_post_hook(lambda *_: done.append(1))
    for epoch in range(2):
        for i, (x, y) in enumerate(loader):
            (F.cross_entropy(model(x), y) / 2).backward()
            if (i + 1) % 2 == 0 or (tail and i + 1 == len(loader)):
                nn.utils.clip_grad_norm_(model.parameters(), 0.2)
                optimizer.step()
                optimizer.zero_grad()
            seen += 1
    return model, seen, optimizer, len(done)


def accumulated_by_two():
    return accumulated(False)


def accumulated_with_a_tail():
    return accumulated(True)


def two_losses():
    model, loader, seen = net(), rows(xs(), labels()), 0
    optimizer = SGD(model.parameters(), lr=0.05)
    for x, y in loader:
        out = model(x)
        optimizer.zero_grad()
        F.cross_entropy(out, y).backward(retain_graph=True)
        out.pow(2).mean().backward()
        optimizer.step()
        seen += 1
    return model, seen, optimizer


def two_loaders():
    model, seen = net(), 0
    optimizer = SGD(model.parameters(), lr=0.05)
    for (x, y), (z,) in zip(rows(xs(), labels()), rows(xs(120), size=24)):
        loss = F.cross_entropy(model(x), y) + 0.1 * model(z).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += 1
    return model, seen, optimizer


def evaluated_between():
    model, loader, seen, looks = net(), rows(xs(), labels()), 0, []
    optimizer = Adam(model.parameters(), lr=0.01)
    for epoch in range(2):
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            seen += 1
        model.eval()
        looks.append(sum(1 for x, y in loader))
        with torch.no_grad():
            looks.append(sum(1 for x, y in loader))
    return model, seen, optimizer, looks


def averaged():
    model = net()
    mean = torch.optim.swa_utils.AveragedModel(model)
    loss_of = lambda m, b: F.cross_entropy(m(b[0]), b[1])
    _, seen, optimizer = plain(model, rows(xs(), labels()), loss_of, after=lambda: mean.update_parameters(model))
    return mean.module, seen, optimizer


def rate_by_the_length():
    model, loader, seen = net(), rows(xs(), labels()), 0
    optimizer = SGD(model.parameters(), lr=0.05)
    for epoch in range(2):
        for i, (x, y) in enumerate(loader):
            optimizer.param_groups[0]["lr"] = 0.05 * (1 - 0.0 * i / len(loader))
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            seen += 1
    return model, seen, optimizer


def with_its_mean_told():
    model, loader, seen, means = net(), rows(xs(64), labels(64)), 0, []
    optimizer = SGD(model.parameters(), lr=0.0)
    schedule = None
    for epoch in range(2):
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y) * 0 + 3.0
            loss.backward()
            optimizer.step()
            total += float(loss.detach())
            seen += 1
        means.append(round(total / len(loader), 9))
        schedule = lr_scheduler.OneCycleLR(optimizer, 0.05, epochs=2, steps_per_epoch=len(loader))
        optimizer.param_groups[0]["lr"] = 0.0
    return model, seen, optimizer, means, schedule.total_steps


def looked_at_first():
    model, loader = net(), rows(xs(), labels())
    optimizer = Adam(model.parameters(), lr=0.01)
    other = rows(xs())
    total = sum(float(x.sum()) for (x,) in other) + sum(len(x) for x, y in loader)
    model, seen, optimizer = plain(model, loader, lambda m, b: F.cross_entropy(m(b[0]), b[1]), optimizer)
    return model, seen, optimizer, round(total, 6)


def in_a_generator():
    def drawn(loader):
        for batch in loader:
            yield batch

    model, seen = net(), 0
    optimizer = SGD(model.parameters(), lr=0.05)
    for x, y in drawn(rows(xs(), labels())):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        seen += 1
    return model, seen, optimizer


# --- those that can't be handed parts -----------------------------------------------------------------------------


def contrastive():
    def loss_of(m, b):
        a, z = F.normalize(m(b[0]), dim=1), F.normalize(m(b[0] + 0.1), dim=1)
        return F.cross_entropy(a @ z.T / 0.1, torch.arange(len(a)))

    return plain(net(), rows(xs()), loss_of)


def root_of_the_mean():
    return plain(net(1), rows(xs()), lambda m, b: m(b[0]).pow(2).mean().sqrt())


def divided_by_a_draw():
    def loss_of(m, b):
        mask = (b[0][:, :3] > 0.2).double()
        return (m(b[0]).pow(2) * mask).sum() / mask.sum()

    return plain(net(), rows(xs()), loss_of)


def in_turns():
    one, other, seen = net(6), net(1), 0
    first, second = Adam(one.parameters(), lr=0.01), Adam(other.parameters(), lr=0.01)
    for (x,) in rows(xs()):
        second.zero_grad()
        (other(x).mean() - other(one(x).detach()).mean()).backward()
        second.step()
        first.zero_grad()
        other(one(x)).mean().backward()
        first.step()
        seen += 1
    return one, seen, first


def clipped_by_hand():
    model, seen = net(), 0
    optimizer = SGD(model.parameters(), lr=0.05)
    for x, y in rows(xs(), labels()):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        for p in model.parameters():
            p.grad.clamp_(-0.01, 0.01)
        optimizer.step()
        seen += 1
    return model, seen, optimizer


def replaced_by_hand():
    model, seen = net(), 0
    optimizer = SGD(model.parameters(), lr=0.05)
    for x, y in rows(xs(), labels()):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        for p in model.parameters():
            p.grad = p.grad.clamp(-0.01, 0.01)
            p.grad = p.grad * 0.5  # it may come to lie where the first one lay
        optimizer.step()
        seen += 1
    return model, seen, optimizer


def dropped_by_hand():
    model, seen = net(), 0
    optimizer = SGD(model.parameters(), lr=0.05)
    for x, y in rows(xs(), labels()):
        for p in model.parameters():
            p.grad = None
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        seen += 1
    return model, seen, optimizer


def warmed_up_by_count():
    model, seen = net(), 0
    optimizer = SGD(model.parameters(), lr=0.05)
    for x, y in rows(xs(), labels()):
        seen += 1
        optimizer.param_groups[0]["lr"] = 0.01 * seen
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model, seen, optimizer


def with_a_closure():
    model, seen = net(), 0
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=2)
    for x, y in rows(xs(), labels()):

        def closure():
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

        optimizer.step(closure)
        seen += 1
    return model, seen, optimizer


def counted():
    model, source = net(), iter(rows(xs(), labels()))
    optimizer = SGD(model.parameters(), lr=0.05)
    for step in range(4):
        x, y = next(source)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model, 4, optimizer


def ragged():
    def collate(samples):
        return torch.cat([s[0][: 1 + n % 3] for n, s in enumerate(samples)]), torch.stack([s[1] for s in samples])

    loader = DataLoader(TensorDataset(torch.randn(OF, 3, 6), labels()), batch_size=SIZE, collate_fn=collate)
    return plain(net(), loader, lambda m, b: F.cross_entropy(m(b[0])[: len(b[1])], b[1]))


def updated_now_and_then():
    model, seen = net(), 0
    optimizer = SGD(model.parameters(), lr=0.05)
    for i, (x, y) in enumerate(rows(xs(), labels())):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        if i in (0, 3):
            optimizer.step()
        seen += 1
    return model, seen, optimizer


def batch_norm():
    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 3))
    model, seen, optimizer = plain(model, rows(xs(), labels()), lambda m, b: F.cross_entropy(m(b[0]), b[1]))
    return model, seen, optimizer, model[1].running_mean.tolist(), model[1].momentum


def left_early():
    model, seen = net(), 0
    optimizer = SGD(model.parameters(), lr=0.05)
    for x, y in rows(xs(), labels()):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        seen += 1
        if seen == 4:
            break
    return model, seen, optimizer


def told(name):
    torch.manual_seed(0)
    model, seen, optimizer, *more = globals()[name]()
    numbers = [float(v) for p in model.parameters() for v in p.detach().flatten()]
    rate = float(optimizer.param_groups[0]["lr"])
    print(json.dumps({"name": name, "weights": numbers, "seen": seen, "rate": rate, "more": more}), flush=True)


"""
