"""The settings that a plan tries, and what each does to the result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import mapped_heap

KEEPS = {"exact": 0, "equivalent": 1, "changed": 2}


@dataclass(frozen=True)
class Setting:
    """One row of the table: what is changed against the step as it is."""

    name: str
    keeps: str
    because: str = ""
    changes: tuple[tuple[str, Any], ...] = ()  # of the recipe
    chunks: int = 1  # micro-batches per update
    single: bool = True  # one change, not several at once
    how: str = ""  # what a person would write
    mapped: bool = False  # the C library maps every block, and leaves no holes


_PRECISION = "sums are rounded to 8 bits"
_HALF = "sums are rounded to 11 bits, and small gradients need a GradScaler"


def settings_for(kind: str, batch: int, facts: dict[str, Any]) -> list[Setting]:
    """Those worth trying for a model on a device; `facts` says what the model and the machine have."""
    found = [Setting("as it is", "exact")]
    if facts.get("blocks"):
        how = facts.get("checkpointing_how") or "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)"
        again = Setting(
            "activation checkpointing", "exact", "blocks are computed again in backward",
            (("checkpointing", True),), how=how,
        )  # fmt: skip
        found.append(again)
    else:
        again = None
    if facts.get("holes"):
        why = "freed blocks go back to the system, and leave no holes"
        how = f"{mapped_heap.NAME}={mapped_heap.WORDS}"
        found.append(Setting("no holes in the heap", "exact", why, how=how, mapped=True))
    keeps, why = "exact", "sums are taken in another order"
    if facts.get("batch_norm"):
        keeps, why = "equivalent", "BatchNorm sees one micro-batch at a time"
    elif facts.get("dropout"):
        keeps, why = "equivalent", "other dropout masks, where the script accumulates by itself"
    for chunks in (2, 4, 8, 16):
        if batch % chunks == 0 and batch // chunks >= 1:
            name = f"micro-batch {batch // chunks} × {chunks}"
            found.append(Setting(name, keeps, why, (("accumulates", True),), chunks, how=f"HOLTER_SPLIT={chunks}"))
    if not facts.get("precision"):
        bf16 = (("precision", "bf16"),)
        how = f'torch.autocast("{kind}", torch.bfloat16)'
        found.append(Setting("bf16 autocast", "changed", _PRECISION, bf16, how=how))
        if kind == "cuda":
            half = (("precision", "fp16"),)
            found.append(Setting("fp16 autocast", "changed", _HALF, half, how=how.replace("bfloat16", "float16")))
        if again is not None:
            name = "bf16 autocast + checkpointing"
            found.append(Setting(name, "changed", _PRECISION, bf16 + again.changes, single=False, how=how))
    found += _optimizers(kind, facts)
    return found


def _optimizers(kind: str, facts: dict[str, Any]) -> list[Setting]:
    own = str(facts.get("optimizer") or "").lower()
    if not own:
        return []
    found = []
    other = "another optimizer learns another way"
    if own.startswith("adam") and not facts.get("fused") and kind == "cuda" and facts.get("own_is_plain"):
        changes = (("optimizer", f"{own}-fused"),)
        found.append(Setting(f"fused {own}", "equivalent", "the update is rounded once", changes, how="fused=True"))
    for name, title in (("sgd-momentum", "SGD with momentum"), ("sgd", "SGD"), ("adafactor", "Adafactor")):
        if own.split("-")[0] != name.split("-")[0] and name in facts.get("optimizers", ()):
            found.append(Setting(title, "changed", other, (("optimizer", name),), how=title))
    if "adamw8bit" in facts.get("optimizers", ()) and own.startswith("adam"):
        why = "its state is kept in 8 bits"
        found.append(Setting("8-bit AdamW", "changed", why, (("optimizer", "adamw8bit"),), how="bitsandbytes"))
    return found


def rank(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What fits first; among that what keeps the result, then what is fast, then what is small."""

    def key(row: dict[str, Any]) -> tuple[Any, ...]:
        speed = row.get("speed")
        return (not row["fits"], KEEPS[row["keeps"]], -(speed if speed is not None else 0.0), row["peak"]["high"])

    return sorted(rows, key=key)


def buys_most(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The single change that takes most off the peak."""
    plain = next((row for row in rows if row["name"] == "as it is"), None)
    singles = [row for row in rows if row["single"] and row is not plain]
    if plain is None or not singles:
        return None
    best = min(singles, key=lambda row: row["peak"]["likely"])
    saved = plain["peak"]["likely"] - best["peak"]["likely"]
    return {"name": best["name"], "saves": saved, "keeps": best["keeps"]} if saved > 0 else None
