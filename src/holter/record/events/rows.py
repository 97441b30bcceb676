"""What several kinds of events hold: places in the code, and frames of a stack."""

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
