"""How long the doctor takes over an hour of record: a real run's lines, laid end to end until they fill an hour.

    python bench/diagnosis.py RECORD_FOLDER

Prints the time to open the record, the time of all rules together, and the five slowest rules.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from pathlib import Path

from holter.diagnosis.core.doctor import verdict
from holter.diagnosis.core.examined import Examined
from holter.diagnosis.core.rule import find_rules
from holter.diagnosis.ending.ending import ending_of
from holter.record.reader import Record, open_record

HOUR = 3600.0


def an_hour_of(record: Record) -> Record:
    """The record's middle repeated, with times and step numbers that go on, before its own end."""
    begin, end = record.timeline[0]["m"], record.timeline[-1]["m"]
    steps = max((line["last"] for line in record.timeline if line["k"] == "steps"), default=0)
    long = Record(copy.deepcopy(record.meta), output=record.output, sources=record.sources)
    turns = max(1, round(HOUR / (end - begin)))
    for turn in range(turns):
        for line in record.timeline:
            shifted = {**line, "m": line["m"] + turn * (end - begin), "t": line["t"] + turn * (end - begin)}
            for key in ("first", "last", "seq"):
                if key in shifted:
                    shifted[key] += turn * steps
            long.timeline.append(shifted)
    later = (turns - 1) * (end - begin)
    for event in record.events:
        late = event["m"] > begin + (end - begin) / 2
        long.events.append({**event, "m": event["m"] + later * late, "t": event["t"] + later * late})
    return long


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("record", type=Path)
    folder = parser.parse_args().record
    begun = time.perf_counter()
    record = open_record(folder)
    opened = time.perf_counter() - begun
    long = an_hour_of(record)
    size = sum(len(json.dumps(line)) for line in long.timeline)
    print(f"{len(long.timeline):,} lines, {size / 1e6:.1f} MB, {len(long.events):,} events; opened in {opened:.2f} s")
    find_rules()
    times = []
    for _ in range(5):
        begun = time.perf_counter()
        judged = verdict(long)
        times.append(time.perf_counter() - begun)
    print(
        f"verdict on an hour: {statistics.median(times):.2f} s ({judged.ending.kind}, {len(judged.findings)} findings)"
    )
    table = Examined(long)
    ending = ending_of(table)
    costs = []
    for rule in find_rules():
        begun = time.perf_counter()
        list(filter(None, [rule.examine(table, ending)]))
        costs.append((time.perf_counter() - begun, rule.cause))
    for cost, cause in sorted(costs, reverse=True)[:5]:
        print(f"  {cost * 1e3:7.1f} ms  {cause}")


if __name__ == "__main__":
    main()
