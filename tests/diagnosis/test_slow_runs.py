"""Slow runs: what waits for data, who makes them and in which line, who takes the CPU; and those that are well."""

from __future__ import annotations

import pytest
from build import MONO, TRAINER, WORKER, causes, ordinary_run

from holter.diagnosis.core.doctor import verdict

FILE = "/home/u/train.py"
SOURCE = [f"line {n}" for n in range(1, 40)]
LOADER = "loader = DataLoader(Photos(), batch_size=16)"
DATASET = {"file": FILE, "line": 14, "function": "__getitem__", "code": "x = blur(x)", "user": True}
FETCH = [
    {"file": "/v/site-packages/torch/utils/data/_utils/fetch.py", "line": 54, "function": "fetch", "user": False},
    {"file": "/v/site-packages/torch/utils/data/dataloader.py", "line": 733, "function": "_next_data", "user": False},
]
LOOP = {"file": FILE, "line": 30, "function": "<module>", "code": "for x, y in loader:", "user": True}
WORKER_LOOP = {"file": "/v/site-packages/torch/utils/data/_utils/worker.py", "line": 9, "function": "_worker_loop"}
BACKWARD = {"file": "/v/site-packages/torch/autograd/graph.py", "line": 8, "function": "_engine_run_backward"}


def slow_run(data, seconds=40, per_step=0.2, batch=16, **meta):
    """A run of steps of which a share waits for data; CPU and threads as a quiet machine has them."""
    record = ordinary_run(seconds=seconds, steps=False, cpus=4, **meta)
    n = max(1, round(1 / per_step))
    for second in range(5, seconds):
        parts = {"data": data, "forward": (1 - data) * 0.4, "backward": (1 - data) * 0.5, "other": (1 - data) * 0.1}
        record.steps(second, (second - 4) * n, n=n, batch=batch, min=per_step, max=per_step, **parts)
    return record


def loader(record, num_workers=0, **more):
    fields = {"what": "loader", "name": "DataLoader", "file": FILE, "line": 20, "function": "<module>", "code": LOADER}
    facts = {"num_workers": num_workers, "batch_size": 16, "persistent_workers": False, "shuffle": True}
    return record.event("made", 4, pid=TRAINER, made=1, alive=1, **fields, **facts, **more)


def look(record, at, frames, pid=TRAINER, role="trainer", **fields):
    thread = {"name": "", "main": "tid" not in fields, "frames": frames}
    fields_of_stacks = {"reason": "slow", "round": 1, "via": "faulthandler", "at": MONO + at, **fields}
    return record.event("stacks", at, pid=pid, role=role, threads=[thread], **fields_of_stacks)


def looks(record, frames, n=12, **fields):
    for at in range(n):
        look(record, 8 + at * 2, frames, **fields)
    return record


def first(record):
    return verdict(record.exit(45, code=0)).findings[0]


def test_a_transform_that_takes_most_of_the_step_is_named_by_its_line():
    record = loader(slow_run(data=0.8))
    looks(record, [DATASET, *FETCH, LOOP], state="R", phase="data")

    found = first(record)
    assert (found.cause, found.grade) == ("input-bound.slow-transform", "established")
    assert found.culprit.line == 14
    assert "80 % of each step, 160 ms, waits for data" in found.claim
    assert "+loader = DataLoader(Photos(), batch_size=16, num_workers=4, persistent_workers=True)" in found.cures[0].how


@pytest.mark.parametrize(("per_step", "reported"), [(0.02, True), (0.004, False)])
def test_short_waits_count_where_each_sample_takes_long(per_step, reported):
    """A tokenizer in Python takes 0.7 ms for each of 16 texts; what takes a fifth of that is only put together."""
    record = loader(slow_run(data=0.56, per_step=per_step), num_workers=1)
    looks(record, [DATASET], pid=77, role="worker", state="R")

    assert causes(verdict(record.exit(45, code=0))) == (["input-bound.slow-transform"] if reported else [])


def test_a_loop_over_a_dataset_of_tensorflow_s_is_told_as_one():
    """It has no loader and no workers to speak of; whole batches are made, however many samples are in them."""
    record = slow_run(data=0.55, per_step=0.02, batch=96)
    record.events = [event for event in record.events if event["k"] != "adapter"]
    record.event("adapter", 1, pid=TRAINER, framework="tensorflow", version="2.21", state="on")

    found = first(record)
    assert found.family == "input-bound"
    assert "the tf.data pipeline" in found.claim
    assert "DataLoader" not in "".join(cure.how for cure in found.cures)


def test_threads_that_come_and_go_count_as_cpu_that_was_had():
    """A pipeline with new threads in every epoch: the kernel's account of its process has what they used."""
    record = slow_run(data=0.1)
    for second in range(5, 40):
        seen = {"list": [], "cpu": 0.3, "wait": 0.5, "wanting": 5, "wall": 1.0}
        rows = [{"pid": TRAINER, "name": "python", "rss": 1e9, "cpu_s": 1.2 * second, "state": "R"}]
        record.sample(second + 0.1, threads=seen, processes={"rss": 1e9, "cpu_s": 1.2 * second, "list": rows})

    assert causes(verdict(record.exit(45, code=0))) == []


def test_blocked_reads_without_workers_want_someone_who_works_ahead():
    record = loader(slow_run(data=0.9))
    sleep = DATASET | {"code": "time.sleep(0.02)"}
    looks(record, [sleep, *FETCH, LOOP], state="S", syscall="clock_nanosleep", phase="data")

    assert first(record).cause == "input-bound.no-prefetch"


def test_busy_workers_are_named_by_their_own_line():
    record = loader(slow_run(data=0.7), num_workers=4)
    looks(record, [*FETCH, LOOP], state="S", syscall="poll", phase="data")
    for at in range(12):
        look(record, 9 + at, [DATASET, FETCH[0], WORKER_LOOP, LOOP], pid=WORKER, role="worker", state="R")

    found = first(record)
    assert (found.cause, found.culprit.line) == ("input-bound.slow-transform", 14)


def test_a_socket_in_the_dataset_is_a_slow_network():
    record = loader(slow_run(data=0.9))
    recv = {"file": "/usr/lib/python3.11/socket.py", "line": 706, "function": "readinto", "user": False}
    looks(record, [recv, DATASET, *FETCH, LOOP], state="S", syscall="recvfrom", phase="data")

    found = first(record)
    assert (found.cause, found.culprit.line) == ("input-bound.slow-network", 14)


def test_reads_of_files_are_a_slow_disk():
    record = loader(slow_run(data=0.9))
    looks(record, [DATASET, *FETCH, LOOP], state="D", syscall="read", path="/data/0001.png", phase="data")

    assert first(record).cause == "input-bound.slow-disk"


def test_workers_started_anew_for_every_epoch():
    record = loader(slow_run(data=0.8), num_workers=2)
    starts = {"file": "/v/site-packages/torch/utils/data/dataloader.py", "line": 4, "function": "_shutdown_workers"}
    looks(record, [starts, FETCH[1], LOOP], state="S", phase="data")
    for n in range(60):
        record.event("guest", 6 + n / 2, pid=100 + n, ppid=TRAINER, role="worker")

    found = first(record)
    assert (found.cause, found.culprit.line) == ("input-bound.workers-restarted", 20)
    assert "persistent_workers=True" in found.cures[0].how


def keras_run(forward=1.0, kind="tf.data", **feed):
    record = slow_run(data=0.0)
    record.event("input", 5, pid=TRAINER, kind=kind, name="X", file=FILE, line=20, prefetch=False)
    event = {"calls": 100, "busy": 30.0, "cpu": 28.0, "elements": 160, "work": 30.0, "looks": 20, "empty": 20}
    record.event("feed", 38, pid=TRAINER, step=165, **{**event, **feed})
    for second in range(5, 40):
        rows = [{"pid": TRAINER, "name": "python", "rss": 1e9, "cpu_s": second * forward, "state": "S"}]
        record.sample(second + 0.1, processes={"rss": 1e9, "cpu_s": second * forward, "threads": 9, "list": rows})
    return record


def fit_and_feed(record):
    """Look at the main thread, which stands in `fit`, and at the thread that makes the data."""
    looks(record, [{"file": "/v/site-packages/keras/x.py", "line": 1, "function": "fit"}, LOOP], state="S")
    call = {"file": "/v/site-packages/tensorflow/python/ops/script_ops.py", "line": 9, "function": "__call__"}
    return looks(record, [DATASET, call], tid=77, state="R")


def test_a_pipeline_that_makes_each_batch_only_when_asked():
    """tf.data's own account: the stages worked for most of the step, and no stage works ahead."""
    record = keras_run(ahead="")
    fit_and_feed(record)

    found = first(record)
    assert found.cause == "input-bound.slow-transform"
    assert found.culprit.line == 14
    assert "AUTOTUNE" in found.cures[0].title


def test_a_pipeline_that_works_ahead_and_is_always_empty():
    record = keras_run(ahead="Prefetch", kind="generator", cpu=27.0)
    fit_and_feed(record)

    assert first(record).family == "input-bound"


def test_threads_of_a_pipeline_that_come_and_go_hide_none_of_its_work():
    """What its calls into Python used is known, whichever threads of it were seen."""
    record = keras_run(ahead="MapAndBatch", work=34.0, cpu=33.0)
    record.event("data-thread", 6, pid=TRAINER, tid=77)
    for second in range(5, 40):
        busy = [{"pid": TRAINER, "tid": 77, "name": "python", "cpu": 0.1}]
        record.sample(second + 0.2, threads={"list": busy, "wall": 1.0})
    fit_and_feed(record)

    assert first(record).family == "input-bound"


def test_a_pipeline_that_always_has_a_batch_ready_is_well():
    record = keras_run(ahead="Prefetch", empty=1)

    assert causes(verdict(record.exit(45, code=0))) == []


def test_a_pipeline_that_never_rests_sets_the_pace_whatever_its_buffer_says():
    """One batch may lie ready at each look, just before it is taken."""
    record = keras_run(ahead="Prefetch", kind="pydataset", empty=1, work=36.0, cpu=30.0)
    fit_and_feed(record)

    assert first(record).family == "input-bound"


@pytest.mark.parametrize("empty", [0, 20])
def test_a_busy_generator_beside_a_step_that_computes_as_long_is_well(empty):
    """The data are made while the step computes: both are busy all the time, and nothing waits."""
    record = keras_run(ahead="Prefetch", kind="generator", forward=1.9, empty=empty, cpu=28.0)

    assert causes(verdict(record.exit(45, code=0))) == []


def test_batches_fetched_by_the_script_itself_are_known_by_its_looks():
    record = slow_run(data=0.0)
    for line in record.lines("steps"):
        line.update(forward=0.1, backward=0.1, other=0.8)
    fetch = {"file": FILE, "line": 9, "function": "load_batch", "code": "return np.load(path)", "user": True}
    looks(record, [fetch, LOOP], state="S", syscall="read", path="/data/1.npy", phase="other")

    found = first(record)
    assert (found.cause, found.culprit.line) == ("input-bound.slow-disk", 9)


def test_a_loop_that_pauses_on_purpose_is_left_alone():
    record = slow_run(data=0.0)
    for line in record.lines("steps"):
        line.update(forward=0.1, backward=0.1, other=0.8)
    looks(record, [LOOP | {"code": "time.sleep(0.1)"}], state="S", syscall="clock_nanosleep", phase="other")

    assert causes(verdict(record.exit(45, code=0))) == []


@pytest.mark.parametrize(
    ("data", "per_step", "batch", "seconds"),
    [
        (0.2, 0.2, 16, 40),  # a fifth of the step
        (0.6, 0.002, 64, 40),  # putting a batch together, in a toy
        (0.7, 0.012, 512, 40),  # many small samples: 16 microseconds each
        (0.9, 0.2, 16, 12),  # six seconds of training say nothing yet
    ],
)
def test_loops_that_are_well(data, per_step, batch, seconds):
    record = loader(slow_run(data=data, per_step=per_step, batch=batch, seconds=seconds))
    looks(record, [DATASET, *FETCH, LOOP], state="R", phase="data")

    assert causes(verdict(record.exit(seconds + 5, code=0))) == []


def test_a_first_batch_that_takes_long_is_paid_once():
    record = loader(slow_run(data=0.05, per_step=0.2))
    record.steps(4, 0, n=1, sum=60.0, data=60.0)

    assert causes(verdict(record.exit(45, code=0))) == []


def test_a_first_epoch_that_fills_a_cache_is_paid_once():
    record = loader(slow_run(data=0.95))
    for line in record.lines("steps"):
        if line["m"] > MONO + 25:
            line.update(data=0.02, forward=0.98)

    assert causes(verdict(record.exit(45, code=0))) == []


def test_a_busy_gpu_has_its_data_in_time():
    record = loader(slow_run(data=0.7))
    for second in range(5, 40):
        record.sample(second + 0.3, nvidia={"list": [{"index": 0, "tree": 4e9, "used": 4e9, "total": 8e9, "util": 93}]})

    assert causes(verdict(record.exit(45, code=0))) == []


def test_an_idle_gpu_is_told():
    record = looks(loader(slow_run(data=0.7)), [DATASET, *FETCH, LOOP], state="R", phase="data")
    for second in range(5, 40):
        record.sample(second + 0.3, nvidia={"list": [{"index": 0, "tree": 4e9, "used": 4e9, "total": 8e9, "util": 21}]})

    assert "21 % busy" in [evidence.value for evidence in first(record).evidence]


def test_a_function_of_the_forward_pass_is_no_data_whatever_its_name():
    record = slow_run(data=0.0)
    for line in record.lines("steps"):
        line.update(forward=0.5, backward=0.0, other=0.5)
    block = {"file": FILE, "line": 9, "function": "transform_batch", "code": "return x @ w", "user": True}
    looks(record, [block, LOOP], state="R", phase="forward")

    assert causes(verdict(record.exit(45, code=0))) == []


def test_a_long_validation_is_no_wait_for_data():
    record = loader(slow_run(data=0.5))
    for line in record.lines("steps"):
        line["validation"] = 4.0

    assert causes(verdict(record.exit(45, code=0))) == []


def test_the_pace_is_told_where_it_changed():
    record = loader(slow_run(data=0.8))
    for at, line in enumerate(record.lines("steps")):
        line["n"] = 25 if at < 12 else 3
    looks(record, [DATASET, *FETCH, LOOP], state="R", phase="data")

    fields_of_stacks = [evidence.value for evidence in first(record).evidence if evidence.what == "pace"]
    assert fields_of_stacks == ["steps took 40 ms at first, 333 ms at the end"]


def test_a_run_that_is_on_has_the_same_verdict():
    record = loader(slow_run(data=0.8))
    looks(record, [DATASET, *FETCH, LOOP], state="R", phase="data")
    record.live = True

    assert causes(verdict(record)) == ["input-bound.slow-transform"]


# --- the CPU ----------------------------------------------------------------------------------------------


def queue(record, cpu, wait, wanting, load=1.0):
    for second in range(10, 40, 5):
        record.sample(
            second, threads={"list": [], "wall": 5.0, "cpu": cpu, "wait": wait, "wanting": wanting},
            load={"load1": load, "cpus": 4},
        )  # fmt: skip
    return record


def helpers(record, of_trainer, of_each, n=6, role="other"):
    """The run queue by thread: the trainer's one, and one of each helper."""
    rows = [{"pid": TRAINER, "tid": TRAINER, "name": "python", "cpu": of_trainer[0], "wait": of_trainer[1]}]
    rows += [{"pid": 700 + k, "tid": 700 + k, "name": "python", "cpu": of_each, "wait": 0.1} for k in range(n)]
    for second in range(10, 40, 5):
        used = of_trainer[0] + n * of_each
        record.sample(second, threads={"list": rows, "wall": 5.0, "cpu": used, "wait": 1.0, "wanting": n + 1})
    for k in range(n):
        record.event("process-gone", 39, pid=700 + k, role=role)
    return record


def test_helpers_that_never_sleep_take_the_cpu_from_the_trainer():
    """Six processes of the script's own have three of four cores, and the trainer waits most of the time."""
    record = helpers(slow_run(data=0.0), of_trainer=(0.3, 0.7), of_each=0.5)
    record.event("made", 4, pid=TRAINER, what="model", name="Net", file=FILE, line=9, made=1, alive=1)
    record.sources[FILE] = ["import subprocess", "w = [subprocess.Popen([exe, n]) for n in names]", "model = Net()"]

    found = first(record)

    assert (found.cause, found.grade, found.culprit.line) == ("cpu.own-processes", "supported", 2)
    assert "6 helper processes of the run's own take 3.0 of 4 cores" in found.claim


@pytest.mark.parametrize(
    ("data", "of_trainer", "of_each", "role"),
    [
        (0.0, (0.3, 0.7), 0.02, "other"),  # they sleep: others have the CPU
        (0.0, (0.95, 0.05), 0.5, "other"),  # there are cores enough
        (0.8, (0.1, 0.2), 0.5, "other"),  # they make the data that the training waits for
        (0.0, (0.3, 0.7), 0.5, "worker"),  # they are its data workers
    ],
)
def test_helpers_that_take_nothing_from_the_trainer(data, of_trainer, of_each, role):
    record = helpers(slow_run(data=data), of_trainer, of_each, role=role)

    assert "cpu.own-processes" not in causes(verdict(record.exit(45, code=0)))


def test_far_more_threads_than_cores():
    record = queue(slow_run(data=0.0), cpu=3.9, wait=24.0, wanting=32)
    record.event("settings", 6, pid=TRAINER, framework="torch", intra_op=32, inter_op=4)
    record.event("made", 4, pid=TRAINER, what="model", name="Net", file=FILE, line=9, made=1, alive=1)
    record.sources[FILE] = ["import torch", "torch.set_num_threads(32)", "model = Net()"]

    found = first(record)
    assert (found.cause, found.grade, found.culprit.line) == ("cpu.oversubscribed", "supported", 2)
    assert "+torch.set_num_threads(4)" in found.cures[0].how


def test_a_wait_for_data_yields_to_threads_that_stand_in_each_others_way():
    record = queue(loader(slow_run(data=0.8), num_workers=4), cpu=3.9, wait=24.0, wanting=32)
    record.event("settings", 6, pid=TRAINER, framework="torch", intra_op=32, inter_op=4)

    assert causes(verdict(record.exit(45, code=0))) == ["cpu.oversubscribed"]


@pytest.mark.parametrize(("each", "cause"), [(2, "cpu.oversubscribed"), (1, "input-bound.slow-transform")])
def test_workers_that_compute_with_several_threads_stand_in_each_others_way(each, cause):
    """Four workers with two threads each on two cores; with one thread each they are only slow."""
    record = loader(slow_run(data=0.8), num_workers=4)
    record.meta["cpus"] = 2
    threads = [(WORKER + worker, thread) for worker in range(4) for thread in range(each)]
    listed = [
        {"pid": pid, "tid": 100 * pid + n, "name": "pt_data_worker", "cpu": 0.2, "wait": 0.7} for pid, n in threads
    ]
    queue(record, cpu=1.6, wait=6.4, wanting=4 * each)
    for line in record.lines("sample"):
        if "threads" in line:
            line["threads"]["list"] = listed
    for worker in range(4):
        record.event("guest", 3, pid=WORKER + worker, ppid=TRAINER, role="worker")
    found = first(record)

    assert found.cause == cause
    assert each == 1 or "each of 4 data workers computes with 2 threads" in found.claim


def test_a_quick_loader_on_a_crowded_machine_is_not_to_blame():
    """Putting a batch together takes 40 ms here, and would take 4 with a core of its own."""
    record = looks(loader(slow_run(data=0.6, per_step=0.07)), [DATASET, *FETCH, LOOP], state="R", phase="data")
    queue(record, cpu=0.2, wait=1.8, wanting=2, load=20.0)

    assert causes(verdict(record.exit(45, code=0))) == ["cpu.starved"]


def test_as_many_threads_as_cores_are_well():
    record = queue(slow_run(data=0.0), cpu=3.8, wait=0.4, wanting=5)
    record.event("settings", 6, pid=TRAINER, framework="torch", intra_op=4, inter_op=4)

    assert causes(verdict(record.exit(45, code=0))) == []


def test_pools_with_more_threads_than_cores_on_a_busy_machine_are_not_to_blame():
    """TensorFlow's pools hold a thread per core each; on a busy machine all of them wait at times."""
    record = queue(slow_run(data=0.0), cpu=0.9, wait=2.4, wanting=14, load=9.0)

    assert "cpu.oversubscribed" not in causes(verdict(record.exit(45, code=0)))


def test_workers_with_a_thread_each_are_as_they_should_be():
    record = queue(loader(slow_run(data=0.8), num_workers=12), cpu=3.9, wait=9.0, wanting=13)
    record.event("settings", 6, pid=TRAINER, framework="torch", intra_op=4, inter_op=4)
    for at in range(12):
        look(record, 9 + at, [DATASET, FETCH[0], WORKER_LOOP, LOOP], pid=WORKER, role="worker", state="R")

    assert causes(verdict(record.exit(45, code=0))) == ["input-bound.slow-transform"]


def test_other_programs_that_take_nearly_all():
    found = first(queue(slow_run(data=0.0), cpu=0.6, wait=3.4, wanting=4, load=24.0))

    assert (found.cause, found.grade) == ("cpu.starved", "supported")
    assert "15 %" in found.claim


def test_a_busy_machine_that_still_gives_its_share_is_no_more_than_a_guess():
    findings = verdict(queue(slow_run(data=0.0), cpu=1.7, wait=2.3, wanting=4, load=9.0).exit(45, code=0)).findings

    assert [(finding.cause, finding.grade) for finding in findings] == [("cpu.starved", "hypothesis")]


def test_a_quota_that_holds_the_run_back():
    record = slow_run(data=0.0)
    for second in range(5, 40):
        record.sample(
            second + 0.2,
            cgroup={"path": "/a", "cpu_limit": 0.5, "cpu_throttled_s": second * 0.8},
            processes={"rss": 1e9, "cpu_s": second * 0.5},
        )

    found = first(record)
    assert (found.cause, found.grade) == ("cpu.throttled", "established")
    assert "0.5 of 4 cores" in found.claim


def test_a_quota_that_is_hit_now_and_then_is_well():
    record = slow_run(data=0.0)
    for second in range(5, 40):
        record.sample(
            second + 0.2,
            cgroup={"path": "/a", "cpu_limit": 2, "cpu_throttled_s": second * 0.02},
            processes={"rss": 1e9, "cpu_s": second * 1.2},
        )

    assert causes(verdict(record.exit(45, code=0))) == []
