"""TensorBoard's event file, as far as scalars and texts go: records of TFRecord's framing around a few protobuf fields.

The format has been the same since 2015, and 60 lines of it spare a package that would bring NumPy, gRPC and, where it
is installed, TensorFlow into a process that is to cost nothing.
"""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

OURS = ".holter"  # how the names of these files end


class EventFile:
    """One file of a run; what is flushed is whole, and TensorBoard reads it as it grows."""

    def __init__(self, folder: Path, host: str, started: float) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time()):010d}.{host}.{os.getpid()}.0{OURS}"
        self._file = open(folder / name, "ab")  # noqa: SIM115 - open until the run is over
        self._record(_double(1, started) + _bytes(3, b"brain.Event:2"))

    def scalar(self, tag: str, value: float, step: int, when: float) -> None:
        self._summary(_bytes(1, tag.encode()) + _float(2, value), step, when)

    def text(self, tag: str, words: str, step: int, when: float) -> None:
        string = 7  # TensorProto: the type, a shape of [1], the text
        shape = _bytes(2, _number(1, 1))
        tensor = _number(1, string) + _bytes(2, shape) + _bytes(8, words.encode("utf-8", "replace"))
        plugin = _bytes(1, _bytes(1, b"text"))
        self._summary(_bytes(1, tag.encode()) + _bytes(8, tensor) + _bytes(9, plugin), step, when)

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def _summary(self, value: bytes, step: int, when: float) -> None:
        self._record(_double(1, when) + _number(2, step) + _bytes(5, _bytes(1, value)))

    def _record(self, event: bytes) -> None:
        length = struct.pack("<Q", len(event))
        self._file.write(length + _checksum(length) + event + _checksum(event))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _float(field: int, value: float) -> bytes:
    try:
        return _varint(field << 3 | 5) + struct.pack("<f", value)
    except OverflowError:  # more than a float of four bytes can say
        return _varint(field << 3 | 5) + struct.pack("<f", float("inf") if value > 0 else float("-inf"))


def _table() -> list[int]:
    made = []
    for value in range(256):
        for _bit in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        made.append(value)
    return made


_CRC32C = _table()


def _checksum(data: bytes) -> bytes:
    """CRC-32C, rotated and shifted as TFRecord wants it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC32C[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
