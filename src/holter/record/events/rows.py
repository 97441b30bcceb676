"""What several kinds of events hold: places in the code, frames of a stack, and the job."""

from __future__ import annotations

from holter.record.events.schema import Row, means, schema


@schema
class Place(Row):
    """A line of code."""

    file: str = ""
    line: int | None = None
    function: str = ""
    code: str = means("the source on that line")


@schema
class StackFrame(Place):
    """One call of a stack."""

    user: bool | None = means("whether the file is the user's own")


@schema
class Raised(Row):
    """An exception, and the calls that it went through."""

    type: str = ""
    module: str = means("the module of its class")
    message: str = ""
    frames: tuple[StackFrame, ...] = means("outermost first")


@schema
class Job(Row):
    """The job that a process belongs to, as its launcher says; absent where no launcher says anything."""

    key: str = means("the same in all ranks: torchrun's or the scheduler's id, else the address where the ranks meet")
    launcher: str = means("`torchrun`, `slurm`, `mpi`, `jax`, `tensorflow`, `environment`")
    rank: int | None = None
    world: int | None = means("how many ranks there are")
    local_rank: int | None = None
    node: int | None = means("which machine of the job, from 0")
    restart: int | None = means("how often torchrun has started the ranks again")
    pod: str = means("of Kubernetes")
