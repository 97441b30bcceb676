"""What a record holds in words: the stacks, the end of the output, and where the run was made."""

from __future__ import annotations

import re
from typing import Any

from holter.diagnosis.core.examined import Examined
from holter.diagnosis.ending.tracebacks import plain
from holter.figures.clock import Clock
from holter.figures.shape import short
from holter.record.events.agent import Adapter, AgentHello
from holter.record.events.recorder import Stacks
from holter.record.events.timeline import Cgroup, Nvidia
from holter.units import size

# Why a stack was taken, the most telling reason first.
_REASONS = ("fatal", "stall", "attach", "memory", "end", "slow")
_MOST_STACKS, _MOST_THREADS, _MOST_FRAMES = 6, 12, 40
_MOST_OUTPUT = 100_000
_MOST_FACTS = 60
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def stacks_json(record: Examined, clock: Clock) -> list[dict[str, Any]]:
    """The last stacks of each process, the most telling first."""
    latest: dict[tuple[int | None, str], Stacks] = {}
    for event in record.of(Stacks):
        if event.threads:
            latest[event.pid, event.reason] = event
    order = {reason: n for n, reason in enumerate(_REASONS)}
    chosen = sorted(latest.values(), key=lambda event: (order.get(event.reason, 9), -event.m))
    return [_stack(event, clock) for event in chosen[:_MOST_STACKS]]


def _stack(event: Stacks, clock: Clock) -> dict[str, Any]:
    time = (event.at or event.m) - clock.start
    return {
        "pid": event.pid,
        "role": event.role,
        "reason": event.reason,
        "time": short(time),
        "step": clock.step_at(time),
        "threads": [
            {
                "name": thread.name,
                "frames": [
                    {
                        "file": frame.file,
                        "line": frame.line,
                        "function": frame.function,
                        "user": bool(frame.user),
                    }
                    for frame in thread.frames[:_MOST_FRAMES]
                ],
            }
            for thread in event.threads[:_MOST_THREADS]
        ],
    }


def output_lines(output: str, most: int = 400) -> list[str]:
    """The end of the output as it stood on the screen: no colours, and of a progress bar only its last state."""
    lines = plain(output[-_MOST_OUTPUT:]).replace("\r\n", "\n").split("\n")
    shown = [_CONTROLS.sub("�", line.rstrip("\r").rpartition("\r")[2])[:2000] for line in lines]
    while shown and not shown[-1].strip():
        shown.pop()
    return shown[-most:]


def environment_of(record: Examined) -> list[list[str]]:
    """The facts that a maintainer asks for, as pairs of name and value; what is not known is left out."""
    run = record.facts
    pythons = [event.python for event in record.of(AgentHello) if event.python]
    frameworks = {event.framework: event.version for event in record.of(Adapter) if event.state != "declined"}
    devices = {
        f"{row.name} ({size(row.total or 0)})": None
        for _, reading in record.readings(Nvidia)[-1:]
        for row in reading.rows
    }
    limits = [reading.limit for _, reading in record.readings(Cgroup)]
    cpus, memory = run.cpus, run.memory_total
    group = next((limit for limit in reversed(limits) if limit), None)
    facts = [
        ("Holter", run.holter),
        ("Python", pythons[-1] if pythons else ""),
        *sorted(frameworks.items()),
        ("platform", run.platform),
        ("CPUs", str(cpus) if cpus else ""),
        ("memory", size(memory) if memory else ""),
        ("container limit", size(group) if group else ""),
        ("devices", ", ".join(devices)),
        *sorted(run.variables.items()),
    ]
    return [[name[:100], value[:300]] for name, value in facts if name and value][:_MOST_FACTS]
