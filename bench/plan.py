"""How well `holter plan` foretells: predicted against measured peaks, the largest batch, and what peers need for it.

    make bench-plan                  on the CPU: peak of a fresh process, one thread
    python bench/plan.py --cuda      on a GPU: peak of PyTorch's allocator

Each model is planned under a cap and then really trained at 30, 60 and 90 % of the largest batch that was found; the
planner itself only ever ran steps that take a tenth of the cap. MemTracker, of PyTorch, foretells the same sizes on
fake tensors, and torch-preflight does where it is installed; Accelerate and Lightning look for the largest batch by
trying.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))
import plan_models
import plan_preflight

from holter.facts.host_memory import highest
from holter.planner import mapped_heap
from holter.planner.small_steps import Stepped
from holter.planner.torch.measured import measure, resident
from holter.planner.torch.plan import Planner, base_of
from holter.planner.torch.step import Recipe, batch_for, one_step, optimizer_for

SHARES = (0.3, 0.6, 0.9)
# Where peers look for the largest batch too, and the size that Accelerate begins with.
RACES = {"cpu": {"decoder": 512}, "cuda": {"decoder": 4096, "resnet": 8192}}


def recipe_of(case: plan_models.Case, rows: int, scale: float) -> Recipe:
    return Recipe(
        case.model(scale), case.batch(rows, scale), rows, case.optimizer, case.loss,
        precision=case.precision, checkpointing=case.checkpointing,
    )  # fmt: skip


def predict(case: plan_models.Case, kind: str, cap: int, scale: float) -> dict[str, Any]:
    """Plan one case: the largest batch, and the peak at three sizes."""
    recipe = recipe_of(case, 256, scale)
    base = base_of(torch, recipe) if kind == "cpu" else 0
    began = time.perf_counter()
    try:
        planner = Planner(torch, recipe, kind, cap, base=base)
    except Exception as error:
        return predict_by_steps(recipe, kind, cap, base, str(error))
    if kind == "cuda":
        planner.memory = cap + planner.context  # the cap of this bench is the allocator's alone
    best = planner.largest()
    sizes = [max(1, int(best * share)) for share in SHARES]
    peaks = [planner.peak(size).as_dict() for size in sizes]
    took = time.perf_counter() - began
    measured = [[one.rows, one.peak, one.error] for one in planner.measured]
    fit = planner.correction
    drawn = [planner.drawing.summit(size).total for size in sizes]
    found = {
        "best": best, "sizes": sizes, "peaks": peaks, "seconds": took, "calibrated": measured, "drawn": drawn,
        "offset": fit.offset, "slope": fit.slope, "off": fit.disagreement, "lines": planner.drawing.lines,
        "base": base,
    }  # fmt: skip
    if kind == "cpu":
        best = planner.largest_without_holes()
        sizes = [max(1, int(best * share)) for share in SHARES]
        peaks = [planner.without_holes(size).as_dict() for size in sizes]
        found["without holes"] = {"best": best, "sizes": sizes, "peaks": peaks}
    return found


def predict_by_steps(recipe: Recipe, kind: str, cap: int, base: int, why: str) -> dict[str, Any]:
    """As the command does where fake tensors can't run the step."""
    began = time.perf_counter()
    found = Stepped(torch, recipe, kind, cap, base, why)
    found.memory = cap + (found.context if kind == "cuda" else 0)
    best = found.largest()
    sizes = [max(1, int(best * share)) for share in SHARES]
    return {
        "best": best, "sizes": sizes, "peaks": [found.peak(size).as_dict() for size in sizes],
        "seconds": time.perf_counter() - began, "calibrated": [[m.rows, m.peak, m.error] for m in found.seen],
        "by_steps": why[:200], "base": base,
    }  # fmt: skip


def tracker(case: plan_models.Case, kind: str, rows: int, scale: float) -> tuple[int, float]:
    """The peak as PyTorch's own MemTracker foretells it, on fake tensors; and its time."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    began = time.perf_counter()
    device = torch.device(kind, 0) if kind == "cuda" else torch.device("cpu")
    with FakeTensorMode():
        with device:
            recipe = recipe_of(case, rows, scale)
        model = recipe.model
        optimizer = optimizer_for(torch, recipe.optimizer, model.parameters())
        batch = recipe.batch
        watch = MemTracker()
        watch.track_external(model, optimizer, *batch)
        with watch:
            for number in range(2):
                one_step(torch, recipe, model, optimizer, batch, kind, lambda _phase: None)
                if number == 0:
                    watch.reset_mod_stats()
        peak = watch.get_tracker_snapshot("peak")
    total = max(int(parts["Total"] if "Total" in parts else max(parts.values())) for parts in peak.values())
    return total, time.perf_counter() - began


def preflight(case: plan_models.Case, rows: int, scale: float) -> int | None:
    """The same by torch-preflight, where it is installed; it can't say it of every model."""
    if importlib.util.find_spec("torch_preflight") is None:
        return None
    recipe = recipe_of(case, 4, scale)
    optimizer = optimizer_for(torch, recipe.optimizer, recipe.model.parameters())
    return plan_preflight.forecast(recipe.model, recipe.batch[0], optimizer, rows, case.precision, case.checkpointing)


def train(case: plan_models.Case, kind: str, rows: int, scale: float, steps: int = 3) -> int:
    """Really train a few steps; the peak. On a CPU of the whole process, so it must be a fresh one."""
    recipe = recipe_of(case, rows, scale)
    if kind == "cuda":
        found = measure(torch, [(recipe, rows)], torch.device("cuda", 0), steps)[0]
        if found.error:
            raise MemoryError(found.error)
        return found.peak
    optimizer = optimizer_for(torch, recipe.optimizer, recipe.model.parameters())
    recipe.model.train()
    batch = batch_for(torch, recipe, rows, torch.device("cpu"), fake=False)
    from holter.planner.torch.blocks import checkpointed

    with checkpointed(torch, recipe.model, recipe.checkpointing):
        for _ in range(steps):
            one_step(torch, recipe, recipe.model, optimizer, batch, "cpu", lambda _phase: None)
    return highest()


def aside(*words: str, **environ: str) -> Any:
    """One part of the bench in a fresh process; its last line is JSON."""
    done = subprocess.run(
        [sys.executable, __file__, *words], capture_output=True, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environ},
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr[-400:])
    return json.loads(done.stdout.splitlines()[-1])


def clear() -> None:
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()


def one_case(case: plan_models.Case, kind: str, cap: int, scale: float) -> dict[str, Any]:
    words = ["--cap", str(cap), "--scale", str(scale), "--case", case.name]
    if kind == "cuda":
        clear()
        found = predict(case, kind, cap, scale)
    else:
        found = aside("--part", "predict", *words)
    found["name"] = case.name
    true = []
    for size in found["sizes"]:
        try:
            if kind == "cuda":
                clear()
                true.append(train(case, kind, size, scale))
            else:
                true.append(aside("--part", "train", "--rows", str(size), *words))
        except Exception as error:
            true.append(None)
            found.setdefault("errors", []).append(f"train {size}: {error}"[:300])
    try:
        if kind == "cuda":
            pairs = [(clear(), tracker(case, kind, size, scale))[1] for size in found["sizes"]]
        else:
            pairs = aside("--part", "tracker", "--sizes", ",".join(map(str, found["sizes"])), *words)
        theirs = [peak + (found["base"] if kind == "cpu" else 0) for peak, _ in pairs]
        took = [seconds for _, seconds in pairs]
    except Exception as error:
        theirs, took = [None] * len(SHARES), [0.0]
        found.setdefault("errors", []).append(f"tracker: {type(error).__name__} {error}"[-300:])
    found.update(true=true, tracker=theirs, tracker_seconds=took)
    try:
        guesses = [preflight(case, size, scale) for size in found["sizes"]]
        found["preflight"] = [guess and guess + (found["base"] if kind == "cpu" else 0) for guess in guesses]
    except Exception as error:
        found.setdefault("errors", []).append(f"torch-preflight: {type(error).__name__} {error}"[:300])
    if kind == "cpu":
        found["true_again"] = aside("--part", "train", "--rows", str(found["sizes"][1]), *words)
        found["true_best"] = None  # it is another one each time
        if "without holes" in found:
            measure_without_holes(found["without holes"], cap, words)
    else:
        found["true_best"] = true_largest(under_cap(case, scale, cap), found["best"], 150)
    return found


def measure_without_holes(found: dict[str, Any], cap: int, words: list[str]) -> None:
    """The same trainings in processes that are started as `holter plan --apply` starts them."""

    def peak(rows: int) -> int:
        return int(aside("--part", "train", "--rows", str(rows), *words, **mapped_heap.setting({})))

    found["true"] = [peak(rows) for rows in found["sizes"]]
    found["true_again"] = peak(found["sizes"][1])
    found["true_best"] = true_largest(lambda rows: peak(rows) <= cap, found["best"], 60)


def under_cap(case: plan_models.Case, scale: float, cap: int) -> Callable[[int], bool]:
    """Whether so many samples can be trained with under a cap of the GPU's memory; failures and all."""

    def fits(rows: int) -> bool:
        clear()
        cap_cuda(cap)
        try:
            train(case, "cuda", rows, scale)
            return True
        except (MemoryError, torch.cuda.OutOfMemoryError) as error:
            if "out of memory" not in str(error):
                print(f"{case.name} at {rows}: {error}"[:300], file=sys.stderr)
            return False
        finally:
            cap_cuda(None)

    return fits


def true_largest(fits: Callable[[int], bool], guess: int, fine: int) -> int | None:
    """Try around the guess, with as many failures as it takes, to one part in `fine`."""
    if guess < 1:
        return None
    if not fits(guess):
        low, high = int(guess * 0.9), guess
        while low and not fits(low):
            low, high = int(low * 0.8), low
        if not low:
            return 0
    else:
        low, high = guess, int(guess * 1.06) + 1
        while high < 4 * guess and fits(high):
            low, high = high, int(high * 1.2) + 1
    while high - low > max(1, guess // fine):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def cap_cuda(cap: int | None) -> None:
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(1.0 if cap is None else cap / total)


# --- peers that look for the largest batch --------------------------------------------------------------------


def accelerate_finds(case: plan_models.Case, kind: str, scale: float, start: int) -> dict[str, Any]:
    from accelerate.utils import find_executable_batch_size

    tries = []

    @find_executable_batch_size(starting_batch_size=start)
    def training(batch_size: int) -> int:
        tries.append(batch_size)
        recipe = recipe_of(case, batch_size, scale)
        device = torch.device(kind)
        model = recipe.model.to(device).train()
        optimizer = optimizer_for(torch, recipe.optimizer, model.parameters())
        batch = batch_for(torch, recipe, batch_size, device, fake=False)
        for _ in range(3):
            one_step(torch, recipe, model, optimizer, batch, kind, lambda _phase: None)
        return batch_size

    began = time.perf_counter()
    return {"best": training(), "tries": len(tries), "seconds": time.perf_counter() - began}


def lightning_finds(case: plan_models.Case, kind: str, scale: float, mode: str) -> dict[str, Any]:
    import logging
    import warnings

    import lightning

    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.batch_size = case.model(scale), 2

        def training_step(self, batch: Any, _index: int) -> Any:
            return case.loss(self.inner(*batch[:-1]), batch[-1])

        def configure_optimizers(self) -> Any:
            return optimizer_for(torch, case.optimizer, self.inner.parameters())

        def train_dataloader(self) -> Any:
            data = torch.utils.data.TensorDataset(*case.batch(8192, scale))
            return torch.utils.data.DataLoader(data, batch_size=self.batch_size)

    model = Module()
    trainer = lightning.Trainer(
        accelerator="gpu" if kind == "cuda" else "cpu", devices=1, max_epochs=1, logger=False,
        enable_progress_bar=False, enable_checkpointing=False, enable_model_summary=False,
    )  # fmt: skip
    began = time.perf_counter()
    best = lightning.pytorch.tuner.Tuner(trainer).scale_batch_size(model, mode=mode, max_trials=25)
    return {"best": best, "seconds": time.perf_counter() - began}


def limit_process(cap: int, base: int) -> None:
    """On a CPU: allocations fail beyond the cap, as they would in a small container, but without a kill."""
    import resource

    lines = Path("/proc/self/status").read_text().splitlines()
    data = sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData"))
    limit = data + max(0, cap - base)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def peers(case: plan_models.Case, kind: str, cap: int, scale: float, start: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    ways = {
        "accelerate": lambda: accelerate_finds(case, kind, scale, start),
        "lightning power": lambda: lightning_finds(case, kind, scale, "power"),
        "lightning binsearch": lambda: lightning_finds(case, kind, scale, "binsearch"),
    }
    for name, way in ways.items():
        try:
            if kind == "cuda":
                clear()
                cap_cuda(cap)
                found[name] = way()
            else:
                words = ["--cap", str(cap), "--scale", str(scale), "--case", case.name, "--rows", str(start)]
                found[name] = aside("--part", name, *words)
        except Exception as error:
            found[name] = {"error": f"{type(error).__name__}: {str(error)[:200]}"}
        finally:
            if kind == "cuda":
                cap_cuda(None)
                clear()
    return found


# --- telling --------------------------------------------------------------------------------------------------


def show(found: list[dict[str, Any]]) -> None:
    off: dict[str, list[float]] = {}
    print(
        f"{'model':<22}{'batch':>8}{'likely':>10}{'at most':>10}{'measured':>10}{'off':>8}{'MemTracker':>12}{'off':>8}"
    )
    for one in found:
        show_peaks(one["name"], one, off, "")
        mapped = one.get("without holes")
        if mapped:
            show_peaks(f"{one['name']}, no holes", mapped, off, ", without holes")
        pairs = zip(one.get("preflight", ()), one["true"], strict=False)
        off.setdefault("torch-preflight", []).extend(guess / true - 1 for guess, true in pairs if guess and true)
    for name, values in off.items():
        if values:
            under = sum(1 for value in values if value < -0.02)
            mean = sum(abs(value) for value in values) / len(values)
            print(
                f"{name}: mean error {mean:.1%}, worst {max(values, key=abs):+.1%}, "
                f"more than 2 % too low in {under} of {len(values)}"
            )
    for name, ones in (("", found), (", without holes", [one.get("without holes", {}) for one in found])):
        twice = [abs(one["true_again"] / one["true"][1] - 1) for one in ones if one.get("true_again")]
        if twice:
            print(f"the same training twice{name}: {sum(twice) / len(twice):.1%} apart, at most {max(twice):.1%}")
    plans = [one["seconds"] for one in found]
    tracked = [sum(one["tracker_seconds"]) for one in found]
    print(f"seconds per model: plan {sum(plans) / len(plans):.1f}, MemTracker {sum(tracked) / len(tracked):.1f}")


def show_peaks(name: str, one: dict[str, Any], off: dict[str, list[float]], how: str) -> None:
    """One model's peaks at its sizes, and its largest batch; what was forecast falsely goes to `off`."""
    theirs = one.get("tracker") or [None] * len(SHARES)
    for size, peak, true, other in zip(one["sizes"], one["peaks"], one["true"], theirs, strict=True):
        if true is None:
            print(f"{name:<22}{size:>8}  could not be measured")
            continue
        likely = peak["likely"] / true - 1
        off.setdefault(f"likely{how}", []).append(likely)
        off.setdefault(f"at most{how}", []).append(peak["high"] / true - 1)
        text = ""
        if other is not None:
            off.setdefault("MemTracker", []).append(other / true - 1)
            text = f"{other / 1e6:>12.0f}{other / true - 1:>+8.1%}"
        print(
            f"{name:<22}{size:>8}{peak['likely'] / 1e6:>10.0f}{peak['high'] / 1e6:>10.0f}{true / 1e6:>10.0f}"
            f"{likely:>+8.1%}{text}"
        )
    if one.get("true_best") is not None:
        share = one["best"] / max(1, one["true_best"]) - 1
        print(f"{'':<22}largest: {one['best']} planned, {one['true_best']} true ({share:+.1%})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("--cap", type=int, default=0)
    parser.add_argument("--scale", type=float, default=0.0)
    parser.add_argument("--case", default="", help="only these, with commas between")
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--sizes", default="")
    parser.add_argument("--part", default="")
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin no new case after this time")
    parser.add_argument("--output", default="")
    given = parser.parse_args()
    kind = "cuda" if given.cuda else "cpu"
    cap = given.cap or (12_000_000_000 if given.cuda else 1_200_000_000)
    scale = given.scale or (4.0 if given.cuda else 1.0)
    chosen = [case for case in plan_models.CASES if case.name in given.case.split(",") or not given.case]
    if given.part:
        case = chosen[0]
        if given.part == "predict":
            print(json.dumps(predict(case, kind, cap, scale)))
        elif given.part == "train":
            print(json.dumps(train(case, kind, given.rows, scale)))
        elif given.part == "tracker":
            print(json.dumps([tracker(case, kind, int(size), scale) for size in given.sizes.split(",")]))
        else:
            limit_process(cap, resident())
            way = given.part.split()
            found = (
                accelerate_finds(case, kind, scale, given.rows)
                if way[0] == "accelerate"
                else lightning_finds(case, kind, scale, way[1])
            )
            print(json.dumps(found))
        return
    began = time.monotonic()
    if kind == "cpu":
        torch.set_num_threads(1)
    found: list[dict[str, Any]] = []
    raced: dict[str, Any] = {}

    def keep() -> None:
        if given.output:
            Path(given.output).write_text(json.dumps({"cases": found, "peers": raced, "device": kind}, indent=1))

    for case in chosen:
        if time.monotonic() - began > given.seconds:
            print(f"{case.name} and what follows was left out: the time was over")
            break
        try:
            found.append(one_case(case, kind, cap, scale))
        except Exception as error:
            print(f"{case.name}: {type(error).__name__}: {str(error)[-400:]}")
            continue
        keep()
        print(f"{case.name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        for text in found[-1].get("errors", []):
            print("  ", text, file=sys.stderr)
        if case.name in RACES[kind] and time.monotonic() - began < given.seconds:
            raced[case.name] = peers(case, kind, cap, scale, RACES[kind][case.name])
            raced[case.name]["holter plan"] = {"best": found[-1]["best"], "seconds": found[-1]["seconds"]}
            keep()
    show(found)
    for name, ways in raced.items():
        for way, one in ways.items():
            print(f"largest batch of {name}, {way}: {one}")


if __name__ == "__main__":
    main()
