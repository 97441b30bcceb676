"""Writes a record: whole lines, one write each, so that a kill at any byte leaves all but the last readable."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holter.record import lines, place
from holter.record.privacy import mask_text
from holter.record.sources import Sources
from holter.record.thinning import interval_for, thin

_SEGMENT_SECONDS = 600.0
_SEGMENT_BYTES = 4 << 20
_OF_ONE_KIND = 2000  # rare facts that turn out not to be rare are cut off there, and counted
_RETRY_AFTER = 5.0


def _without_secrets(line: dict[str, Any]) -> dict[str, Any]:
    """What an error says may quote an address or a header: masked, also in the errors that it came from."""
    kept: dict[str, Any] = {key: mask_text(line[key]) for key in ("message", "text") if isinstance(line.get(key), str)}
    chain = line.get("chain")
    if isinstance(chain, list):
        kept["chain"] = [_without_secrets(one) if isinstance(one, dict) else one for one in chain]
    return {**line, **kept} if kept else line


class RecordWriter:
    """The recorder's pen. A disk that is full costs lines, which are counted, and never the run."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.folder = folder
        self._clock = clock
        self._events: int | None = None
        self._timeline: int | None = None
        self._sources: int | None = None
        self._segment = 0
        self._segment_since = 0.0
        self._segment_size = 0
        self._kinds: Counter[str] = Counter()
        self._thinned: dict[int, float] = {}
        self._begun: dict[int, float] = {}
        self._torn: set[str] = set()  # files whose last line was cut off by a full disk
        self._files = Sources(self._source)
        self.dropped = 0
        self.problem = ""
        self._quiet_until = 0.0

    def meta(self, fields: dict[str, Any]) -> None:
        """The facts of the start, whole or not at all."""
        self.replace(place.META, json.dumps(fields, indent=1, default=str).encode() + b"\n")

    def replace(self, name: str, data: bytes) -> None:
        path = self.folder / name
        partial = path.with_name(path.name + ".partial")
        try:
            fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                while data:
                    data = data[os.write(fd, data) :]
            finally:
                os.close(fd)
            os.replace(partial, path)
        except OSError:
            partial.unlink(missing_ok=True)  # half of it would only hold the space that is missing
            raise

    def event(self, kind: str, /, **fields: Any) -> dict[str, Any]:
        """A rare fact, written at once."""
        line: dict[str, Any] = {"k": kind, "t": time.time(), "m": time.monotonic(), **fields}
        self.events([line])
        return line

    def events(self, batch: list[dict[str, Any]]) -> None:
        data = bytearray()
        for line in batch:
            kind = str(line.get("k"))
            self._kinds[kind] += 1
            if self._kinds[kind] <= _OF_ONE_KIND:
                data += lines.dump(_without_secrets(line))
            else:
                self.dropped += 1
        if data:
            self._append("_events", place.EVENTS, bytes(data))
        self._files.notice(batch)

    def _source(self, path: str, text: str) -> None:
        """A file of the user's, as it was when it was first named."""
        line = {"k": "source", "t": time.time(), "m": time.monotonic(), "file": path, "text": text}
        self._append("_sources", place.SOURCES, lines.dump(line))

    def timeline(self, batch: list[dict[str, Any]]) -> None:
        """Samples and step windows of one tick, in one write."""
        if not batch:
            return
        now = self._clock()
        # A segment into which nothing could be written, on a full disk, is tried again under its own number.
        if self._segment == 0 or (self._segment_size and self._segment_over(now)):
            self._next_segment(now)
        data = b"".join(lines.dump(line) for line in batch)
        if self._append("_timeline", self._segment_name(self._segment), data):
            self._segment_size += len(data)

    def _segment_over(self, now: float) -> bool:
        return now - self._segment_since >= _SEGMENT_SECONDS or self._segment_size >= _SEGMENT_BYTES

    def _segment_name(self, number: int) -> str:
        return f"{place.TIMELINE}/{number:06d}.jsonl"

    def _next_segment(self, now: float) -> None:
        if self._timeline is not None:
            os.close(self._timeline)
            self._timeline = None
        self._torn.discard("_timeline")
        self._segment += 1
        self._segment_since = self._begun[self._segment] = now
        self._segment_size = 0
        self._thin_old(now)

    def _thin_old(self, now: float) -> None:
        """Thin what has grown old; each segment at most once per level, written beside and put in its place."""
        for number, begun in self._begun.items():
            interval = interval_for(now - begun - _SEGMENT_SECONDS)
            if number == self._segment or interval <= self._thinned.get(number, 0.0):
                continue
            path = self.folder / self._segment_name(number)
            packed = path.with_name(path.name + ".gz")
            source = packed if packed.exists() else path
            try:
                raw, _complete = lines.load(source)
                found, _bad = lines.parse(raw)
                data = b"".join(lines.dump(line) for line in thin(found, interval))
                self.replace(f"{place.TIMELINE}/{packed.name}", lines.pack(data))
                path.unlink(missing_ok=True)
            except FileNotFoundError:
                pass  # nothing of it could be written
            except OSError as error:
                self.problem = error.strerror or str(error)
                continue  # there may be room at the next segment
            except Exception as error:
                self.problem = f"{type(error).__name__}: {error}"  # a line that is not as we wrote it: left as it is
            self._thinned[number] = interval

    def _append(self, holder: str, name: str, data: bytes) -> bool:
        now = self._clock()
        if now < self._quiet_until:
            self.dropped += data.count(b"\n")
            return False
        if holder in self._torn:
            data = b"\n" + data  # ends the line that was cut off, so that it does not spoil the next one
        try:
            fd = getattr(self, holder)
            if fd is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                fd = os.open(self.folder / name, flags, 0o600)
                setattr(self, holder, fd)
            while data:
                data = data[os.write(fd, data) :]
                self._torn.add(holder)
            self._torn.discard(holder)
            return True
        except OSError as error:
            self.dropped += data.lstrip(b"\n").count(b"\n")
            self.problem = error.strerror or str(error)
            self._quiet_until = now + _RETRY_AFTER
            return False

    def close(self) -> None:
        for holder in ("_events", "_timeline", "_sources"):
            fd = getattr(self, holder)
            if fd is not None:
                os.close(fd)
                setattr(self, holder, None)
