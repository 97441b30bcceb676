"""Ranks that wait for each other: told before a silence would be long enough to be called a hang.

Who came to `init_process_group` and who did not is told after 20 s, and is a stall after a minute. Ranks that wait in
collectives which do not fit together can't go on whatever happens: then no silence has to be longer than any before it.
A rank that waits for one that is at work by itself is judged by what that one does.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holter.facts.collective import signature

TOLD_AFTER_S = 20.0
STALL_AFTER_S = 60.0
_BUSY_CORES = 0.15
_SURE_AFTER_S = 6.0  # of silence of all ranks, in calls that do not fit together
_LAUNCHERS = ("torch.distributed.run", "torch/distributed/run.py", "torchrun")


@dataclass
class _Waiting:
    rank: int | None
    world: int
    since: float
    line: dict[str, Any]
    told: bool = False


class RankWaits:
    """What the agents of a job's ranks have said of where they are."""

    def __init__(self) -> None:
        self.ranks: dict[int, int] = {}  # of each process, its rank
        self._coming: dict[int, _Waiting] = {}
        self._expected: dict[int, float] = {}  # ranks that have not come to the others, since when
        self._looks: dict[int, dict[str, Any]] = {}
        self._launchers: dict[int, tuple[float, float]] = {}  # since when they have no child, and when to ask next
        self._peers: list[dict[str, Any]] = []  # ranks on other machines

    def hear(self, events: list[dict[str, Any]]) -> None:
        """Take in what the agents have said since the last tick."""
        for event in events:
            pid = event.get("pid")
            if not isinstance(pid, int):
                continue
            if isinstance(event.get("rank"), int) and event.get("role") != "worker":
                self.ranks[pid] = event["rank"]
                if event["k"] == "guest" and (event.get("world") or 0) > 1:
                    self._expected.setdefault(pid, event["m"])
            if event["k"] in ("rank-came", "rank-joined"):
                self._expected[pid] = float("inf")
            if event["k"] == "rank-came":
                self._coming[pid] = _Waiting(event.get("rank"), event.get("world") or 0, event["m"], event)
            elif event["k"] == "rank-joined":
                self._coming.pop(pid, None)
            elif event["k"] == "collectives":
                self._looks[pid] = event
            elif event["k"] == "peers":
                self._peers = [row for row in event.get("list") or () if isinstance(row, dict) and row.get("stands")]

    def missing(self, now: float, present: set[int]) -> tuple[str, list[tuple[int, float]]]:
        """Say who has not come, once; and give the processes that have waited so long that it is a stall."""
        for pid in [pid for pid in self._coming if pid not in present]:
            del self._coming[pid]
        late = [(pid, one) for pid, one in self._coming.items() if now - one.since >= TOLD_AFTER_S]
        said = ""
        if late and not any(one.told for _, one in late):
            said = self._words(late[0][1], now)
            for one in self._coming.values():
                one.told = True
        stalled = [(pid, one.since) for pid, one in late if now - one.since >= STALL_AFTER_S]
        return said, stalled

    def not_come(self, now: float) -> list[int]:
        """Give the ranks that are here and have not come for long, once: the others may wait for them elsewhere."""
        found = [pid for pid, since in self._expected.items() if now - since >= TOLD_AFTER_S]
        self._expected.update(dict.fromkeys(found, float("inf")))
        return found

    def _words(self, first: _Waiting, now: float) -> str:
        came = sorted(one.rank for one in self._coming.values() if one.rank is not None)
        absent = sorted(set(range(first.world)) - set(came))
        here = [rank for rank in absent if rank in self.ranks.values()]
        at = f"{Path(first.line.get('file') or '').name}:{first.line.get('line')}"
        who = _numbers(absent) if absent else "others"
        where = "" if len(here) == len(absent) else "; not all of them run on this machine"
        return (
            f"{_numbers(came)} of {first.world} {'waits' if len(came) == 1 else 'wait'} in init_process_group at {at} "
            f"for {now - first.since:.0f} s: {who} {'has' if len(absent) == 1 else 'have'} not come{where}"
        )

    def launchers_without_ranks(self, commands: dict[int, str], parents: dict[int, int], now: float) -> list[int]:
        """Give the launchers that have started no rank for so long that somebody should ask them why."""
        found = []
        for pid, command in commands.items():
            if not any(word in command for word in _LAUNCHERS) or pid in parents.values():
                self._launchers.pop(pid, None)
                continue
            since, next_at = self._launchers.setdefault(pid, (now, now + TOLD_AFTER_S))
            if now >= next_at:
                self._launchers[pid] = since, now + (now - since)
                found.append(pid)
        return found

    def never_meet(self, now: float) -> list[tuple[int, float]]:
        """Give all ranks, if they are all here and wait in collectives that do not fit together."""
        looks = {pid: look for pid, look in self._looks.items() if pid in self.ranks}
        world = max((look.get("world") or 0 for look in looks.values()), default=0)
        if world < 2 or len(looks) < world:
            return []
        opened = [_first_open(look) for look in looks.values()]
        if any(one is None for one in opened) or len(set(opened)) < 2:
            return []
        numbers = {one[:2] for one in opened if one is not None}
        since = [float(look.get("since") or now) for look in looks.values()]
        if len(numbers) > 1 and len({group for group, _ in numbers}) > 1:
            return []  # in different groups each may yet be met
        if now - max(since) < _SURE_AFTER_S:
            return []
        return list(zip(looks, since, strict=True))

    def who_is_missing(self, pid: int) -> str:
        """Say which rank is not in the collective that this one waits in, as the end of a sentence."""
        mine = _first_open(self._looks.get(pid, {}))
        if mine is None:
            return ""
        looks = {self.ranks[one]: look for one, look in self._looks.items() if one in self.ranks}
        for look in (*looks.values(), *self._peers):
            if look.get("op") or _first_open(look) is not None or not look.get("file"):
                continue
            on = f" on {look['host']}" if look.get("host") else ""
            at = f"{Path(str(look['file'])).name}:{look.get('line')}"
            return f"; rank {look.get('rank')}{on} never came to {mine[2]} #{mine[1]}: it stands at {at}"
        return ""

    def elsewhere(self, pid: int) -> tuple[list[str], bool]:
        """Say what the ranks of other machines are at that this one waits for, and whether one of them computes.

        Of those that nobody has heard of nothing is known: they are taken to be at something that takes long.
        """
        mine = self._looks.get(pid)
        if mine is None or _first_open(mine) is None:
            return [], False
        away = [row for row in self._peers if not row.get("op")]
        words = [word for row in away for word in (*str(row.get("functions", "")).split(), str(row.get("phase", "")))]
        known = len(set(self.ranks.values())) + len(self._peers)
        unknown = ["validation"] if known < (mine.get("world") or 0) else []
        return words + unknown, any((row.get("cpu") or 0) >= _BUSY_CORES for row in away)

    def moved(self, pid: int, begun: int) -> None:
        """Forget where a rank stood that has begun another collective since."""
        look = self._looks.get(pid)
        if look is not None and begun > (look.get("begun") or 0):
            del self._looks[pid]

    def busy_peers(self, pid: int) -> list[int]:
        """Give the ranks in no collective that a rank which stands in one waits for."""
        mine = self._looks.get(pid)
        if mine is None or _first_open(mine) is None:
            return []
        return [one for one in self.ranks if one != pid and _first_open(self._looks.get(one, {})) is None]


def user_functions(threads: list[dict[str, Any]]) -> list[str]:
    """The user's functions that the main thread is in."""
    return [frame["function"] for one in threads if one.get("main") for frame in one["frames"] if frame["user"]]


def _first_open(look: dict[str, Any]) -> tuple[Any, ...] | None:
    for row in look.get("list") or ():
        if row.get("done") is False:
            op, sizes = signature(str(row.get("op")), str(row.get("sizes")))
            return row.get("group"), row.get("number"), op, sizes
    return None


def _numbers(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:6])) + (" and more" if len(ranks) > 6 else "")
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"
