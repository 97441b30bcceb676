"""What grows in this process: a census of the user's variables, taken only when memory has grown since the last one.

A run whose memory stays where it is pays one reading a second, a few more at first, and nothing else. The censuses
together may cost about 0.3 % of the time since the first step; the first is allowed 50 ms. Names, lengths and
estimates are kept between two of them, never the things themselves.

A forked data worker is looked at sooner: it may copy a dataset page by page and be dead within seconds. What it has
copied is its private memory less what its size has grown by since the fork.
"""

import gc
import os
import sys
from contextlib import contextmanager
from time import monotonic
from time import thread_time as clock  # what others take of the core is not our cost

from ..core.guard import of_a_handler
from ..core.heartbeat import look_pause
from ..core.user_frame import is_user_file
from .own_memory import YOUNG_PAUSE, PrivatePages, own_memory
from .walk import Spot, Walk, user_modules

_PAUSE = 0.9  # of the pause between the looks, so that none is missed
_FIRST = 0.05
_SHARE = 0.003
_MAX_WALK_S = 0.05
_NODES = 30_000
_GROWN = 6 << 20  # less growth than this is nobody's leak
_MAX_CENSUSES = 60
_KNOWN = 1000  # names that are remembered from census to census
_ROWS = 10
_EARLY_FORKS = 64  # workers that are made anew with each epoch are looked at like this in the first epochs only
_YOUNG = 5.0  # seconds in which a forked worker looks more often
_DATASET_LOOK = 0.005
_DATASET_MIN_BYTES = 16 << 20  # bytes in a dataset
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class RetainedGrowth:
    """Compares one census with the first, and says what has grown since."""

    def __init__(self, agent):
        self.agent = agent
        self.kinds = []  # those who know the frameworks' own things
        self.on_device = None  # gives the bytes that a framework has allocated on its devices
        self.reset()

    def reset(self):
        """Begin anew, also after a fork in the child."""
        self.due = 0.0
        self.base: tuple = ()  # moment, step, memory and device memory when the first step was done
        self.first = None  # the same of the first census
        self.highest = [0, 0]  # memory and device memory at the last census
        self.inherited = 0  # resident bytes at the fork, in a forked worker
        self.early = False  # one of the first that were forked
        self.private = None  # the pages of a forked worker's own
        self.spent = 0.0
        self.cost = 0.0  # of the last census
        self.looks = 0
        self.known = {}  # name -> (step, length, bytes, nodes) when it was first seen

    def born_of_fork(self, forks):
        """In a forked child, so many forks into the run: what it holds now it shares with its parent."""
        self.reset()
        self.inherited = own_memory()
        self.early = forks <= _EARLY_FORKS

    def begin(self, dataset, report):
        """In a worker, before its first batch: what lies in the dataset now is no growth of its own.

        One of the first that were forked says what it is: a fast death leaves nobody to ask.
        """
        try:
            self._begin(monotonic(), 0, [own_memory(), 0])
            if self.inherited:
                self._look_at_dataset(dataset, report and self.early)
        except Exception as error:
            if of_a_handler(error):
                raise
            self.agent.guard.caught("retained", error)

    def _look_at_dataset(self, dataset, report):
        begun = clock()
        walk = Walk(self.kinds, _NODES, begun + _DATASET_LOOK)
        with self._undisturbed():
            walk.push(dataset, Spot("dataset", "dataset", "local", "", ""))
            walk.run()
            rows = []
            for number, note in walk.notes.items():
                size = note.estimate.host + note.estimate.device
                if len(self.known) < _KNOWN:
                    self.known[self._key(number, note)] = (0, note.length, size, note.nodes)
                if size >= _DATASET_MIN_BYTES:
                    rows.append(self._row(note))
            walk.queue.clear()
        if rows and report:
            rows = sorted(rows, key=lambda row: -row["bytes"])[:_ROWS]
            rss = self.base[2]
            self.agent.say(
                "held", step=0, step_before=0, rss=rss, rss_before=rss, census=0, list=rows, looked_at=walk.visited,
                all=walk.complete, took=round(clock() - begun, 5), role=self.agent.role,
            )  # fmt: skip

    def tick(self, step, dataset=None):
        """Called between two steps or batches: about once a second it looks whether there is anything to look at."""
        now = monotonic()
        if now < self.due:
            return
        since = now - self.base[0] if self.base else 0.0
        young = self.early and self.base and since < _YOUNG
        self.due = now + (YOUNG_PAUSE if young else _PAUSE * look_pause(since))
        try:
            self._look(now, step, dataset)
        except Exception as error:
            if of_a_handler(error):
                raise
            self.agent.guard.caught("retained", error)

    def _look(self, now, step, dataset):
        held = [own_memory(), self.on_device() if self.on_device is not None else 0]
        if not self.base:
            self._begin(now, step, held)
            return
        grown = self._grown(held)
        if dataset is not None and self.private is not None and self.private.grew(now, held[0]):
            grown = True
        if grown and self._affordable(now) and self.looks < _MAX_CENSUSES:
            self.census(now, step, held, dataset)

    def _begin(self, now, step, held):
        if self.agent.role != "worker":
            self.inherited = 0
        self.highest = held
        # Of a worker's size all that came after the fork is its own, and nothing of what it had then.
        self.base = (now, step, self.inherited or held[0], held[1])
        if self.inherited:
            self.private = PrivatePages(now, self.early)

    def _grown(self, held):
        min_share = 0.015 if self.looks < 4 else 0.04
        pairs = zip(held, self.highest)  # noqa: B905 - Python 3.9 has no `strict`
        return any(now - then >= max(_GROWN, min_share * then) for now, then in pairs)

    def _affordable(self, now):
        """Whether another census as long as the last would still be within the share of the time."""
        return not self.looks or self.spent + self.cost <= _FIRST + _SHARE * (now - self.base[0])

    def census(self, now, step, held, dataset=None):
        """Walk, compare, and say what has grown."""
        begun = clock()
        allowed = _FIRST + _SHARE * (now - self.base[0]) - self.spent
        walk = Walk(self.kinds, _NODES, begun + min(_MAX_WALK_S, max(0.01, allowed)))
        try:
            with self._undisturbed():
                self._roots(walk, dataset)
                walk.run()
                rows = self._compare(walk, step, held)
        finally:
            walk.queue.clear()
            self.looks += 1
            self.highest = [max(held[0], self.highest[0]), max(held[1], self.highest[1])]
            self.cost = clock() - begun
            self.spent += self.cost
        before = self.first or self.base
        fields = {
            "step": step, "step_before": before[1], "rss": held[0], "rss_before": before[2], "census": self.looks,
            "list": rows, "looked_at": walk.visited, "all": walk.complete, "took": round(self.cost, 5),
            "role": self.agent.role,
        }  # fmt: skip
        if held[1] or before[3]:
            fields.update(allocated=held[1], allocated_before=before[3])
        if self.agent.beat.words[10]:  # W_BACKWARDS: within a step
            fields["backwards"] = self.agent.beat.words[10]
        if self.private is not None:
            fields.update(private=self.private.report(), private_before=0)
        if self.first is None:
            self.first = (now, step, *held)
        self.agent.say("held", **fields)

    @contextmanager
    def _undisturbed(self):
        quiet = [kind.quiet() for kind in self.kinds]
        # Our many small objects would set off collections of the whole heap, which take longer than all of this.
        collects = gc.isenabled()
        gc.disable()
        try:
            for one in quiet:
                one.__enter__()
            yield
        finally:
            if collects:
                gc.enable()
            for one in reversed(quiet):
                one.__exit__(None, None, None)

    def _roots(self, walk, dataset):
        if dataset is not None:
            try:
                walk.bound = len(dataset) if hasattr(type(dataset), "__getitem__") else 0
            except Exception:
                walk.bound = 0
            walk.push(dataset, Spot("dataset", "dataset", "local", "", ""))
        # The script's own names come first: what is reached by a library's is followed less far, and not a second time.
        libraries = []
        frame = sys._getframe(1)
        while frame is not None:
            code = frame.f_code
            if code.co_name != "<module>" and not code.co_filename.startswith(_OURS):
                if is_user_file(code.co_filename):
                    walk.frame(frame)
                else:
                    libraries.append(frame)
            frame = frame.f_back
        for held, file in user_modules():
            for name, value in list(held.items()):
                if name.__class__ is str and not name.startswith("__"):
                    walk.push(value, Spot(name, name, "global", "", file))
        for frame in libraries:
            walk.frame(frame)

    def _compare(self, walk, step, held):
        """The rows of what has grown most; at the first census, of what holds most."""
        rows = []
        for number, note in walk.notes.items():
            spot, estimate = note.spot, note.estimate
            size = estimate.host + estimate.device
            key = self._key(number, note)
            before = self.known.get(key)
            if before is None:
                if size < 65536 and note.length < 64 and not note.nodes:
                    continue
                if len(self.known) < _KNOWN:
                    # A first census knows no earlier; later ones know that this was not there.
                    self.known[key] = (step, note.length, size, note.nodes) if self.first is None else (step, 0, 0, 0)
            row = self._row(note)
            grown = size
            if before is not None:
                row.update(length_before=before[1], bytes_before=before[2])
                grown = size - before[2]
            elif self.first is not None:
                row.update(length_before=0, bytes_before=0)
            for name, value in (
                ("line", spot.line), ("device", estimate.device), ("bound", note.bound), ("keys", note.keys),
                ("nodes", note.nodes or estimate.nodes), ("also", note.also), ("shape", estimate.shape),
            ):  # fmt: skip
                if value or (name == "shape" and value is not None):
                    row[name] = value
            if note.nodes and before is not None:
                row["nodes_before"] = before[3]
            if estimate.graph:
                row["graph"] = True
                if estimate.saved is not None:
                    row["saved"] = estimate.saved
            rows.append((grown, row, before))
        return self._largest(rows, held)

    @staticmethod
    def _key(number, note):
        # A container is the same one under whatever name it was reached; an array is made anew as it grows.
        spot = note.spot
        return (number, spot.variable) if note.holds else (spot.name, spot.scope, spot.owner, spot.file)

    @staticmethod
    def _row(note):
        spot, estimate = note.spot, note.estimate
        return {
            "name": spot.name, "variable": spot.variable, "scope": spot.scope, "owner": spot.owner,
            "file": os.path.abspath(spot.file) if spot.file and is_user_file(spot.file) else "",
            "type": note.type, "length": note.length, "bytes": estimate.host, "kind": estimate.kind,
            "element": estimate.element,
        }  # fmt: skip

    def _largest(self, rows, held):
        least = max(65536, 0.01 * max(held[0] - self.base[2], held[1] - self.base[3]))
        rows.sort(key=lambda entry: -entry[0])
        found = [row for grown, row, _before in rows if grown >= least][:_ROWS]
        for _grown, row, before in rows:
            # A graph may hold far more than what of it can be weighed.
            if row.get("graph") and row not in found and len(found) < _ROWS + 6:
                length, nodes = (before[1], before[3]) if before is not None else (0, 0)
                if row["length"] > max(8, length) or row.get("nodes", 0) > max(64, 1.2 * nodes):
                    found.append(row)
        return found
