"""All kinds of lines by the word that stands under `k`."""

from __future__ import annotations

from typing import Any

from holter.record.events.agent import AGENT_EVENTS
from holter.record.events.looks import LOOKS
from holter.record.events.ranks import RANK_EVENTS
from holter.record.events.recorder import KEEPER_EVENTS, RECORDER_EVENTS
from holter.record.events.schema import Event, Line
from holter.record.events.timeline import TIMELINE

EVENTS: tuple[type[Event], ...] = (*AGENT_EVENTS, *LOOKS, *RANK_EVENTS, *RECORDER_EVENTS, *KEEPER_EVENTS)
_BY_KIND: dict[Any, type[Line]] = {kind.KIND: kind for kind in (*EVENTS, *TIMELINE)}


def typed(lines: list[dict[str, Any]]) -> list[Line]:
    """Lines as the schema has them; those of a kind that it does not know are passed over."""
    known = ((_BY_KIND.get(line.get("k")), line) for line in lines)
    return [kind.parse(line) for kind, line in known if kind is not None]
