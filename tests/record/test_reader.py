"""Any record opens or says why not: damaged, foreign, hostile. Nothing in it is ever executed."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holter.diagnosis.core.doctor import verdict
from holter.errors import DamagedRecord, UnknownRun
from holter.figures.summary import summary_of
from holter.record import place
from holter.record.events.recorder import Said, Started
from holter.record.events.timeline import Sample, StepWindow
from holter.record.reader import find, open_record
from holter.record.writer import RecordWriter
from holter.views.text import write_verdict
from tests.conftest import Holter

TRAIN = """
import time
import holter
for batch in holter.track(range(60), total=200):
    time.sleep(0.03)
    holter.step(loss=1.0 / (batch + 1), batch=4)
raise RuntimeError("the data ended early")
"""


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A small record of a real run, with a packed segment and an agent's files in it."""
    base = tmp_path_factory.mktemp("real")
    holter = Holter(base / "home", base)
    done = holter.run(sys.executable, holter.script(TRAIN))
    assert done.returncode == 1
    folder = holter.record()
    segment = folder / "timeline" / "000001.jsonl"
    lines = segment.read_bytes().splitlines(keepends=True)
    (folder / "timeline" / "000000.jsonl.gz").write_bytes(gzip.compress(b"".join(lines[:1])))
    segment.write_bytes(b"".join(lines[1:]))
    yield folder
    holter.close()


def judged(folder: Path) -> str:
    """Everything `holter why` does with a record; the words it would print, or why it would not."""
    try:
        record = open_record(find(str(folder)))
    except (DamagedRecord, UnknownRun) as error:
        return str(error)
    found = verdict(record)
    out = io.StringIO()
    write_verdict(found, summary_of(record, found), out, width=80)
    return json.dumps(found.as_json(), default=str) + out.getvalue()


def without_end(folder: Path) -> None:
    """As if the recorder had been killed: then the agents' own files are read too."""
    path = folder / place.EVENTS
    path.write_bytes(b"".join(line for line in path.read_bytes().splitlines(True) if b'"k":"end"' not in line))


def test_the_real_record_has_all_its_parts(real: Path) -> None:
    """What is damaged below is a record in which everything is there."""
    record = open_record(real)

    assert sum(line.n or 0 for line in record.of(StepWindow)) == 60
    assert sorted(path.suffix for path in (real / "guests").iterdir()) == [".jsonl", ".ring"]
    assert not record.damage
    assert "the data ended early" in judged(real)


@pytest.mark.parametrize("name", ["record.json", "events.jsonl", "keeper.jsonl", "output.tail", "timeline", "guests"])
@pytest.mark.parametrize("lost", [False, True], ids=["ended", "recorder killed"])
def test_flipped_bytes_in_any_file_are_survived(real: Path, tmp_path: Path, name: str, lost: bool) -> None:
    """One to two hundred random bytes of a file are changed, thirty times."""
    chance = random.Random(f"{name} {lost}")
    for turn in range(30):
        folder = tmp_path / str(turn)
        shutil.copytree(real, folder)
        if lost:
            without_end(folder)
        files = [folder / name] if (folder / name).is_file() else sorted((folder / name).iterdir())
        for path in files:
            raw = bytearray(path.read_bytes())
            # Near the beginning too, where heads and checksums are.
            reach = chance.choice([len(raw), min(len(raw), 400)])
            for _ in range(chance.choice([1, 3, 200])):
                raw[chance.randrange(reach)] = chance.randrange(256)
            path.write_bytes(raw)

        assert judged(folder)
        shutil.rmtree(folder)


STRANGE: list[Any] = [
    None,
    True,
    -1,
    0,
    10**400,
    1e308,
    "",
    "x" * 5000,
    "\x00\x1b[31m",
    [],
    [[]],
    {},
    {"": {}},
    [None, 1],
]


def strange_everywhere(value: Any, chance: random.Random) -> Any:
    """The same shape with some of its leaves replaced by what nobody expects there."""
    if isinstance(value, dict):
        return {
            key: strange_everywhere(item, chance) if key not in ("k", "t", "m") else item for key, item in value.items()
        }
    if isinstance(value, list) and chance.random() > 0.1:
        return [strange_everywhere(item, chance) for item in value]
    return chance.choice(STRANGE) if chance.random() < 0.3 else value


@pytest.mark.parametrize("lost", [False, True], ids=["ended", "recorder killed"])
def test_values_of_any_type_anywhere_are_survived(real: Path, tmp_path: Path, lost: bool) -> None:
    """Valid JSON with the wrong types in three of ten places, sixty times."""
    for turn in range(60):
        chance = random.Random(turn)
        folder = tmp_path / str(turn)
        shutil.copytree(real, folder)
        if lost:
            without_end(folder)
        for path in [
            *folder.glob("*.jsonl"),
            *(folder / "timeline").glob("*.jsonl"),
            *(folder / "guests").glob("*.jsonl"),
        ]:
            lines = [json.loads(line) for line in path.read_bytes().splitlines()]
            path.write_text("".join(json.dumps(strange_everywhere(line, chance)) + "\n" for line in lines))
        meta = strange_everywhere(json.loads((folder / place.META).read_bytes()), chance)
        (folder / place.META).write_text(json.dumps({**meta, "schema": 1}))

        assert judged(folder)
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    "meta",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b'"x"',
        b"{}",
        b'{"schema": "1"}',
        b'{"schema": 999}',
        b"[" * 200_000,
        b"\xff" * 100,
        b'{"schema":' + b"9" * 9000 + b"}",
    ],
    ids=lambda meta: meta[:16].decode("latin-1"),
)
def test_a_folder_whose_facts_are_no_facts_is_damaged(real: Path, tmp_path: Path, meta: bytes) -> None:
    """Not JSON, not ours, or from a Holter to come: told in words."""
    folder = tmp_path / "record"
    shutil.copytree(real, folder)
    (folder / place.META).write_bytes(meta)

    with pytest.raises(DamagedRecord):
        open_record(folder)


def test_deep_nesting_in_lines_is_survived(real: Path, tmp_path: Path) -> None:
    """A line of a hundred thousand brackets costs that line, and ones just deep enough to parse do no harm."""
    folder = tmp_path / "record"
    shutil.copytree(real, folder)
    for depth in (100_000, 900, 300):
        deep = '{"k":"exception","t":1,"m":1,"frames":' + "[" * depth + "]" * depth + "}\n"
        with open(folder / place.EVENTS, "a") as file:
            file.write(deep)

    assert "the data ended early" in judged(folder)


def test_links_and_pipes_in_a_record_lead_nowhere(real: Path, tmp_path: Path) -> None:
    """A record from elsewhere can't show files from outside itself, nor make its reader wait."""
    outside = tmp_path / "outside"
    shutil.copytree(real, outside)
    folder = tmp_path / "record"
    for name in ("events.jsonl", "output.tail", "timeline", "guests"):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(real, folder)
        without_end(folder)
        target = folder / name
        shutil.rmtree(target) if target.is_dir() else target.unlink()
        target.symlink_to(outside / name)
        record = open_record(folder)

        assert judged(folder)
        assert name != "events.jsonl" or not record.of(Started)
        assert name != "output.tail" or record.output == ""
        # The trainer's ring gives the steps again where only the timeline is cut off.
        assert name != "timeline" or not record.of(Sample)
    (folder / "guests").unlink()
    (folder / "guests").mkdir()
    for name in (
        "events.jsonl",
        "keeper.jsonl",
        "output.tail",
        "timeline/000001.jsonl",
        "guests/1.ring",
        "guests/1.jsonl",
    ):
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)
    assert judged(folder)
    (folder / place.META).unlink()
    (folder / place.META).symlink_to(outside / place.META)
    with pytest.raises(DamagedRecord):
        open_record(folder)


def test_an_agents_folder_is_only_taken_from_where_agents_live(real: Path, tmp_path: Path) -> None:
    """A record may name any folder as its agents': only one of Holter's own is looked into."""
    folder = tmp_path / "record"
    shutil.copytree(real, folder)
    without_end(folder)
    meta = json.loads((folder / place.META).read_bytes())
    for name, told in (("holter-0-x", True), ("documents", False)):
        agents = tmp_path / name
        agents.mkdir()
        (agents / "1.jsonl").write_text('{"k":"said","t":1,"m":1,"text":"from there"}\n')
        (folder / place.META).write_text(json.dumps({**meta, "guest_dir": str(agents)}))

        assert bool([e for e in open_record(folder).of(Said) if e.text == "from there"]) is told


class Bomb:
    """Unpickling this makes a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (self.path, "w")


def test_pickles_and_code_in_a_record_are_never_loaded(real: Path, tmp_path: Path) -> None:
    """Every file is a pickle that would leave a trace, and modules lie about: no trace is left."""
    folder = tmp_path / "record"
    shutil.copytree(real, folder)
    mark = tmp_path / "executed"
    bomb = pickle.dumps(Bomb(str(mark)))
    for path in [p for p in folder.rglob("*") if p.is_file() and p.name != place.META]:
        path.write_bytes(bomb)
    for name in ("state.pkl", "guests/1.pkl", "timeline/000002.jsonl.pkl"):
        (folder / name).write_bytes(bomb)
    for name in ("sitecustomize.py", "json.py", "conftest.py"):
        (folder / name).write_text(f"open({str(mark)!r}, 'w')")

    assert judged(folder)
    assert not mark.exists()


def test_many_packed_files_that_swell_are_cut_off(real: Path, tmp_path: Path) -> None:
    """A record that unpacks to more than any of ours is read up to a limit, the newest first, and says so."""
    folder = tmp_path / "record"
    shutil.copytree(real, folder)
    os.rename(folder / "timeline" / "000001.jsonl", folder / "timeline" / "900000.jsonl")
    bomb = gzip.compress(b"\n" * (32 << 20), 1)
    for number in range(10, 30):
        (folder / "timeline" / f"{number:06d}.jsonl.gz").write_bytes(bomb)

    record = open_record(folder)

    assert any("larger than a record" in damage for damage in record.damage)
    assert record.of(Sample)


BOMBS = {
    "empty lines": b"\n",
    "short lines": b'{"k":"sample","t":1,"m":1}\n',
    "lists": b'{"k":"sample","t":1,"m":1,"x":[' + b"[]," * 300_000 + b"1]}\n",
    "objects": b'{"k":"sample","t":1,"m":1,"x":[' + b'{"a":1},' * 100_000 + b"1]}\n",
    "texts": b'{"k":"sample","t":1,"m":1,"x":[' + b'"ab",' * 100_000 + b"1]}\n",
    "wide texts": b'{"k":"said","t":1,"m":1,"text":"' + b"x" * 3_000_000 + "\U0001f600".encode() + b'"}\n',
    "sources": b'{"k":"source","t":1,"m":1,"file":"/a","text":"' + b"ab\\n" * 500_000 + b'"}\n',
}
MEASURED = """
import sys
from holter.commands import main
try:
    main(sys.argv[1:])
finally:
    # Not what getrusage says: a child begins with the highest of the process that started it.
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    print(int(status["VmHWM"].split()[0]) // 1024, file=sys.stderr)
"""


@pytest.mark.parametrize("kind", BOMBS)
def test_some_kilobytes_do_not_fill_the_memory(real: Path, tmp_path: Path, kind: str) -> None:
    """Packed a thousand times over: a verdict is given within 300 MB, and what was left out is named."""
    folder = tmp_path / "record"
    shutil.copytree(real, folder)
    piece = BOMBS[kind]
    packed = gzip.compress(piece * ((18 << 20) // len(piece)), 1)
    for number in range(4):
        (folder / "timeline" / f"00001{number}.jsonl.gz").write_bytes(packed)
    if kind == "sources":
        (folder / place.SOURCES).write_bytes(piece * 8)
    done = subprocess.run([sys.executable, "-c", MEASURED, "why", str(folder)], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert "larger than a record of Holter's can be" in " ".join(done.stdout.split())
    assert int(done.stderr.split()[-1]) < 300


def test_one_hostile_record_costs_the_list_of_runs_its_own_line_alone(real: Path, tmp_path: Path) -> None:
    """The others are listed as they were."""
    runs = tmp_path / "home" / "runs"
    for number in (1, 2, 3):
        shutil.copytree(real, runs / f"r-000{number}")
    (runs / "r-0002" / place.META).write_bytes(b'{"schema":1,"x":' + b"[" * 300_000)
    environ = {**os.environ, "HOLTER_HOME": str(tmp_path / "home")}
    done = subprocess.run([sys.executable, "-m", "holter", "ls"], env=environ, capture_output=True, text=True)
    listed = [
        line.split()[0] + (" unreadable" if "unreadable" in line else "") for line in done.stdout.splitlines()[1:]
    ]

    assert (done.returncode, listed) == (0, ["r-0003", "r-0002 unreadable", "r-0001"]), done.stderr


def make(base: Path, name: str | None = None) -> Path:
    folder = place.new_run(base)
    RecordWriter(folder).meta({"schema": 1, "id": folder.name, "name": name})
    return folder


def test_a_run_is_found_by_id_name_or_folder(tmp_path: Path) -> None:
    """The last one without a word; of two with one name the later."""
    first, second, third = make(tmp_path, "alpha"), make(tmp_path, "beta"), make(tmp_path, "alpha")

    assert find(None, tmp_path) == third
    assert find("r-0001", tmp_path) == first
    assert find("beta", tmp_path) == second
    assert find("alpha", tmp_path) == third
    assert find(str(second), tmp_path) == second


@pytest.mark.parametrize("name", ["r-0009", "gamma", "../x", "", "x" * 5000, "a/b/c", "~"])
def test_an_unknown_run_is_told_as_such(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a name that no file could have."""
    make(tmp_path, "alpha")
    monkeypatch.chdir(tmp_path)

    with pytest.raises(UnknownRun if name else DamagedRecord):
        find(name, tmp_path)


def test_no_run_at_all_says_how_to_make_one(tmp_path: Path) -> None:
    """An empty home, and one that is not there."""
    with pytest.raises(UnknownRun, match="holter run"):
        find(None, tmp_path / "nowhere")


def test_a_run_that_could_write_nothing_is_not_the_last_one(tmp_path: Path) -> None:
    """A full disk leaves an empty folder: the verdict is on the run before it."""
    good = make(tmp_path)
    place.new_run(tmp_path)

    assert find(None, tmp_path) == good


def test_two_runs_that_start_at_once_get_two_numbers(tmp_path: Path) -> None:
    """The number that is taken is passed over, also after a gap."""
    place.new_run(tmp_path)
    (tmp_path / "runs" / "r-0004").mkdir()

    assert [place.new_run(tmp_path).name for _ in range(2)] == ["r-0005", "r-0006"]
    assert place.run_ids(tmp_path) == ["r-0001", "r-0004", "r-0005", "r-0006"]


def test_the_folders_are_private(tmp_path: Path) -> None:
    """Whatever the umask says."""
    before = os.umask(0)
    try:
        folder = make(tmp_path / "home")
    finally:
        os.umask(before)

    modes = {path.name: path.stat().st_mode & 0o777 for path in [folder, folder.parent, *folder.iterdir()]}
    assert set(modes.values()) == {0o700, 0o600}
    assert modes[place.META] == 0o600
