"""A plan for a PyTorch step: drawn on fake tensors, corrected by a few small real steps, and told as plain data."""

from __future__ import annotations

import importlib.util
import os
import time
from dataclasses import replace
from typing import Any

from ...record import environment
from .. import mapped_heap
from ..aside import Lost, aside, can_fork
from ..fit import CPU, CUDA, Correction, Interval, Point, corrected
from ..largest import largest
from ..memory_budget import memory_budget_for
from ..progress import Tell, quiet
from ..settings import Setting, buys_most, rank, settings_for
from ..timeline import PARTS
from .blocks import blocks_of
from .drawing import Drawing
from .kernels_cuda import Kernels
from .measured import LONG, SMALL, Measured, device_of, first_error, good, measure, of_files, resident
from .step import Recipe, optimizer_for
from .unseen import BLAS, BLAS_HOPPER, CONTEXT, FIXED

# Kernels are asked anew at the largest batch that was found, until it stays the same.
_ROUNDS, _SAME = 4, 0.01
_SPARE_SHARE = 0.5  # of what the upper end allows for, kept free where memory is forecast closely


class Planner:
    """All that is known of one step on one device."""

    def __init__(
        self, torch: Any, recipe: Recipe, kind: str, memory: int | None, *, base: int = 0, measures: bool = True
    ) -> None:
        self.torch, self.recipe, self.kind = torch, recipe, kind
        self.began = time.monotonic()
        self.held = base  # what the process holds before the first step
        self.notes: list[str] = []
        self.here = kind == "cpu" or (kind == "cuda" and torch.cuda.is_available())
        self.drawing = Drawing(torch, recipe, kind)
        self.drawing.at(4)  # what can't be drawn says so before anything is measured
        self.memory, self.memory_from = (memory, "as asked") if memory else memory_budget_for(torch, kind)
        self.measures = measures and self.here
        self.context = 0
        self.learned = (0.0, 0.0)
        self.measured: list[Measured] = []
        self.correction = self._calibrate()

    def learn(self, rows: int, peak: int) -> None:
        """Take in the peak of the user's own step: what it has more than ours grows with the batch, as a loss does.

        On a CPU one that has less has fewer holes.
        """
        off = peak - self.peak(rows).likely
        if off < 0 and self.drawing.has_holes:
            self.drawing.learn_holes(rows, off)
            return
        self.learned = (0.0, off / rows) if off > 0 else (float(off), 0.0)
        self.correction = self._with_learned(self.correction)

    def _with_learned(self, fit: Correction) -> Correction:
        offset, slope = self.learned
        return replace(fit, offset=fit.offset + offset, slope=fit.slope + slope)

    # --- what is measured -----------------------------------------------------------------------------------

    def sizes(self) -> list[int]:
        """Small sizes: together with the largest they show what grows with the batch and what does not."""
        least = self.drawing.summit(1).total
        budget = (self.memory - least - self._blind_offset()) * SMALL
        most = max(4, self.recipe.rows)
        reach = largest(lambda rows: rows <= most and self.drawing.summit(rows).total - least <= budget, 8) or 1
        return sorted({reach, max(1, reach // 2), max(1, reach // 4)})

    def _calibrate(self) -> Correction:
        kind = CPU if self.kind == "cpu" else CUDA
        if not self.measures:
            if not self.here:
                why = "Metal keeps no peak" if self.kind == "mps" else f"there is no {self.kind} device here"
                self.notes.append(f"{why}: nothing was measured, the interval is wide")
            return corrected([], kind, self._blind_offset())
        device = device_of(self.torch, self.kind)
        sizes = self.sizes()
        for size in sizes:
            last = self.measured[-1] if self.measured else None
            if last is not None and last.seconds * size / last.rows > LONG:
                break
            self.measured += measure(self.torch, [(self.recipe, size)], device, kernels=True)
            if self.measured[-1].error:
                break
        self.drawing.kernels = kernels_of(self.measured)
        points = [self._point(one) for one in good(self.measured)]
        if not points:
            self.notes.append(f"no step could be measured ({first_error(self.measured)}): the interval is wide")
            return corrected([], kind, self._blind_offset())
        self.context = max(one.context for one in good(self.measured)) or (CONTEXT if self.kind == "cuda" else 0)
        return corrected(points, kind)

    def _point(self, one: Measured) -> Point:
        other = one.began - self.held if self.kind == "cpu" else 0  # what planning itself has loaded since
        return one.rows, self.drawing.summit(one.rows).total, one.peak - other

    def _blind_offset(self) -> int:
        return self.held if self.kind == "cpu" else 2 * self._blas() + FIXED

    def _blas(self) -> int:
        hopper = self.kind == "cuda" and self.here and self.torch.cuda.get_device_capability(0)[0] >= 9
        return BLAS_HOPPER if hopper else BLAS

    # --- the forecast ---------------------------------------------------------------------------------------

    def peak(self, rows: int, drawing: Drawing | None = None, correction: Correction | None = None) -> Interval:
        """The peak at a size: of tensors on a GPU, of the process on a CPU."""
        drawing, correction = drawing or self.drawing, correction or self.correction
        if rows > correction.reach:
            self._ask(drawing, rows)
        return correction.at(rows, drawing.height(rows), drawing.doubt(rows))

    def _ask(self, drawing: Drawing, rows: int) -> None:
        """Have the kernels of a size that fits tell what they take."""
        if self.measures and drawing.kernels is not None and drawing.least(rows) <= self.memory:
            drawing.ask_kernels(self.torch, rows, device_of(self.torch, self.kind), self.memory)

    def fits(
        self, rows: int, drawing: Drawing | None = None, correction: Correction | None = None, roomy: bool = False
    ) -> bool:
        """Whether a size fits for sure: on a GPU the allocator itself is asked, with its holes."""
        drawing, correction = drawing or self.drawing, correction or self.correction
        drawn = drawing.least(rows)
        least = correction.at(rows, drawn)
        if self.kind == "cpu" and not drawing.has_holes:
            return self._fits_closely(least)
        if least.high > self.memory:
            return False  # not even without a hole
        if self.kind != "cuda":
            return self.peak(rows, drawing, correction).high <= self.memory
        blas = self._blas()
        unseen = least.likely - drawn
        blas = blas if unseen >= 2 * blas else 0
        spare = _SPARE_SHARE * (least.high - least.likely)
        limit = self.memory - self.context - max(0, unseen - 2 * blas) - spare
        if least.likely + spare + self.context > self.memory:
            return False
        return drawing.reserved(rows, int(limit), roomy, blas) is not None

    def _fits_closely(self, at: Interval) -> bool:
        """For what is forecast closely: nothing in it differs from run to run."""
        return at.likely + _SPARE_SHARE * (at.high - at.likely) <= self.memory

    def _may_be_mapped(self) -> bool:
        """Whether there are holes, and a way to start such a process without any."""
        return self.drawing.has_holes and mapped_heap.can_be_set()

    def without_holes(self, rows: int) -> Interval:
        """The peak of a process on a CPU that was started with a heap that leaves none."""
        return self.correction.at(rows, self.drawing.summit(rows).total)

    def largest_without_holes(self) -> int:
        """The largest batch for such a process."""
        free = self.memory - int(max(0.0, self.correction.offset))
        near = largest(lambda rows: self.drawing.summit(rows).total <= 0.9 * free, self.recipe.rows)
        return largest(lambda rows: self._fits_closely(self.without_holes(rows)), near)

    def largest(self, drawing: Drawing | None = None, correction: Correction | None = None) -> int:
        """The largest batch that fits."""
        drawing = drawing or self.drawing
        free = self.memory - self.context - int(max(0.0, (correction or self.correction).offset))
        near = largest(lambda rows: drawing.summit(rows).total <= 0.9 * free, self.recipe.rows)
        # On a CPU each answer is a trace in a child, and the heap's holes are no finer than this.
        fine = 100 if self.kind == "cpu" else 400
        found = largest(lambda rows: self.fits(rows, drawing, correction), near, fine=fine)
        for _ in range(_ROUNDS if drawing.kernels is not None else 0):
            before = found
            self._ask(drawing, max(1, found))
            found = largest(lambda rows: self.fits(rows, drawing, correction), max(1, found), fine=fine)
            if abs(found - before) <= _SAME * before:
                break
        return found

    def plan(self, table: bool = True, seconds: float = 60.0, tell: Tell = quiet) -> dict[str, Any]:
        """The whole plan as plain data; `tell` hears of each part of it as soon as it is known."""
        rows = self.recipe.rows
        at = self.peak(rows)
        tell("peak", batch=rows, peak=at.as_dict(), fits=self.fits(rows), memory=self.memory)
        best = self.largest()
        tell("largest", batch=best)
        parts = self._parts(rows, at)
        self._note_slower(best)
        curve = sorted({*_around(rows), *([best] if best else [])})
        plan: dict[str, Any] = {
            "schema": 1,
            "framework": "torch",
            "version": str(self.torch.__version__),
            "device": self.kind,
            "memory": self.memory,
            "memory_from": self.memory_from,
            "counts": "the process" if self.kind == "cpu" else "tensors on the device",
            "batch": rows,
            "peak": at.as_dict(),
            "parts": parts,
            "phase": self.drawing.summit(rows).phase,
            "context": self.context,
            "fits": self.fits(rows),
            "curve": [{"batch": n, **self.peak(n).as_dict()} for n in curve],
            "largest": {"batch": best, **(self.peak(best).as_dict() if best else {})},
            "measured": [{"batch": m.rows, "peak": m.peak, "seconds": m.seconds} for m in good(self.measured)],
        }
        if self._may_be_mapped():
            mapped = self.largest_without_holes()
            if mapped > best:
                how = {"environ": mapped_heap.setting(os.environ)}
                plan["largest_without_holes"] = {"batch": mapped, **self.without_holes(mapped).as_dict(), **how}
        if table:
            found = self._table(seconds, tell)
            plan["settings"], plan["buys_most"] = rank(found), buys_most(found)
        if not self.drawing.lines:
            self.notes.append("memory does not grow linearly with the batch here, so every size is traced")
        plan["notes"] = self.notes
        plan["seconds"] = round(time.monotonic() - self.began, 2)
        return plan

    def _note_slower(self, best: int) -> None:
        """Where kernels have to do with less memory at the largest batch: say up to where they need not."""
        if best and self.drawing.may_do_with_less() and not self.fits(best, roomy=True):
            roomy = largest(lambda rows: rows <= best and self.fits(rows, roomy=True), best)
            words = (
                "above a batch of %d cuDNN has no room for its first choice of convolutions, and may take slower ones"
            )
            self.notes.append(words % roomy)

    def _parts(self, rows: int, at: Interval) -> dict[str, int]:
        found = self.drawing.summit(rows)
        parts = {name: found.parts[name] for name in PARTS}
        parts["framework"] = max(0, at.likely - found.total)
        return parts

    # --- the table ------------------------------------------------------------------------------------------

    def _table(self, seconds: float, tell: Tell = quiet) -> list[dict[str, Any]]:
        until = time.monotonic() + seconds
        rows = []
        plain = min((m for m in good(self.measured)), key=lambda m: -m.rows, default=None)
        drawings: dict[tuple[Any, ...], tuple[Drawing, Correction, float | None]] = {}
        facts = {**facts_of(self.torch, self.recipe), "holes": self._may_be_mapped()}
        for setting in settings_for(self.kind, self.recipe.rows, facts):
            if time.monotonic() > until:
                self.notes.append(
                    f"{setting.name} and what follows was not tried: the time limit of {seconds:.0f} s is over"
                )
                break
            tell("setting", name=setting.name)
            try:
                if setting.changes not in drawings:
                    drawings[setting.changes] = self._tried(setting, plain)
                rows.append(self._row(setting, *drawings[setting.changes]))
            except Exception as error:
                self.notes.append(f"{setting.name} can't be planned: {type(error).__name__}: {str(error)[:120]}")
        return rows

    def _tried(self, setting: Setting, plain: Measured | None) -> tuple[Drawing, Correction, float | None]:
        """A setting's drawing, its correction, and its speed against the step as it is."""
        if not setting.changes:
            return self.drawing, self.correction, 1.0 if plain is not None else None
        recipe = self.recipe.with_(**dict(setting.changes))
        drawing = Drawing(self.torch, recipe, self.kind)
        drawing.holes = self.drawing.holes
        drawing.at(4)
        if plain is None:
            return drawing, self.correction, None
        device = device_of(self.torch, self.kind)
        sizes = sorted({max(1, plain.rows // 4), plain.rows})
        found = good(measure(self.torch, [(recipe, size) for size in sizes], device, kernels=True))
        drawing.kernels = kernels_of(found)
        if not found:
            return drawing, self.correction, None
        held = state_bytes(self.torch, self.recipe.optimizer) if "optimizer" in dict(setting.changes) else 0
        other = [one.began - self.held + held if self.kind == "cpu" else 0 for one in found]
        points = [(one.rows, drawing.summit(one.rows).total, one.peak - o) for one, o in zip(found, other)]
        last = found[-1]
        speed = plain.seconds / last.seconds if last.rows == plain.rows and last.seconds else None
        return drawing, self._with_learned(corrected(points, self.correction.kind)), speed

    def _row(self, setting: Setting, drawing: Drawing, correction: Correction, speed: float | None) -> dict[str, Any]:
        micro = self.recipe.rows // setting.chunks
        if setting.chunks > 1:
            speed = self._speed_of(micro)
        at = self.peak(micro, drawing, correction)
        environ = {environment.SPLIT: str(setting.chunks)} if setting.chunks > 1 else {}
        if setting.mapped:
            at, speed, environ = self.without_holes(micro), None, mapped_heap.setting(os.environ)
        because = "" if speed is not None else "there is no such device here" if not self.here else "not measured"
        return {
            "name": setting.name,
            "micro_batch": micro,
            "accumulate": setting.chunks,
            "peak": at.as_dict(),
            "fits": self._fits_closely(at) if setting.mapped else self.fits(micro, drawing, correction),
            "speed": round(speed, 2) if speed is not None else None,
            "speed_because": because,
            "keeps": setting.keeps,
            "because": setting.because,
            "how": setting.how,
            "single": setting.single,
            "environ": environ,  # what `holter plan --apply` runs the command with
        }

    def _speed_of(self, micro: int) -> float | None:
        """Samples per second of a micro-batch against the whole, by a line through the measured times."""
        found = sorted(good(self.measured), key=lambda m: m.rows)
        if len(found) < 2 or found[0].rows == found[-1].rows:
            return None
        each = max(0.0, (found[-1].seconds - found[0].seconds) / (found[-1].rows - found[0].rows))
        fixed = max(0.0, found[0].seconds - each * found[0].rows)
        full_batch = fixed + each * self.recipe.rows
        micro_batches = self.recipe.rows / micro * (fixed + each * micro)
        return full_batch / micro_batches if micro_batches else None


def kernels_of(found: list[Measured]) -> Kernels | None:
    """What operations take while they run, where that was seen."""
    seen = [(one.rows, one.kernels) for one in good(found) if one.kernels is not None]
    return Kernels(seen) if seen else None


def base_of(torch: Any, recipe: Recipe) -> int:
    """What a process holds before its first step; making an optimizer loads a part of PyTorch of its own."""
    before = resident()
    if recipe.optimizer is None or isinstance(recipe.optimizer, torch.optim.Optimizer) or not can_fork():
        return before

    def grown() -> int:
        least = resident() - of_files()  # pages of files are read anew by every child
        made = optimizer_for(torch, recipe.optimizer, recipe.model.parameters())
        return resident() - of_files() - least if made is not None else 0

    try:
        return before + max(0, int(aside(grown)))
    except Lost:
        return before


def state_bytes(torch: Any, optimizer: Any) -> int:
    """What an optimizer that has made steps already holds; one that replaces it would not."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        return 0
    values = (value for state in optimizer.state.values() if isinstance(state, dict) for value in state.values())
    return sum(v.numel() * v.element_size() for v in values if isinstance(v, torch.Tensor))


def _around(rows: int) -> list[int]:
    return sorted({max(1, rows // 4), max(1, rows // 2), rows, rows * 2, rows * 4})


def facts_of(torch: Any, recipe: Recipe) -> dict[str, Any]:
    """What the settings depend on."""
    norm = torch.nn.modules.batchnorm._BatchNorm

    def drops(module: Any) -> bool:
        return isinstance(module, torch.nn.modules.dropout._DropoutNd)

    given = recipe.optimizer
    made = isinstance(given, torch.optim.Optimizer)
    plain = (
        type(given).__name__.lower() if made else given if isinstance(given, str) else getattr(given, "__name__", "")
    )
    names = [name for name in ("sgd", "sgd-momentum") if given is not None]
    if hasattr(torch.optim, "Adafactor"):
        names.append("adafactor")
    if importlib.util.find_spec("bitsandbytes") is not None:
        names.append("adamw8bit")
    own = hasattr(recipe.model, "gradient_checkpointing_enable")
    return {
        "blocks": bool(blocks_of(torch, recipe.model)),
        "checkpointing_how": "model.gradient_checkpointing_enable()" if own else "",
        "batch_norm": any(isinstance(module, norm) for module in recipe.model.modules()),
        "dropout": any(float(getattr(module, "p", 0) or 0) > 0 for module in recipe.model.modules() if drops(module)),
        "precision": recipe.precision,
        "optimizer": plain.split("-")[0] if plain else "",
        "own_is_plain": plain.split("-")[0] in ("adam", "adamw"),
        "fused": (made and any(group.get("fused") for group in given.param_groups)) or str(plain).endswith("fused"),
        "optimizers": names,
    }
