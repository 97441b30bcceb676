"""A run in words beside its charts: what was found, what was done, where it is, and what it last wrote."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from holter.units import count, duration
from holter.views.plain import clean, kept

_MOST_EVIDENCE, _MOST_FRAMES, _MOST_EVENTS, _MOST_OUTPUT = 6, 8, 6, 40
_TONES = {"good": "green", "slow": "yellow", "bad": "bold red", "wait": "cyan"}
_SIGNS = {"good": "✓", "slow": "!", "bad": "✗", "wait": "●"}


def tone_of(document: dict[str, Any]) -> tuple[str, str]:
    """The sign of how a run is, and its style."""
    if document["run"]["live"]:
        bad = any(one["grade"] != "hypothesis" for one in document["findings"])
        return ("●", "bold red") if bad else ("●", "green")
    return _SIGNS.get(document["tone"], "·"), _TONES.get(document["tone"], "")


def head_of(document: dict[str, Any], width: int) -> Text:
    """The run's name, its state, and its figures; no figure is torn in two."""
    run, now = document["run"], document["now"]
    sign, style = tone_of(document)
    names = " ".join(word for word in (clean(run["id"] or ""), clean(run["name"] or "")) if word)
    kind = document["ending"]["kind"]
    line = Text.assemble((sign, style), " ", (names, "bold"), "  ", (kind, style), "  ", (_command(run), "dim"))
    line.truncate(width, overflow="ellipsis")
    lines = [line, Text()]
    figures = [_figure(figure) for figure in document["figures"]]
    if run["live"] and now["phase"]:
        long = (f" for {now['since']}", "bold red") if now["since"] else ("", "")
        figures.append(Text.assemble(("in ", "dim"), (clean(now["phase"]), "bold"), long))
    for figure in figures:
        if lines[-1].cell_len and lines[-1].cell_len + 2 + figure.cell_len > width:
            lines.append(Text())
        lines[-1].append("  " if lines[-1].cell_len else "").append_text(figure)
    return Text("\n").join(lines)


def _figure(figure: dict[str, Any]) -> Text:
    of = clean(figure["of"])
    part = f" ({of})" if figure["key"] in ("step", "loss") else f" of {of}"
    return Text.assemble(
        (f"{clean(figure['label'])} ", "dim"), (clean(figure["value"]), "bold"), (part if of else "", "dim")
    )


def words_of(document: dict[str, Any]) -> Group:
    """The whole of the pane: findings first, then acts, place, events, output."""
    made: list[Text] = []
    if not document["run"]["live"]:
        sign, style = tone_of(document)
        made.append(Text.assemble((f"{sign} ", style), (clean(document["ending"]["claim"]), "bold")))
    if document["now"]["alarm"]:
        # A forecast counts from when it was made.
        times = [one["time"] for one in document["events"] if one["text"] == document["now"]["alarm"]]
        when = f"{duration(times[-1])} in: " if times and times[-1] is not None and times[-1] >= 0 else ""
        made.append(Text(f"! {when}{clean(document['now']['alarm'])}", "bold yellow"))
    for n, finding in enumerate(document["findings"]):
        made += _finding(finding, in_full=n < 3)
    if not document["findings"]:
        state = "found so far" if document["run"]["live"] else "found"
        made.append(Text(f"Nothing wrong {state}.", "green" if document["healthy"] else ""))
    made += _acts(document["interventions"])
    made += _place(document)
    made += _events(document["events"])
    lost = [Text(clean(one)) for one in document["damage"]]
    made += [_heading("Could not be read"), *lost] if lost else []
    output = [Text(clean(line), "dim") for line in document["output"][-_MOST_OUTPUT:]]
    made += [_heading("The end of its output"), *output] if output else []
    return Group(*(_hanging(line) for line in made))


def _hanging(line: Text) -> Padding:
    """What is set in stays set in where it is folded."""
    inset = len(line.plain) - len(line.plain.lstrip(" "))
    return Padding(line[inset:], (0, 0, 0, inset))


def _command(run: dict[str, Any]) -> str:
    words = [clean(word) for word in run["command"]]
    return " ".join(word.rpartition("/")[2] or word if word.startswith("/") else word for word in words)


def _heading(words: str) -> Text:
    return Text(f"\n{words}", "bold underline")


def _finding(finding: dict[str, Any], *, in_full: bool) -> list[Text]:
    doubt = "Perhaps: " if finding["grade"] == "hypothesis" else ""
    style = "yellow" if finding["grade"] == "hypothesis" else "red"
    claim = clean(finding["claim"])
    made = [
        Text.assemble(("▌ ", style), f"{doubt}{claim}", (f" [{clean(finding['cause'])}, {finding['grade']}]", "dim"))
    ]
    if not in_full:
        return made
    for one in finding["evidence"][:_MOST_EVIDENCE]:
        at = f" ({duration(one['time'])} in)" if one["time"] is not None and one["time"] >= 0 else ""
        made.append(Text.assemble("  ", (f"{clean(one['what'])}: ", "dim"), clean(one["value"]), (at, "dim")))
    line = finding["culprit"]
    if line:
        place = f"{clean(line['file']).rpartition('/')[2]}:{line['line']}"
        made.append(Text.assemble("  ", (place, "bold cyan"), f"  {clean(line['code'])}"))
    for cure in finding["cures"][:2]:
        keeps = kept(cure["keeps"], cure["how"])
        keeps_text = f" ({keeps})" if keeps else ""
        made.append(Text.assemble("  ", ("cure ", "bold green"), clean(cure["title"]), (keeps_text, "dim")))
        made += [Text(f"    {clean(how)}", _diff_style(how)) for how in cure["how"].splitlines()]
    return made


def _diff_style(line: str) -> str:
    return "green" if line.startswith("+") else "red" if line.startswith("-") else ""


def _acts(acts: list[dict[str, Any]]) -> list[Text]:
    if not acts:
        return []
    made = [_heading("What was done to keep it going")]
    for act in acts[-8:]:
        at = f"step {count(act['step'])}: " if act.get("step") else ""
        act_text = clean(act.get("text") or act.get("act") or "") if act.get("done") else clean(act.get("act") or "")
        because = f": {clean(act['because'])}" if act.get("because") else ""
        sign, style = ("+", "green") if act.get("done") else ("·", "dim")
        made.append(Text(f"{sign} {at}{act_text}{because}", style))
    return made


def _place(document: dict[str, Any]) -> list[Text]:
    """The phase, and the last stack that was taken: where it is or was stuck, slow or full."""
    now, made = document["now"], []
    if now["phase"]:
        since = f", for {now['since']}" if now["since"] else ""
        made.append(Text.assemble(("phase ", "dim"), f"{clean(now['phase'])}{since}"))
    for stack in document["stacks"][:1]:
        when = f"{duration(stack['time'])} in" if stack["time"] is not None and stack["time"] >= 0 else ""
        made.append(Text.assemble(("stack ", "dim"), f"pid {stack['pid']}, {when} ({clean(stack['reason'])})"))
        for thread in stack["threads"][:2]:
            made.append(Text(f"  {clean(thread['name'])}", "dim"))
            for frame in thread["frames"][:_MOST_FRAMES]:
                file = clean(frame["file"]).rpartition("/")[2]
                style = "bold" if frame["user"] else "dim"
                made.append(Text(f"    {file}:{frame['line']} {clean(frame['function'])}", style))
    return [_heading("Where it is" if document["run"]["live"] else "Where it was"), *made] if made else []


def _events(events: list[dict[str, Any]]) -> list[Text]:
    if not events:
        return []
    made = [_heading("What was told")]
    for event in events[-_MOST_EVENTS:]:
        at = duration(event["time"]) if event["time"] is not None and event["time"] >= 0 else ""
        made.append(Text.assemble((f"{at:>9}  ", "dim"), clean(event["text"])))
    return made


def row_of(row: dict[str, Any]) -> list[Text]:
    """A run of the list: its id, name, state, start, length, step, memory, and why."""
    style = _TONES.get(row["tone"], "")
    started = row.get("started")
    known = isinstance(started, (int, float)) and 0 < started < 4e9
    began = time.strftime("%m-%d %H:%M", time.localtime(started)) if known else ""
    sign = _SIGNS.get(row["tone"], "·")
    cells = (row["id"], row.get("name", ""), began, row.get("lasted", ""), row.get("step", ""), row.get("memory", ""))
    why = clean(row.get("why") or row.get("words") or "")
    about = "yellow" if row["tone"] == "wait" and row.get("why") else "" if row.get("why") else "dim"
    return [
        Text(sign, style),
        *(Text(clean(cell)) for cell in cells[:2]),
        Text(clean(row["kind"]), style),
        Text(began, "dim"),
        *(Text(clean(cell), justify="right") for cell in cells[3:]),
        Text(why, about),
    ]
