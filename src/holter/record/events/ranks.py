"""The events of a job of several ranks: who came, which collective each has begun, and when."""

from __future__ import annotations

from holter.record.events.rows import Place, StackFrame
from holter.record.events.schema import Event, ProcessEvent, Row, means, schema


@schema
class RankCame(ProcessEvent):
    """A rank called `init_process_group` and waits for the others; `file, line, function, code` are the call's."""

    KIND = "rank-came"

    rank: int | None = None
    world: int | None = means("how many ranks there are to be")
    file: str = ""
    line: int | None = None
    function: str = ""
    code: str = ""


@schema
class RankJoined(ProcessEvent):
    """All ranks have met."""

    KIND = "rank-joined"

    rank: int | None = None
    world: int | None = means("how many ranks there are")
    backend: str = means("`gloo`, `nccl`, …")
    waited: float | None = means("seconds")


@schema
class Collective(Row):
    """One collective, as PyTorch's Flight Recorder has it."""

    group: str = means("the group's name, the same in all ranks")
    number: int | None = means("its number in the group")
    op: str = means("`all_reduce`, `broadcast`, …")
    sizes: str = means("of its tensors")
    dtype: str = ""
    done: bool | None = means("it has been completed")


@schema
class Collectives(ProcessEvent):
    """A rank has begun no collective for some seconds: what it began last, and where its main thread stands."""

    KIND = "collectives"

    rank: int | None = None
    world: int | None = None
    begun: int | None = means("collectives so far, in all groups")
    since: float | None = means("when the last one was begun, monotonic")
    silent: float | None = means("seconds")
    groups: int | None = means("groups that this rank has made; all ranks have to make all of them")
    step: int | None = None
    rows: tuple[Collective, ...] = means("the last ones, oldest first", key="list")
    file: str = means("the user's line, like the next three")
    line: int | None = None
    function: str = ""
    code: str = ""
    frames: tuple[StackFrame, ...] = means("innermost first")


@schema
class LineSeen(Place):
    """A line of the user's on which a rank was seen."""

    seen: int | None = means("how often")


@schema
class CollectiveTimes(ProcessEvent):
    """When a rank began its last collectives, and on which lines it was seen for two seconds.

    Read at times that all ranks agree on, so that the same numbers are in all of them.
    """

    KIND = "collective-times"

    rank: int | None = None
    world: int | None = None
    base: float | None = means("when the first of them was begun, monotonic")
    times: tuple[tuple[str | int | None, ...], ...] = means(
        "of each group's that follow each other: group, first number, when it was begun (microseconds after `base`), "
        "and the gaps to the next ones"
    )
    step_ends: tuple[tuple[float, ...], ...] = means("`[step, monotonic]` of steps that ended meanwhile")
    looks: int | None = means("how often it was looked where the rank is")
    rows: tuple[LineSeen, ...] = means("the lines on which it was seen most", key="list")


@schema
class Peer(Place):
    """Where a rank on another machine stood, as it told through the job's store."""

    rank: int | None = None
    host: str = ""
    begun: int | None = means("collectives so far, in all groups")
    step: int | None = None
    stands: bool | None = means("absent for one that goes on")
    group: str = means("of the collective that it waits in, like the next three")
    number: int | None = None
    op: str = ""
    sizes: str = ""
    cpu: float | None = means("cores that it used meanwhile")
    phase: str = ""
    functions: str = means("the user's, innermost first")


@schema
class Peers(ProcessEvent):
    """Where the ranks of other machines stand, asked for when this one had begun nothing for some seconds."""

    KIND = "peers"

    rank: int | None = None
    world: int | None = None
    rows: tuple[Peer, ...] = means("those that told", key="list")
    silent: tuple[int, ...] = means("the ranks that told nothing")
    because: str = means("why the store could not be asked")


RANK_EVENTS: tuple[type[Event], ...] = (RankCame, RankJoined, Collectives, CollectiveTimes, Peers)
