"""Buffers that a script asks tf.data for, told by the call; small ones are what they are for."""

from __future__ import annotations

import pytest
from build import TRAINER, ordinary_run

from holter.diagnosis.leak.library_cache import cache_call


def asked(code, output=""):
    record = ordinary_run()
    record.sources["/home/u/train.py"] = ["import tensorflow as tf", f"data = files.map(load){code}"]
    record.event("guest", 0.6, pid=TRAINER, role="trainer", file="/home/u/train.py")
    record.output = output
    return cache_call(record)


@pytest.mark.parametrize(
    ("code", "call"),
    [
        (".cache().batch(8)", "cache"),
        (".batch(8).prefetch(4000)", "prefetch"),
        (".shuffle(100_000).batch(8)", "shuffle"),
        (".shuffle(buffer_size=len(files)).batch(8).prefetch(2)", "shuffle"),
        (".cache().shuffle(50_000)", "cache"),
    ],
)
def test_a_large_buffer_is_named(code, call):
    assert asked(code).call == call


@pytest.mark.parametrize("code", [".cache(path)", ".shuffle(1000)", ".prefetch(tf.data.AUTOTUNE)", ".prefetch(2)"])
def test_a_small_one_or_one_on_disk_is_not(code):
    assert asked(code) is None


def test_the_librarys_own_words_come_first():
    printed = "Filling up shuffle buffer (this may take a while): 12 of 500"

    assert asked(".cache().shuffle(500)", printed).call == "shuffle"
