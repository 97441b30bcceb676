"""Real runs that wait for their data, and one that does not: the family, the line, and not a word where all is well."""

from __future__ import annotations

import pytest

from tests.endings.ward import TORCH, Case, as_text

SECONDS = 20

LOADER = (
    TORCH
    + """
from torch.utils.data import DataLoader, Dataset

"""
)

LOOP = f"""
begun = time.monotonic()
while time.monotonic() - begun < {SECONDS}:
    for batch in loader:
        train_step(batch)
        if time.monotonic() - begun >= {SECONDS}:
            break
"""

SCRIPTS = {
    "storage-far-away": LOADER
    + """
def fetch(number):
    time.sleep(0.01)  # here
    return torch.randn(64)


class Far(Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, number):
        return fetch(number)


loader = DataLoader(Far(), batch_size=8)
"""
    + LOOP,
    "workers-that-wait": LOADER
    + """
class Far(Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, number):
        time.sleep(0.03)  # here
        return torch.randn(64)


loader = DataLoader(Far(), batch_size=8, num_workers=2)
"""
    + LOOP,
    "over-the-network": LOADER
    + """
import socket
import threading

server = socket.create_server(("127.0.0.1", 0))


def serve():
    while True:
        client = server.accept()[0]
        time.sleep(0.02)
        client.sendall(bytes(64))
        client.close()


threading.Thread(target=serve, daemon=True).start()


class Remote(Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, number):
        with socket.create_connection(server.getsockname()) as link:
            raw = link.recv(64)  # here
        return torch.frombuffer(bytearray(raw), dtype=torch.uint8).float()


loader = DataLoader(Remote(), batch_size=8)
"""
    + LOOP,
    "quick-and-well": LOADER
    + """
loader = DataLoader([torch.randn(64) for _ in range(640)], batch_size=64, shuffle=True)
"""
    + LOOP,
    "a-little-wait": LOADER
    + """
class Near(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, number):
        time.sleep(0.001)
        return torch.randn(64)


loader = DataLoader(Near(), batch_size=8)
"""
    + LOOP.replace("train_step(batch)", "train_step(batch, pause=0.06)"),
}
EXPECTED = {
    "storage-far-away": "input-bound.no-prefetch",
    "workers-that-wait": "input-bound.slow-transform",
    "over-the-network": "input-bound.slow-network",
}


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    """All of them at once: they wait more than they compute."""
    started = {}
    for name, text in SCRIPTS.items():
        started[name] = Case(tmp_path_factory.mktemp(name), text).start()
    return {name: case.finish() for name, case in started.items()}


@pytest.mark.parametrize("name", list(EXPECTED))
def test_a_run_that_waits_for_its_data_is_named_with_the_line(cases, name):
    case = cases[name]
    found = case.first()

    assert found["cause"] == EXPECTED[name], as_text(case)
    assert found["grade"] != "hypothesis"
    assert found["culprit"]["line"] == case.line("# here"), as_text(case)
    assert "waits for data" in found["claim"]
    assert found["cures"]


@pytest.mark.parametrize("name", [name for name in SCRIPTS if name not in EXPECTED])
def test_a_run_that_is_well_hears_nothing_of_its_data(cases, name):
    families = [finding["cause"].partition(".")[0] for finding in cases[name].verdict()["findings"]]

    assert "input-bound" not in families, as_text(cases[name])


@pytest.mark.parametrize("name", list(SCRIPTS))
def test_looking_changes_nothing(cases, name):
    assert cases[name].code == 0, as_text(cases[name])
    assert cases[name].kind() == "completed"
