"""Words of the command line for spans of time and amounts of disk."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import click

_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400, "w": 604800}
_DATES = ("%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M")


if TYPE_CHECKING:
    _MomentType = click.ParamType[float]
    _SizeType = click.ParamType[int]
else:
    _MomentType = _SizeType = click.ParamType


class Moment(_MomentType):
    """A moment in the past: a date, or so long ago. Gives the seconds since 1970."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?) ?(s|min|h|d|w)", value.strip())
        if found is not None:
            return time.time() - float(found[1]) * _SECONDS[found[2]]
        for form in _DATES:
            try:
                return time.mktime(time.strptime(value.strip(), form))
            except (ValueError, OverflowError):
                continue
        self.fail(f"{value!r} is no time. Write it as 30d, 12h or 2026-11-30", param, ctx)


class DiskSize(_SizeType):
    """Bytes of disk: 2GB, 500MB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from holter.planner.amounts import bytes_of

        try:
            if isinstance(value, str) and value.strip().isdecimal():
                raise ValueError("a bare number may be meant in any unit")
            return bytes_of(value)
        except ValueError:
            self.fail(f"{value!r} is no size. Write it as 2GB or 500MB", param, ctx)
