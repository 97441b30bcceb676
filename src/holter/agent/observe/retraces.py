"""What was traced or compiled again and again, by the line that defines it: how often, how long, and what had changed.

Shared by TensorFlow's and PyTorch's adapters. A function that is made anew in a loop is still one line.
"""

from time import monotonic

from ..core.user_frame import place_of

_PLACES = 200
_FREELY = 10  # traces of one function that are told as they come
_PAUSE = 1.0
_EVER = 1e18
_LINES = 1500  # of all that an agent may say
_EXAMPLES = 4
_CHANGES = 8

SCALAR, SHAPE, CLOSURE = "scalar", "shape", "closure"


class _Entry:
    __slots__ = ("call", "changes", "count", "draws", "fields", "functions", "graph", "limit", "maker", "owners",
                 "reported", "reported_at", "seconds", "use", "usual")  # fmt: skip

    def __init__(self, fields):
        self.fields = fields
        self.count = self.functions = self.owners = self.reported = 0
        self.seconds = self.reported_at = 0.0
        self.changes = {}  # (kind, argument) -> [how often, examples]
        self.call = self.maker = self.use = None
        self.limit = 0
        self.usual, self.draws = 0.0, False  # of what XLA compiles: a call that needs none; it draws its own data
        self.graph = None  # operations, products and variables of the last one


class Retraces:
    """The ledger; it keeps numbers and short texts, nothing of the user's."""

    def __init__(self, agent):
        self.say = agent.say
        self.beat = agent.beat
        agent.exit_hooks.last_acts.insert(0, agent.guard(lambda: self.report(_EVER)))
        self.places = {}
        self.lines = 0

    def entry(self, what, name, file, line, jit=False):
        """The entry of one line, or None when there are more lines than can be listed."""
        key = (what, name, file, line, jit)
        found = self.places.get(key)
        if found is None and len(self.places) < _PLACES:
            fields = dict(place_of(file, _def_line(file, line), name), what=what, name=name, line=line)
            fields["def_line"] = _def_line(file, line)
            if jit:
                fields["jit"] = True
            found = self.places[key] = _Entry(fields)
        return found

    def note(self, entry, seconds, changed=None, call=None, maker=None, new_function=False, new_owner=False):
        """One more trace: `changed` is (kind, argument, example) against an earlier trace, where there was one."""
        entry.count += 1
        entry.seconds += seconds
        entry.functions += new_function
        entry.owners += new_owner
        entry.call = call or entry.call
        entry.maker = maker or entry.maker
        self._count(entry, changed)
        self._report(entry, monotonic())

    def given_up(self, entry, changed=None):
        """The compiler has reached its limit for this one, and runs it uncompiled from here on."""
        entry.limit = entry.count
        self._count(entry, changed)
        entry.reported_at = 0.0
        self._report(entry, monotonic())

    def _count(self, entry, changed):
        if changed is None:
            return
        kind, argument, example = changed
        known = entry.changes.get((kind, argument))
        if known is None:
            if len(entry.changes) >= _CHANGES:
                return
            entry.changes[kind, argument] = [0, []]
            known = entry.changes[kind, argument]
        known[0] += 1
        if example and len(known[1]) < _EXAMPLES and example not in known[1]:
            known[1].append(example)

    def report(self, now=None):
        """Say what has changed since it was last said; called about once a second."""
        now = now or monotonic()
        for entry in self.places.values():
            if entry.count != entry.reported:
                self._report(entry, now)

    def _report(self, entry, now):
        if (entry.count > _FREELY and now - entry.reported_at < _PAUSE) or self.lines >= _LINES:
            return
        self.lines += 1
        entry.reported, entry.reported_at = entry.count, now
        more: dict = {
            "changes": [
                {"kind": kind, "argument": argument, "count": n, "examples": examples}
                for (kind, argument), (n, examples) in entry.changes.items()
            ]
        }
        for key, site in (("call", entry.call), ("maker", entry.maker), ("use", entry.use)):
            if site is not None:
                more[key] = place_of(*site)
        if entry.usual:
            more["usual"] = round(entry.usual, 6)
        if entry.draws:
            more["draws"] = True
        if entry.limit:
            more["limit"] = entry.limit
        if entry.graph:
            more["graph"], more["products"], more["variables"] = entry.graph
        self.say(
            "trace",
            count=entry.count,
            functions=entry.functions,
            owners=entry.owners,
            seconds=round(entry.seconds, 4),
            step=self.beat.steps,
            **dict(entry.fields, **more),
        )


def _def_line(file, line):
    """The line of the `def` itself: a decorated function's code begins with its decorators."""
    import linecache

    if linecache.getline(file, line).lstrip().startswith("@"):
        for number in range(line + 1, line + 20):
            if linecache.getline(file, number).lstrip().startswith(("def ", "async def ")):
                return number
    return line


def shortened(value):
    """A Python value as a short text, for an example; only plain ones are shown."""
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)[:40]
    if isinstance(value, str):
        return repr(value if len(value) <= 24 else value[:24] + "…")
    return type(value).__name__
