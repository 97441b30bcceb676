"""What the agent puts in place of the frameworks' own is what its catalogue says, no more and no less."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from holter.agent.patches import HEAL, PATCHES, PLAN, WATCH
from tests.conftest import Holter
from tests.needs import needs

SCRIPT = Path(__file__).with_name("patched_process.py")
AGENT = Path(__file__).parents[2] / "src" / "holter" / "agent"
STANDS_FOR = {"__main__.Net": "MODEL", "__main__.Opt": "OPTIMIZER"}
SHARED = {"observe/wrap.py", "observe/saves.py"}  # they put things around what an adapter names to them


def _stock(holter: Holter, *words: str, only: tuple[str, ...] = ()) -> list[dict[str, list[str]]]:
    out = holter.folder / "stock.json"
    done = holter(*words, "--", sys.executable, str(SCRIPT), str(out), str(AGENT.parent), *only)
    assert out.exists(), done.stderr.decode()
    return json.loads(out.read_text())


def _differences(stock: list[dict[str, list[str]]], layers: tuple[str, ...]) -> list[str]:
    """Which lines the catalogue lacks and which it has too many, in words that say what to do."""
    wanted = {patch.name: patch for patch in PATCHES if patch.layer in layers and not patch.when}
    seen: dict[str, list[str]] = {}
    for one in stock:
        owners = [full.rpartition(".")[::2] for full in one["names"]]
        names = [f"{STANDS_FOR.get(owner, owner)}.{name}" for owner, name in owners]
        name = next((name for name in names if name in wanted), min(names, key=len))
        seen[name] = [path.partition("agent/")[2] for path in one["by"]]
    lines = []
    for name in sorted(seen.keys() - wanted.keys()):
        lines.append(f"add a line for {name}: {' and '.join(seen[name])} stands around it, layer {layers[-1]}")
    for name in sorted(wanted.keys() - seen.keys()):
        lines.append(f"remove the line of {name}: {wanted[name].by} does not touch it, layer {wanted[name].layer}")
    for patch in PATCHES:
        if patch.layer in layers and not patch.when and patch.name in seen:
            by = seen[patch.name]
            if patch.by not in by and not SHARED & set(by):
                lines.append(f"{patch.name} is the work of {' and '.join(by)}, not of {patch.by}")
    return [f"src/holter/agent/patches.py: {line}" for line in lines]


@pytest.mark.parametrize("layers", [(WATCH,), (WATCH, HEAL)], ids=["watched", "heal"])
def test_what_is_patched_is_what_the_catalogue_says(holter: Holter, layers: tuple[str, ...]) -> None:
    """After a training with each framework exactly the catalogue's lines are found in the process."""
    needs("torch", "tensorflow", "keras", "lightning", "transformers")

    stock = _stock(holter, "run", *(["--heal"] if HEAL in layers else []))

    assert _differences(stock, layers) == []


def test_a_plan_patches_what_the_catalogue_says(holter: Holter) -> None:
    """Under `holter plan` the losses and the calls of modules, before any training."""
    pytest.importorskip("torch")

    stock = _stock(holter, "plan", only=("torch",))

    seen = {name for one in stock for name in one["names"] if any("torch/first_steps" in path for path in one["by"])}
    assert seen >= {patch.name for patch in PATCHES if patch.layer == PLAN}
    assert {name for name in seen if "functional" in name or "__call__" in name} == {
        patch.name for patch in PATCHES if patch.layer == PLAN
    }


def test_the_catalogue_names_a_file_that_speaks_of_what_is_patched_now_and_then() -> None:
    """What no look at a calm process can find: the file is there, and names the attribute."""
    now_and_then = [patch for patch in PATCHES if patch.when]

    silent = [one for one in now_and_then if one.name.rpartition(".")[2] not in (AGENT / one.by).read_text()]

    assert silent == []
    assert [patch for patch in PATCHES if not patch.why or patch.layer not in (WATCH, HEAL, PLAN)] == []
