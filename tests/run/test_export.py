"""`holter run --export`: numbers and findings where people already look, and a run that never knows of it."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Holter
from tests.endings.conftest import memory_cgroup  # noqa: F401 - a fixture
from tests.needs import needs
from tests.views.collecting import Collector, event_file, wandb_stats

SICK = """
import time, holter
for i in range(60):
    time.sleep(0.05)
    holter.step(loss=1.0 / (i + 1))
raise ValueError('odd, with token=sk-abcdefghijklmnopqrstuvwxyz123456')
"""


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def test_a_collector_gets_gauges_and_the_findings_as_events(holter: Holter, collector: Collector) -> None:
    """The run is the resource; a finding has its cause, grade and line; secrets are masked; the exit code stays."""
    pytest.importorskip("opentelemetry.sdk")
    script = holter.script(SICK)
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_SERVICE_NAME": "resnet"}
    done = holter("run", "--name", "odd", "--export", "otel", "--", sys.executable, script, env=environ)
    resource, last = collector.gauges[-1]
    events = {event["event"]: event for event in collector.events}
    finding = events["holter.finding"]

    assert done.returncode == 1
    assert b"export to" not in done.stderr
    assert {"holter.run.id": "r-0001", "holter.run.name": "odd", "service.name": "resnet"}.items() <= resource.items()
    assert (last["holter_run_step"], last["holter_run_loss"]) == (60.0, pytest.approx(1 / 60))
    assert collector.units["holter_run_memory_bytes"] == "By"
    assert (finding["holter.cause"], finding["holter.grade"]) == ("user-error", "established")
    assert (finding["code.file.path"], finding["code.line.number"]) == (script, 6)
    assert "ValueError" in finding["body"]
    assert (events["holter.ending"]["holter.kind"], events["holter.ending"]["severity"]) == ("exception", "WARN")
    assert "sk-abcdefghij" not in json.dumps(collector.events)


def test_what_is_told_while_the_run_is_on_is_an_event_before_its_end(
    holter: Holter, collector: Collector, wait_for: Any
) -> None:
    """A hang is an alarm at the collector while the run still hangs."""
    pytest.importorskip("opentelemetry.sdk")
    script = holter.script(
        """
        import time, holter
        for i in range(60):
            time.sleep(0.02)
            holter.step()
        time.sleep(600)
        """
    )
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BLRP_SCHEDULE_DELAY": "500"}
    process = holter.start("run", "--export", "otel", "--", sys.executable, script, env=environ)
    alarm = wait_for(lambda: collector.events, "the alarm")[0]
    process.send_signal(signal.SIGTERM)

    assert (alarm["event"], process.wait(600)) == ("holter.alarm", 143)
    assert "no progress" in alarm["body"]


@pytest.mark.parametrize("kind", ["nobody listens", "nobody answers"])
def test_a_collector_that_takes_nothing_costs_a_moment_and_not_the_run(holter: Holter, kind: str) -> None:
    """The exit code comes, within seconds, with one line on what to do."""
    pytest.importorskip("opentelemetry.sdk")
    silent = socket.create_server(("127.0.0.1", 0))
    port = silent.getsockname()[1]
    if kind == "nobody listens":
        silent.close()
    begun = time.monotonic()
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"}
    done = holter("run", "--export", "otel", "--", sys.executable, "-c", "raise SystemExit(3)", env=environ)
    silent.close()
    export_lines = [line for line in done.stderr.decode().splitlines() if "export to" in line]

    assert (done.returncode, len(export_lines)) == (3, 1), done.stderr
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in export_lines[0]
    assert time.monotonic() - begun < 120  # a server's own patience would be far longer


@pytest.mark.parametrize(("tool", "cure"), [("otel", "'holter[otel]'"), ("mlflow", "mlflow-skinny")])
def test_a_package_that_is_missing_is_told_in_one_line(holter: Holter, tmp_path: Path, tool: str, cure: str) -> None:
    """With the command that installs it; the run is what it was."""
    if tool == "mlflow" and importlib.util.find_spec("mlflow") is not None:
        pytest.skip("MLflow is installed here")
    package = tmp_path / "path" / "opentelemetry"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ModuleNotFoundError('no such module')")
    slow = "import time; time.sleep(1); print(1)"
    environ = {"PYTHONPATH": str(package.parent)}
    done = holter("run", "--export", tool, "--", sys.executable, "-c", slow, env=environ)
    export_lines = [line for line in done.stderr.decode().splitlines() if "export to" in line]

    assert (done.returncode, done.stdout, len(export_lines)) == (0, b"1\n", 1), done.stderr
    assert f"pip install {cure}" in export_lines[0]


def test_a_tool_that_is_not_known_is_told_before_the_run(holter: Holter) -> None:
    """Exit code 2, those that are known, and the command is not started."""
    unknown = holter("run", "--export", "paper", "--", "touch", "started")
    too_much = holter("run", "--export", "otel=http://x", "--", "touch", "started")

    assert (unknown.returncode, too_much.returncode) == (2, 2)
    assert b"mlflow, otel, tensorboard, wandb" in unknown.stderr
    assert not (holter.folder / "started").exists()


def test_a_command_that_is_not_found_leaves_only_that_word(holter: Holter) -> None:
    """Exit code 127 and one line, whatever was to be exported."""
    done = holter("run", "--export", "tensorboard", "--", "no-such-program-here")

    assert (done.returncode, done.stderr.count(b"\n")) == (127, 1), done.stderr


def test_an_exporter_that_is_killed_costs_the_run_nothing(holter: Holter, wait_for: Any) -> None:
    """SIGKILL in the middle: the command ends as it would, and so does Holter."""
    script = holter.script(SICK)
    process = holter.start("run", "--export", "tensorboard=logs", "--", sys.executable, script)

    def exporter() -> int | None:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        for pid in children.read_text().split() if children.exists() else ():
            if b"holter.commands._exporter" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return int(pid)
        return None

    os.kill(wait_for(exporter, "the exporter's start"), signal.SIGKILL)
    _out, err = process.communicate(timeout=600)

    assert process.returncode == 1
    assert b"ValueError" in err
    assert b"export to" not in err


WRITERS = {
    "tensorflow": """
        import os; os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
        import tensorflow as tf, time, holter
        writer = tf.summary.create_file_writer("logs/train")
        with writer.as_default():
            for i in range(80):
                tf.summary.write("mine", i, step=i)
                time.sleep(0.05)
                holter.step(loss=1.0 / (i + 1))
        """,
    "tensorboard": """
        import time, holter
        from torch.utils.tensorboard import SummaryWriter
        writer = SummaryWriter("logs")
        for i in range(80):
            writer.add_scalar("mine", i, i)
            time.sleep(0.05)
            holter.step(loss=1.0 / (i + 1))
        """,
}


@pytest.mark.parametrize("package", sorted(WRITERS))
def test_a_run_named_holter_lies_beside_the_users_own(holter: Holter, package: str) -> None:
    """TensorFlow's writer and PyTorch's: found from outside, with steps on the axis; the user's file is left alone."""
    pytest.importorskip(package)
    if package == "tensorboard":
        pytest.importorskip("torch")
    done = holter("run", "--export", "tensorboard", "--", sys.executable, holter.script(WRITERS[package]))
    scalars, texts = event_file(holter.folder / "logs" / "holter")
    own = [path for path in (holter.folder / "logs").rglob("events.*") if path.parent.name != "holter"]

    assert (done.returncode, len(own)) == (0, 1), done.stderr
    assert scalars["holter/loss"][-1] == (80, pytest.approx(1 / 80))
    assert len(scalars["holter/memory_bytes"]) >= 2
    assert "80 steps" in texts["holter/ending"][0] or "completed" in texts["holter/ending"][0]


READER = """
import json, sys, tensorflow as tf
found = []
for record in tf.data.TFRecordDataset(sys.argv[1]).as_numpy_iterator():
    event = tf.compat.v1.Event.FromString(record)
    for value in event.summary.value:
        text = [one.decode() for one in value.tensor.string_val]
        found.append([value.tag, event.step, value.simple_value, text, value.metadata.plugin_data.plugin_name])
print(json.dumps(found))
"""


@pytest.mark.tensorflow
def test_tensorflow_reads_what_is_written(holter: Holter) -> None:
    """Lengths, checksums and fields are TFRecord's and TensorBoard's own; a hostile message stays a text."""
    needs("tensorflow")
    import subprocess

    from holter.views.export import Moment, News, Run
    from holter.views.export.tensorboard import Exporter

    run = Run("r-0001", "", (), "host", 1e9, str(holter.folder), {}, where="logs")
    exporter = Exporter(run, print)
    exporter.numbers(Moment(1e9, 300, {"loss": float("nan"), "memory_bytes": 2.0**40, "swap_bytes": 1e300}))
    exporter.news(News("finding", 1e9, "<b>é</b> | *x*", {"cause": "leak.`x`"}))
    exporter.close()
    (path,) = (holter.folder / "logs" / "holter").iterdir()
    done = subprocess.run([sys.executable, "-c", READER, str(path)], capture_output=True, check=True)
    loss, memory, swap, finding = json.loads(done.stdout)

    assert (loss[:2], str(loss[2])) == (["holter/loss", 300], "nan")
    assert (memory[2], swap[2]) == (2.0**40, float("inf"))
    assert finding == ["holter/finding", 300, 0.0, ["\\<b\\>é\\</b\\> \\| \\*x\\*\n\n- cause: `leak.'x'`"], "text"]


def test_no_event_file_is_told_with_what_to_say(holter: Holter) -> None:
    """A file of another run in the same folder is not taken for this one's."""
    (holter.folder / "runs").mkdir()
    (holter.folder / "runs" / f"events.out.tfevents.{int(time.time()) + 5}.host.1.0").touch()
    done = holter("run", "--export", "tensorboard", "--", "true")
    quiet = holter("run", "-q", "--export", "tensorboard", "--", "true")

    assert done.stderr.count(b"--export tensorboard=FOLDER") == 1
    assert (done.returncode, quiet.returncode, quiet.stderr) == (0, 0, b"")
    assert not (holter.folder / "runs" / "holter").exists()


ASKING = """
import json, os, time, urllib.error, urllib.request
import holter
own, ours = json.loads(os.environ["WANDB__STATS_OPEN_METRICS_ENDPOINTS"]).values()
text, until = "", time.monotonic() + 600
while "holter_run_memory_bytes{" not in text and time.monotonic() < until:
    for i in range(10):
        time.sleep(0.05)
        holter.step(loss=1.0)
    text = urllib.request.urlopen(ours).read().decode()
print(own, text)
try:
    urllib.request.urlopen(ours[:-1])
except urllib.error.HTTPError as error:
    print(error.code)
"""


def test_what_wandb_is_pointed_at_has_the_numbers(holter: Holter) -> None:
    """An address of this machine, beside the user's own endpoints; with another word than ours it says nothing."""
    environ = {"WANDB__STATS_OPEN_METRICS_ENDPOINTS": '{"mine": "http://x"}'}
    done = holter("run", "--export", "wandb", "--", sys.executable, holter.script(ASKING), env=environ)
    lines = done.stdout.decode().splitlines()

    assert (done.returncode, lines[0][:9], lines[-1]) == (0, "http://x ", "404"), done.stderr
    assert any(line.startswith('holter_run_memory_bytes{run="r-0001",name=""} ') for line in lines)
    assert b"never asked" not in done.stderr


def test_wandb_collects_the_numbers_by_itself(holter: Holter) -> None:
    """An offline run's file has them among its system metrics; no line of ours is in the script."""
    pytest.importorskip("wandb")
    script = holter.script(
        """
        import time, holter, wandb
        with wandb.init(project="p") as run:
            for i in range(120):
                time.sleep(0.05)
                holter.step(loss=1.0 / (i + 1))
        """
    )
    environ = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_X_STATS_SAMPLING_INTERVAL": "1"}
    done = holter("run", "--export", "wandb", "--", sys.executable, script, env=environ)
    (file,) = holter.folder.glob("wandb/offline-run-*/*.wandb")
    steps = [float(found.get("openmetrics.holter.holter_run_step.0", 0)) for found in wandb_stats(file)]

    assert done.returncode == 0, done.stderr
    assert 0 < max(steps) <= 120


STORES = {"where MLflow puts it": "", "in the environment": "sqlite:///elsewhere.db", "files": "file:mlruns"}


@pytest.mark.parametrize("store", sorted(STORES))
def test_an_mlflow_run_gets_metrics_by_step_and_findings_as_tags(holter: Holter, store: str) -> None:
    """The run of this command and no other one, in whatever store; its exit code and its own metrics stay."""
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    body = SICK.replace(
        "import time, holter", "import time, holter, mlflow\nmlflow.start_run()\nmlflow.log_metric('mine', 1)"
    )
    environ = {"MLFLOW_TRACKING_URI": STORES[store]} if STORES[store] else {}
    environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    other = "import mlflow, time; mlflow.start_run(); time.sleep(1)"
    holter.start("run", "-q", "--", sys.executable, "-c", other, env=environ).wait(600)
    done = holter("run", "--export", "mlflow", "--", sys.executable, holter.script(body), env=environ)
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    uri = (STORES[store] or "sqlite:///mlflow.db").replace("sqlite:///", f"sqlite:///{holter.folder}/")
    client = mlflow.MlflowClient(uri.replace("file:", f"file://{holter.folder}/"))
    ours, theirs = client.search_runs(["0"], order_by=["attributes.start_time DESC"])
    history = client.get_metric_history(ours.info.run_id, "holter/loss")

    assert (done.returncode, ours.data.metrics["mine"]) == (1, 1.0), done.stderr
    assert (history[-1].step, history[-1].value) == (60, pytest.approx(1 / 60))
    assert ours.data.tags["holter.finding.1"].startswith("user-error (established): ValueError")
    assert not any(name.startswith("holter") for name in (*theirs.data.metrics, *theirs.data.tags))


def test_without_an_mlflow_run_no_store_is_made(holter: Holter) -> None:
    """One line says what was looked for, and the folder is as it was."""
    pytest.importorskip("mlflow")
    done = holter("run", "--export", "mlflow", "--", "sleep", "1.5")

    assert (done.returncode, done.stderr.count(b"no MLflow run of this command was found")) == (0, 1)
    assert list(holter.folder.iterdir()) == []


def test_each_attempt_of_a_healed_run_is_exported(
    holter: Holter,
    collector: Collector,
    memory_cgroup: Callable[[int], Callable[[], None]],  # noqa: F811
) -> None:
    """A run that is started again is another record, and another resource at the collector."""
    pytest.importorskip("opentelemetry.sdk")
    script = holter.script(
        """
        import sys, time, holter
        grown = []
        for i in range(60):
            time.sleep(0.05)
            holter.step(loss=1.0)
            if "--again" not in sys.argv:
                grown.append(bytearray(b"x") * (20 << 20))
        """
    )
    words = ["run", "--heal", "--resume-args", "--again", "--export", "otel", "--", sys.executable, script]
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
    done = holter(*words, env=environ, preexec_fn=memory_cgroup(600 << 20))
    endings = {
        event["resource"]["holter.run.id"]: event for event in collector.events if event["event"] == "holter.ending"
    }

    assert done.returncode == 0, done.stderr
    assert {run: event["holter.kind"] for run, event in endings.items()} == {
        "r-0001": "oom-killed",
        "r-0002": "completed",
    }
