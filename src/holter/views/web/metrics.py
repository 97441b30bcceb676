"""The runs in the text format that Prometheus and its kin collect: how many there are, and the numbers of those on."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from holter.views.plain import clean

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def metrics_text(rows: list[dict[str, Any]], gauges: dict[str, dict[str, float]], meanings: dict[str, str]) -> str:
    """All rows as counts by how they ended, and each gauge of each run that is on."""
    lines = ["# HELP holter_runs Runs by how they are or ended.", "# TYPE holter_runs gauge"]
    kinds = Counter(str(row["kind"]) for row in rows)
    lines += [f'holter_runs{{kind="{_escaped(kind)}"}} {number}' for kind, number in sorted(kinds.items())]
    names = {row["id"]: str(row.get("name") or "") for row in rows}
    return "\n".join(lines) + "\n" + gauges_text(gauges, names, meanings)


def gauges_text(
    gauges: Mapping[str, Mapping[str, float]], names: Mapping[str, str], meanings: Mapping[str, str]
) -> str:
    """Each gauge of each run, with the run's id and name as labels."""
    lines = []
    for gauge, meaning in sorted(meanings.items()):
        known = [(run, found[gauge]) for run, found in sorted(gauges.items()) if gauge in found]
        if known:
            lines += [f"# HELP holter_run_{gauge} {meaning}", f"# TYPE holter_run_{gauge} gauge"]
        for run, value in known:
            labels = f'run="{_escaped(run)}",name="{_escaped(names.get(run, ""))}"'
            lines.append(f"holter_run_{gauge}{{{labels}}} {_number(value)}")
    return "".join(f"{line}\n" for line in lines)


def _escaped(words: str) -> str:
    return clean(words).replace("\\", "\\\\").replace('"', '\\"')


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return f"{value:.10g}"
