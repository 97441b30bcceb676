"""The reading side of the ring: what an agent wrote, also while it writes and after it was killed."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from holter.record import ring_format as f


@dataclass(frozen=True)
class Slot:
    """One slot whose checksum holds; what its numbers mean is in ring_format."""

    seq: int
    time: float
    step: int
    kind: int
    flags: int
    epoch: int
    count: int
    batch: int
    figures: tuple[int, ...]
    loss: float
    loss_low: float
    loss_high: float
    lr: float
    grad_norm: float


class NotARing(ValueError):
    """The bytes are not a ring of ours."""


class RingView:
    """A ring as bytes, or as anything that gives bytes when it is sliced."""

    def __init__(self, raw: Any) -> None:
        if len(raw) < f.HEADER:
            raise NotARing("too short")
        head = bytes(raw[: f.HEAD.size])
        magic, version, slot, capacity, self.pid, started, crc = f.HEAD.unpack(head)
        if magic != f.MAGIC or version != f.VERSION or crc != crc32(head[:-4]):
            raise NotARing("not a ring of this version")
        if slot != f.SLOT or not 0 < capacity <= f.CAPACITY:
            raise NotARing("another slot size")
        if len(raw) < f.HEADER + f.SLOT * capacity:
            raise NotARing("too short")
        self._capacity = capacity
        self.started = started * 1e-9
        self._raw = raw

    def words(self) -> tuple[int, ...]:
        raw = bytes(self._raw[f.WORDS_AT : f.WORDS_AT + 8 * f.WORDS])
        if len(raw) < 8 * f.WORDS:
            raise NotARing("cut off")
        return struct.unpack(f"<{f.WORDS}Q", raw)

    def state(self) -> dict[str, Any]:
        """What the process is doing now, in the words of docs/record.md."""
        words = self.words()
        phase = words[f.W_PHASE]
        since = words[f.W_SINCE] * 1e-9
        begun = words[f.W_COLLECTIVE]
        of_ranks = {"collective": begun} if begun else {}
        return {
            "pid": self.pid,
            "phase": f.PHASES[phase] if phase < len(f.PHASES) else "other",
            "since": since,
            "activity": max(since, words[f.W_ACTIVITY] * 1e-9),
            "step": words[f.W_STEP],
            "epoch": words[f.W_EPOCH],
            "planned": words[f.W_PLANNED],
            "backwards": words[f.W_BACKWARDS],
            "errors": words[f.W_ERRORS],
            **of_ranks,
        }

    def slots(self, after: int = -1) -> Iterator[Slot]:
        """The slots with a sequence number above `after`, oldest first; torn or overwritten ones are left out."""
        written = self.words()[f.W_HEAD]
        # One more than the header says: a kill may have come between the slot and the count.
        for seq in range(max(after + 1, written - self._capacity), written + 1):
            at = f.HEADER + (seq % self._capacity) * f.SLOT
            raw = bytes(self._raw[at : at + f.SLOT])
            if len(raw) < f.SLOT:
                raise NotARing("cut off")
            (crc,) = f.CRC.unpack_from(raw, f.CRC_AT)
            if crc != crc32(raw[: f.BODY.size]):
                continue
            number, time, step, kind, flags, epoch, count, batch, *rest = f.BODY.unpack_from(raw)
            if number == seq:
                yield Slot(seq, time * 1e-9, step, kind, flags, epoch, count, batch, tuple(rest[:13]), *rest[13:])
