"""A plan for a Keras model: two small real steps in processes of their own, on its own data's shapes.

TensorFlow has no tensors without memory, so the step is measured and not drawn: weights, gradients and the optimizer's
state are counted by the variables, the rest grows in a line with the batch.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

from ..record import environment
from .fit import Kind, corrected
from .largest import largest
from .memory_budget import memory_budget_for

_KERAS = Kind(calibrated=0.06, blind=0.3, most=0.1, grain=8e6)
_STEPS = 4


def plan_keras(model: Any, batch: Any, batch_size: int | None, memory: int | None, table: bool) -> dict[str, Any]:
    """The plan as plain data; the model has to be compiled and built, or a batch given."""
    import keras

    began = time.monotonic()
    if getattr(model, "optimizer", None) is None:
        raise ValueError("the model is not compiled: call model.compile(...) first")
    inputs, outputs = _shapes(model, batch)
    rows = batch_size or _rows(batch) or 32
    limit, source = (memory, "as asked") if memory else memory_budget_for(None, "cpu")
    counts = _counts(model)
    sizes = sorted({max(1, rows // 8), max(1, rows // 4), max(1, rows // 2)})
    with tempfile.TemporaryDirectory(prefix="holter-plan-") as folder:
        path = os.path.join(folder, "model.keras")
        model.save(path)
        found = [_measured(path, size, inputs, outputs) for size in sizes]
    seen = [one for one in found if "peak" in one]
    if not seen:
        raise ValueError(f"no step of this model could be measured: {found[0].get('error')}")
    fit = corrected([(one["rows"], 0, one["peak"]) for one in seen], _KERAS)

    def fits(n: int) -> bool:
        return fit.at(n, 0).high <= limit

    best = largest(fits, rows)
    at = fit.at(rows, 0)
    known = sum(counts.values())
    parts = {**counts, "activations": int(max(0.0, fit.slope * rows))}
    parts["framework"] = max(0, at.likely - known - parts["activations"])
    plan: dict[str, Any] = {
        "schema": 1,
        "framework": "keras",
        "version": str(keras.__version__),
        "device": "cpu",
        "memory": limit,
        "memory_from": source,
        "counts": "the process",
        "batch": rows,
        "peak": at.as_dict(),
        "parts": parts,
        "phase": "",
        "context": 0,
        "fits": fits(rows),
        "curve": [
            {"batch": n, **fit.at(n, 0).as_dict()} for n in sorted({max(1, rows // 2), rows, rows * 2, rows * 4})
        ],
        "largest": {"batch": best, **(fit.at(best, 0).as_dict() if best else {})},
        "measured": [{"batch": one["rows"], "peak": one["peak"], "seconds": one["seconds"]} for one in seen],
        "notes": ["activations and temporary blocks are shown together: they were measured, not drawn"],
    }
    if table:
        plan["settings"] = _table(rows, fit, limit, seen)
        plan["buys_most"] = None
    plan["seconds"] = round(time.monotonic() - began, 2)
    return plan


def _table(rows: int, fit: Any, limit: int, seen: list[dict[str, Any]]) -> list[dict[str, Any]]:
    each = max(1e-9, (seen[-1]["seconds"] - seen[0]["seconds"]) / max(1, seen[-1]["rows"] - seen[0]["rows"]))
    fixed = max(0.0, seen[0]["seconds"] - each * seen[0]["rows"])
    found = []
    for chunks in (1, 2, 4, 8):
        if rows % chunks:
            continue
        micro = rows // chunks
        at = fit.at(micro, 0)
        found.append(
            {
                "name": f"micro-batch {micro} × {chunks}" if chunks > 1 else "as it is",
                "micro_batch": micro,
                "accumulate": chunks,
                "peak": at.as_dict(),
                "fits": at.high <= limit,
                "speed": round((fixed + each * rows) / (chunks * (fixed + each * micro)), 2),
                "speed_because": "",
                "keeps": "equivalent" if chunks > 1 else "exact",
                "because": "random numbers and batch statistics are drawn per chunk" if chunks > 1 else "",
                "how": f"HOLTER_SPLIT={chunks}" if chunks > 1 else "",
                "single": True,
                "environ": {environment.SPLIT: str(chunks)} if chunks > 1 else {},
            }
        )
    return found


def _counts(model: Any) -> dict[str, int]:
    def size(variables: Any) -> int:
        return sum(math.prod(int(n) for n in v.shape) * _width(v.dtype) for v in variables)

    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    return {
        "parameters": size(model.variables) - size(model.optimizer.variables if _holds(model) else ()),
        "gradients": size(model.trainable_variables),
        "optimizer": size(model.optimizer.variables),
    }


def _holds(model: Any) -> bool:
    ours = {id(v) for v in model.optimizer.variables}
    return any(id(v) in ours for v in model.variables)


def _width(dtype: Any) -> int:
    name = getattr(dtype, "name", str(dtype))
    return {"float64": 8, "int64": 8, "float16": 2, "bfloat16": 2, "uint8": 1, "int8": 1, "bool": 1}.get(name, 4)


def _shapes(model: Any, batch: Any) -> tuple[Any, Any]:
    """What goes in and comes out, without the batch dimension; and the kind of numbers."""
    pairs = []
    for tensors in (model.inputs, model.outputs):
        pairs.append([[[int(n or 1) for n in t.shape[1:]], getattr(t.dtype, "name", str(t.dtype))] for t in tensors])
    if isinstance(batch, (tuple, list)) and len(batch) == 2 and hasattr(batch[1], "shape"):
        pairs[1] = [[[int(n) for n in batch[1].shape[1:]], str(getattr(batch[1].dtype, "name", batch[1].dtype))]]
    elif "sparse" in str(model.loss).lower():
        pairs[1] = [[[], "int32"]]
    return pairs[0], pairs[1]


def _rows(batch: Any) -> int | None:
    first = batch[0] if isinstance(batch, (tuple, list)) else batch
    shape = getattr(first, "shape", None)
    return int(shape[0]) if shape is not None and len(shape) else None


def _measured(path: str, rows: int, inputs: Any, outputs: Any) -> dict[str, Any]:
    order = json.dumps({"path": path, "rows": rows, "inputs": inputs, "outputs": outputs, "steps": _STEPS})
    environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    environ.pop(environment.AGENT_DIR, None)
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "keras_step.py")
    try:
        done = subprocess.run(
            [sys.executable, script, order], capture_output=True, text=True, timeout=300, env=environ, check=False
        )
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer
    except (subprocess.TimeoutExpired, ValueError, IndexError) as error:
        return {"error": f"{type(error).__name__}: the step ended without an answer"}
