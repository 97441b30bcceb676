"""How a line of a record becomes an object: typed, frozen, and never an error, whoever has written it.

A class of the schema is a list of fields with their types and meanings: `docs/record.md` is made from it, and mypy
finds a field that nobody writes. What is absent, of another type, NaN or out of reach is None (of a text the empty
one, of a list an empty one); what the class does not name is passed over.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import Field, dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_options: Any) -> Callable[[Any], Any]:
        return lambda decorator: decorator


# A message in a record can be megabytes long; nothing that is told to a person needs more than this.
LONGEST_TEXT = 4000

_ABSENT: dict[str, Any] = {"str": "", "float": 0.0, "tuple": ()}

R = TypeVar("R", bound="Row")


def means(words: str, key: str = "") -> Any:
    """The meaning of a field, with its unit; `key` where it has another word on disk."""
    return field(default=None, metadata={"meaning": words, "key": key})


@dataclass_transform(frozen_default=True)
def schema(cls: type[R]) -> type[R]:
    """A class of the schema: a frozen dataclass whose fields are all absent unless a line has them."""
    for name, kind in inspect.get_annotations(cls).items():
        declared = cls.__dict__.get(name)
        row = vars(sys.modules[cls.__module__]).get(kind)
        if isinstance(row, type) and issubclass(row, Row):
            setattr(cls, name, field(default=row(), metadata=declared.metadata if isinstance(declared, Field) else {}))
        elif isinstance(declared, Field):
            declared.default = _ABSENT.get(kind.partition("[")[0])
    return dataclass(frozen=True, slots=True, eq=False, repr=False, match_args=False)(cls)


class Row:
    """An object of a record: a line, or a row inside one."""

    __slots__ = ()

    @classmethod
    def parse(cls: type[R], raw: object) -> R:
        """What of an object of a record is as the schema says; without one, an object of which all is absent."""
        found = object.__new__(cls)
        get = raw.get if isinstance(raw, dict) else {}.get
        for put, key, read, absent in _PLANS.get(cls) or _plan(cls):
            value = get(key)
            put(found, absent if value is None else read(value))
        return found

    # Once for all classes: what a dataclass makes for each of eighty is a third of the time that importing them takes.
    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(tuple(self._values().values()))

    def __repr__(self) -> str:
        known = ", ".join(f"{name}={value!r}" for name, value in self._values().items() if value not in (None, "", ()))
        return f"{type(self).__name__}({known})"

    def _values(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in _fields(type(self))}


@schema
class Line(Row):
    """A line of a record: its kind stands under `k` on disk."""

    KIND: ClassVar[str] = ""

    t: float = means("wall-clock seconds")
    m: float = means("monotonic seconds, the same clock in all processes of one machine")


class Event(Line):
    """A rare fact: a line of `events.jsonl`, of an agent's own file or of `keeper.jsonl`."""

    __slots__ = ()


@schema
class ProcessEvent(Event):
    """A fact about one process."""

    pid: int | None = None


class Reading(Row):
    """What one probe read: it stands in a `sample` under the probe's name."""

    __slots__ = ()
    PROBE: ClassVar[str] = ""

    @classmethod
    def of(cls: type[R], sample: dict[str, Any]) -> R:
        """The reading of a sample's line; one of which all is absent where the probe was not read."""
        return cls.parse(sample.get(cls.PROBE))  # type: ignore[attr-defined]


def number(value: object) -> float | None:
    """A finite number; None for another type, NaN, or what no byte, second or step of ours can be."""
    # Asked a million times of a day's record: one look at the type, and bounds that NaN is not within.
    if type(value) is float or type(value) is int:
        return float(value) if -1e18 < value < 1e18 else None
    return None


def as_int(value: object) -> int | None:
    """A whole number, or None."""
    if type(value) is int:
        return value if -1e18 < value < 1e18 else None
    found = number(value)
    return None if found is None else int(found)


def text(value: object) -> str:
    """A text, or the empty one; numbers and lists are not turned into words."""
    return value[:LONGEST_TEXT] if isinstance(value, str) else ""


def flag(value: object) -> bool | None:
    """A truth value, or None where it is not known."""
    return value if isinstance(value, bool) else None


def _magnitude(value: object) -> float | str | None:
    """A number of any size, since weights that ran away are larger than what is one elsewhere; or `nan`, `inf`."""
    if type(value) is float or type(value) is int:
        try:
            return float(value) if math.isfinite(value) else None
        except OverflowError:
            return None
    return text(value) or None


def _word(value: object) -> str | int | None:
    """A name, or the number that stands for it."""
    return text(value) if isinstance(value, str) else as_int(value)


def _texts(value: object) -> tuple[str, ...]:
    return tuple(text(one) for one in value if isinstance(one, str)) if isinstance(value, list) else ()


def _ints(value: object) -> tuple[int, ...]:
    found = map(as_int, value) if isinstance(value, list) else ()
    return tuple(one for one in found if one is not None)


def _shape(value: object) -> tuple[int, ...] | None:
    return _ints(value) if isinstance(value, list) else None


def _counts(value: object) -> tuple[tuple[str, int], ...]:
    pairs = [pair for pair in value if isinstance(pair, list) and len(pair) == 2] if isinstance(value, list) else []
    return tuple((name, as_int(count) or 0) for name, count in pairs if isinstance(name, str))


def _shapes(value: object) -> tuple[tuple[tuple[int, ...], str], ...]:
    pairs = [pair for pair in value if isinstance(pair, list) and len(pair) == 2] if isinstance(value, list) else []
    return tuple((_ints(shape), text(dtype)) for shape, dtype in pairs if isinstance(shape, list))


def _magnitudes(value: object) -> tuple[float | str | None, ...]:
    return tuple(map(_magnitude, value)) if isinstance(value, list) else ()


def _rows_of(row: type[Row]) -> Callable[[Any], tuple[Row, ...]]:
    empty = row.parse({})  # one for all: a hostile record can hold a million of them

    def read_rows(value: object) -> tuple[Row, ...]:
        if not isinstance(value, list):
            return ()
        return tuple([row.parse(one) if one else empty for one in value if isinstance(one, dict)])

    return read_rows


def _row_of(row: type[Row], absent: Row | None) -> Callable[[Any], Row | None]:
    return lambda value: row.parse(value) if isinstance(value, dict) else absent


def _lists(item: Callable[[Any], Any]) -> Callable[[Any], tuple[tuple[Any, ...], ...]]:
    def read_lists(value: object) -> tuple[tuple[Any, ...], ...]:
        rows = [one for one in value if isinstance(one, list)] if isinstance(value, list) else []
        return tuple(tuple(map(item, row)) for row in rows)

    return read_lists


_READERS: dict[Any, Callable[[Any], Any]] = {
    Any: lambda value: value,
    str: text,
    float: lambda value: number(value) or 0.0,
    float | None: number,
    int | None: as_int,
    bool | None: flag,
    float | str | None: _magnitude,
    str | int | None: _word,
    tuple[str, ...]: _texts,
    tuple[int, ...]: _ints,
    tuple[int, ...] | None: _shape,
    tuple[tuple[str, int], ...]: _counts,
    tuple[tuple[tuple[int, ...], str], ...]: _shapes,
    tuple[float | str | None, ...]: _magnitudes,
    tuple[tuple[str | int | None, ...], ...]: _lists(_word),
    tuple[tuple[float, ...], ...]: _lists(lambda value: number(value) or 0.0),
}


# How each field of a class is set (past the freeze), its key on disk, how its value is read, and its value where there
# is none; made once.
_Plan = tuple[tuple[Callable[[Any, Any], None], str, Callable[[Any], Any], Any], ...]
_PLANS: dict[type, _Plan] = {}


def reader_of(hint: Any) -> Callable[[Any], Any]:
    """How a value of a type is read from what JSON holds."""
    inner = [kind for kind in get_args(hint) if isinstance(kind, type) and issubclass(kind, Row)]
    if inner:
        return _rows_of(inner[0]) if get_origin(hint) is tuple else _row_of(inner[0], None)
    if isinstance(hint, type) and issubclass(hint, Row):
        return _row_of(hint, hint())
    return _READERS[hint]


def hints_of(row: type[Row]) -> dict[str, Any]:
    """The fields of a class of the schema with their types."""
    found = get_type_hints(row)
    return {one.name: found[one.name] for one in _fields(row)}


def keys_of(row: type[Row]) -> dict[str, str]:
    """The key on disk of each field."""
    return {one.name: one.metadata.get("key") or one.name for one in _fields(row)}


def meanings_of(row: type[Row]) -> dict[str, str]:
    """What each field means; nothing where its name says it."""
    return {one.name: one.metadata.get("meaning", "") for one in _fields(row)}


def rows_of(kinds: Iterable[type[Row]]) -> list[type[Row]]:
    """The classes of the objects inside of others, each once, in the order in which they are met."""
    found: dict[type[Row], None] = {}
    for kind in kinds:
        for hint in hints_of(kind).values():
            for inner in (hint, *get_args(hint)):
                if isinstance(inner, type) and issubclass(inner, Row):
                    found |= dict.fromkeys((inner, *rows_of([inner])))
    return list(found)


def _fields(row: type[Row]) -> tuple[Field[Any], ...]:
    return fields(row) if is_dataclass(row) else ()


def _plan(row: type[Row]) -> _Plan:
    keys = keys_of(row)
    readers = {name: reader_of(hint) for name, hint in hints_of(row).items()}
    made = tuple((getattr(row, name).__set__, keys[name], read, read(None)) for name, read in readers.items())
    _PLANS[row] = made
    return made
