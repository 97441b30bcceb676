"""Rings made by hand, slot by slot."""

from __future__ import annotations

import math
import struct
from zlib import crc32

from holter.record import ring_format as f

NS = 1_000_000_000


def step_slot(seq: int, step: int, **fields: float) -> bytes:
    """One slot of a single step that took 0.1 s, at `step` tenths of a second; fields as ring_format names them."""
    time = int(fields.get("time", step * NS // 10))
    whole = [
        NS // 10,
        NS // 10,
        NS // 10,
        1,
        NS // 10,
        0,
        NS // 20,
        NS // 20,
        0,
        0,
        0,
        0,
        int(fields.get("bad_loss", 0)),
    ]
    loss = float(fields.get("loss", math.nan))
    low, high = float(fields.get("low", loss)), float(fields.get("high", loss))
    flags = int(fields.get("flags", f.F_LOSS_KNOWN if "loss" in fields or "bad_loss" in fields else 0))
    count, kind = int(fields.get("count", 1)), int(fields.get("kind", f.STEP))
    floats = (loss, low, high, math.nan, float(fields.get("grad_norm", math.nan)))
    return f.BODY.pack(seq, time, step, kind, flags, 1, count, 4, *whole, *floats)


def sealed(body: bytes) -> bytes:
    return body + f.CRC.pack(crc32(body))


def ring(bodies: list[bytes], pid: int = 7, head: int | None = None) -> bytearray:
    """A ring file with these slots written one after another, as an agent does it."""
    raw = bytearray(f.SIZE)
    start = f.HEAD.pack(f.MAGIC, f.VERSION, f.SLOT, f.CAPACITY, pid, NS, 0)[:-4]
    raw[: f.HEAD.size] = start + f.CRC.pack(crc32(start))
    for seq, body in enumerate(bodies):
        at = f.HEADER + (seq % f.CAPACITY) * f.SLOT
        data = sealed(body)
        raw[at : at + len(data)] = data
    set_word(raw, f.W_HEAD, len(bodies) if head is None else head)
    return raw


def set_word(raw: bytearray, word: int, value: int) -> None:
    struct.pack_into("<Q", raw, f.WORDS_AT + 8 * word, value)
