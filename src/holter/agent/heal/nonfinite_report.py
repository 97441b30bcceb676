"""The words for what was done about an update that is non-finite; what happens often is told ever more seldom."""

_TOLD = 5


class Tell:
    """Says what was done, at which step, and what it keeps."""

    def __init__(self, agent):
        self.agent = agent
        self.masks = 0
        self.known = set()

    def held(self, step, held, why, mended, mended_from):
        """An update was left out, and running statistics that its batch had spoilt were put back."""
        said = "the update of step %d was left out: %s" % (step, why)
        if mended:
            said += "; %d running statistics are those of step %d again" % (mended, mended_from)
        if held > _TOLD or why in self.known:
            if held & (held - 1):
                return  # from here on, and for the same sample again, at every doubling
            said = "%d updates have been left out so far; the last, of step %d: %s" % (held, step, why)
        self.known.add(why)
        self._say("hold-update", "equivalent", step, said, "batch skipped")

    def masked(self, step, mask, seen):
        """Single elements were left out of an update."""
        self.masks += 1
        at = " at line %d" % seen["line"] if seen.get("line") else ""
        what = "%d of %d elements, whose gradient `%s`%s makes non-finite" % (mask.count, mask.of, mask.operation, at)
        said = "step %d was learnt without %s" % (step, what)
        if self.masks > _TOLD:
            if self.masks & (self.masks - 1):
                return
            said = "%d steps were learnt without single elements so far; step %d without %s" % (self.masks, step, what)
        self._say("mask-gradient", "equivalent", step, said, "these elements are skipped")

    def back(self, step, undone, what, act, rest, keeps="changed"):
        """The training went back, and on with or without a change."""
        text = "%s at step %d: back to the state of step %d%s" % (what, step, step - undone, rest)
        self._say(act, keeps, step, text, "the batches of %d steps are skipped" % undone)

    def precision(self, step, what):
        text = what + "; on in bfloat16 in place of float16"
        self._say("bfloat16", "changed", step, text, "it has fewer digits")

    def declined(self, step, because):
        self.agent.say("declined", act="hold-update", step=step, because=because)

    def _say(self, act, keeps, step, text, because):
        self.agent.say("intervention", act=act, keeps=keeps, step=step, text=text, because=because)
