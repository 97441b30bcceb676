"""Scripts that die within a limit, and what becomes of them under --heal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.endings.conftest import memory_cgroup  # noqa: F401 - a fixture
from tests.endings.ward import Case, as_text


class Three(NamedTuple):
    """One script: within its limit as it is, with room for all, and within its limit under --heal."""

    dies: Case
    free: Case
    healed: Case


@pytest.fixture
def three_ways(
    tmp_path: Path,
    memory_cgroup: Callable[[int], Callable[[], None]],  # noqa: F811
) -> Iterator[Callable[[str, int], Three]]:
    """Run a script in these three ways; healed, it has to finish in one go, with what it prints with room for all."""
    made: list[Case] = []

    def run(text: str, room: int) -> Three:
        made.extend(Case(tmp_path / f"case-{number}", text) for number in range(3))
        three = Three(*made)
        three.dies.run(before=memory_cgroup(room))
        three.free.start()
        three.healed.run(before=memory_cgroup(room), options=["--heal"])
        three.free.finish()
        assert three.healed.code == 0, as_text(three.healed)
        assert three.healed.out == three.free.out
        assert len(list((three.healed.holter.home / "runs").iterdir())) == 1
        return three

    yield run
    for case in made:
        case.holter.close()
