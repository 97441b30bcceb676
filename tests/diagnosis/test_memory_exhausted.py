"""Lack of memory: which family the curve speaks for."""

from __future__ import annotations

import pytest
from build import GB, MB, MONO, TRAINER, WORKER, causes, exception, memory, ordinary_run, without_memory

from holter.diagnosis.core.doctor import verdict

CUDA = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB"


def killed(curve, seconds=60, **run):
    """A run OOM-killed at its end, with a curve of bytes by second."""
    record = without_memory(ordinary_run(seconds=seconds, **run), 0)
    for second in range(seconds):
        memory(record, second, curve(second))
    return memory(record, seconds + 0.2, 1 * MB, oom_kill=1).exit(seconds, 137, "SIGKILL")


def test_steady_growth_over_the_steps_is_a_leak():
    """Growth all along up to the limit is a leak, with its rate per step."""
    diagnosis = verdict(killed(lambda second: 1 * GB + second * 6.9 * GB / 60))

    assert causes(diagnosis) == ["leak.native"]
    assert diagnosis.findings[0].grade == "supported"
    assert "per step" in diagnosis.findings[0].claim
    assert "8.0 GB" in diagnosis.findings[0].claim


def test_flat_then_gone_is_a_spike():
    """A flat curve and a sudden end after hundreds of steps is one step too large."""
    diagnosis = verdict(killed(lambda _: 2 * GB))

    assert causes(diagnosis) == ["oversize.spike"]
    assert "steady at 2.0 GB" in diagnosis.findings[0].claim


def test_a_jump_after_a_creep_of_kilobytes_is_a_spike():
    """What came within the last step alone is no growth over the steps, however steadily a trifle grew before it."""
    diagnosis = verdict(killed(lambda second: 2 * GB + second * 0.1 * MB if second < 59 else 7.9 * GB))

    assert causes(diagnosis) == ["oversize.spike"]


PADDED = """
import torch

def padded(samples):
    longest = max(map(len, samples))
    return torch.stack([torch.nn.functional.pad(s, (0, longest - len(s))) for s in samples])

loader = DataLoader(texts, batch_size=16, collate_fn=padded)
""".splitlines()


def with_batches(*shapes, at=551):
    """A run killed at its 551st step; the last of these batches is that step's."""
    record = killed(lambda second: (2 if second < 59 else 7.9) * GB)
    record.sources = {"/home/u/train.py": PADDED}
    made = {"what": "loader", "file": "/home/u/train.py", "line": 8, "collate_file": "/home/u/train.py"}
    record.event("made", 1, pid=TRAINER, collate_line=4, code=PADDED[7], **made)
    for number, shape in enumerate(shapes):
        last = number == len(shapes) - 1
        event = {"step": at if last else number + 1, "shapes": [[shape, "torch.int64"]]}
        record.event(
            "batch", 59 if last else 5 + number, pid=TRAINER, **event, **({"samples": [7, 777]} if last else {})
        )
    return record


def test_a_batch_far_larger_than_all_before_it_is_named_with_the_line_that_pads():
    """Its shape, that of the largest before it, and its samples: one of them is the long one."""
    found = verdict(with_batches([16, 96], [16, 99], [16, 40_000])).findings[0]

    assert (found.cause, found.grade) == ("oversize.spike", "supported")
    assert (
        "one batch is 16 × 40,000 (samples 7, 777 of the dataset), and the largest before it was 16 × 99" in found.claim
    )
    assert (found.culprit.line, "torch.stack" in found.culprit.code) == (6, True)


def test_a_pipeline_that_pads_is_the_line_where_no_loader_was_made():
    """A tf.data dataset has no collate function: `padded_batch` makes one tensor of all samples."""
    record = with_batches([16, 96], [16, 99], [16, 40_000])
    record.events = [event for event in record.events if event["k"] != "made"]
    record.lines("guest")[0]["file"] = "/home/u/train.py"
    record.sources = {"/home/u/train.py": ["import tensorflow as tf", "ds = ds.padded_batch(16)"]}

    assert verdict(record).findings[0].culprit.line == 2


@pytest.mark.parametrize("batches", [([16, 96], [16, 120]), ([16, 96],)], ids=["a little longer", "the only shape"])
def test_a_batch_like_the_others_is_not_to_blame(batches):
    found = verdict(with_batches(*batches)).findings[0]

    assert "one batch" not in found.claim


def test_a_large_batch_that_was_done_is_not_to_blame():
    found = verdict(with_batches([16, 96], [16, 40_000], at=300)).findings[0]

    assert "one batch" not in found.claim


def test_noise_on_a_flat_curve_is_no_leak():
    """A sawtooth of garbage collection is not growth."""
    diagnosis = verdict(killed(lambda second: 2 * GB + (second % 7) * 60 * MB))

    assert causes(diagnosis) == ["oversize.spike"]


def test_caches_that_fill_at_first_are_no_leak():
    """Growth in the first fifth and a plateau after it is no leak."""
    diagnosis = verdict(killed(lambda second: min(3 * GB, 1 * GB + second * 0.25 * GB)))

    assert causes(diagnosis) == ["oversize.spike"]


def test_one_jump_to_a_new_level_is_no_leak():
    """Memory that doubles once, as when validation begins, and then stays is no growth."""
    diagnosis = verdict(killed(lambda second: 2 * GB if second < 35 else 6 * GB))

    assert [(f.cause, f.grade) for f in diagnosis.findings] == [("oversize.spike", "hypothesis")]


def test_uneven_growth_is_a_hypothesis():
    """Growth in bursts may be a leak, and is told as a guess."""
    diagnosis = verdict(killed(lambda second: 1 * GB + (second >= 20) * 2 * GB + (second >= 50) * 4.5 * GB))

    assert [(f.cause, f.grade) for f in diagnosis.findings] == [("leak.native", "hypothesis")]


def test_first_steps_are_the_batch():
    """Memory gone within the first steps: the batch."""
    record = killed(lambda second: 2 * GB + second * GB, seconds=6, steps=False).steps(5, 2, n=2)

    assert [(f.cause, f.grade) for f in verdict(record).findings] == [("oversize.batch", "supported")]


def test_quick_first_steps_are_the_batch_too():
    """Ten steps in the one second there was are no long flat curve."""
    diagnosis = verdict(killed(lambda second: 2 * GB + second * GB, seconds=6))

    assert [(f.cause, f.grade) for f in diagnosis.findings] == [("oversize.batch", "hypothesis")]


def test_before_the_first_step_is_the_data_or_the_model():
    """Memory gone before any step: the data, or the model where one had been made."""
    loading = killed(lambda second: second * 0.5 * GB, seconds=16, steps=False)
    made = killed(lambda second: second * 0.5 * GB, seconds=16, steps=False)
    made.event("made", 3, what="model", name="Net", made=1, alive=1)

    assert [(f.cause, f.grade) for f in verdict(loading).findings] == [("oversize.data", "hypothesis")]
    assert [(f.cause, f.grade) for f in verdict(made).findings] == [("oversize.model", "hypothesis")]


def test_steady_growth_where_no_adapter_could_see_steps():
    """A program whose steps nobody sees and that grows all along may leak; that is a guess."""
    record = killed(lambda second: second * 0.13 * GB, steps=False)
    record.events = [event for event in record.events if event["k"] != "adapter"]

    assert [(f.cause, f.grade) for f in verdict(record).findings] == [("leak.native", "hypothesis")]


def test_cuda_out_of_memory_in_the_first_step_blames_the_batch_and_the_line():
    """A CUDA OOM in the forward of step 1 is the batch, with the user's line and what was asked for."""
    record = ordinary_run(seconds=6, steps=False)
    record.sample(5.5, guests=[{"pid": 10, "phase": "forward", "step": 0, "epoch": 1}])
    record.sample(5.6, nvidia={"list": [{"index": 0, "total": 8e9, "used": 7.9e9, "tree": 7.5e9}]})

    diagnosis = verdict(exception(record, 6, "OutOfMemoryError", CUDA, line=23).exit(6.5, 1))

    assert causes(diagnosis) == ["oversize.batch"]
    assert diagnosis.findings[0].culprit.line == 23
    assert "2.1 GB" in diagnosis.findings[0].claim


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("MemoryError", ""),
        ("numpy.core._exceptions._ArrayMemoryError", "Unable to allocate 745. GiB for an array with shape (10,)"),
        ("RuntimeError", "MPS backend out of memory (MPS allocated: 8 GB)"),
        ("ResourceExhaustedError", "OOM when allocating tensor with shape[64,3] on /device:GPU:0"),
        ("RuntimeError", "[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory"),
        ("OSError", "[Errno 12] Cannot allocate memory"),
    ],
)
def test_every_wording_of_a_refused_allocation_is_known(kind, message):
    """Each framework's words for lack of memory give a memory cause, and the bare exception gives way."""
    diagnosis = verdict(exception(ordinary_run(), 59, kind, message).exit(60, 1))

    assert diagnosis.findings[0].family in ("oversize", "leak")
    assert "user-error" not in causes(diagnosis)


@pytest.mark.parametrize(("heal", "family"), [("safe", "oversize"), (None, "user-error")])
def test_what_onednn_says_without_memory_is_memory_only_under_heals_own_limit(heal, family):
    """It gets no pages for its code, and says no more than this."""
    record = exception(ordinary_run(heal=heal), 59, "RuntimeError", "could not create a primitive").exit(60, 1)

    assert causes(verdict(record))[0].startswith(family)


def test_error_that_only_mentions_memory_is_an_ordinary_one():
    """pin_memory and memory_format are not lack of memory."""
    record = exception(ordinary_run(), 59, "TypeError", "pin_memory got memory_format=None").exit(60, 1)

    assert causes(verdict(record)) == ["user-error"]


def test_high_memory_in_a_completed_run_is_no_finding():
    """97 % of the limit and a clean end is no illness."""
    record = without_memory(ordinary_run(planned=550), 5)
    for second in range(5, 60):
        memory(record, second, 7.8 * GB)

    assert verdict(record.exit(60, 0)).healthy


def test_growth_is_measured_by_steps_not_by_time():
    """A second of leaking after a long import, read ten times, is a leak all the same."""
    record = without_memory(ordinary_run(seconds=40, steps=False), 0)
    for second in range(38):
        memory(record, second, min(2.0, 0.2 + second * 0.05) * GB)
    for tenth in range(16):
        at = 38 + tenth / 10
        memory(record, at, (2 + 0.37 * tenth) * GB)
        record.steps(at, 1 + tenth * 20, n=20, sum=0.1)
    memory(record, 39.7, 1 * MB, oom_kill=1).exit(39.6, 137, "SIGKILL")

    assert [(f.cause, f.grade) for f in verdict(record).findings] == [("leak.native", "supported")]


def test_one_jump_read_many_times_is_a_spike():
    """Near the limit the readings are dense: twenty of one jump do not outweigh the flat steps before it."""
    record = without_memory(ordinary_run(seconds=30), 0)
    for second in range(30):
        memory(record, second, 2 * GB)
    for twentieth in range(20):
        memory(record, 29.1 + twentieth / 20, (2 + 0.3 * twentieth) * GB)
    memory(record, 30.3, 1 * MB, oom_kill=1).exit(30.2, 137, "SIGKILL")

    assert [(f.cause, f.grade) for f in verdict(record).findings] == [("oversize.spike", "supported")]


def memory_look(record, at, used, line, limit=8 * GB, file="/home/u/train.py", within=()):
    """Add the stacks that were taken while memory shot up."""
    frames = [{"file": path, "line": 1, "function": "f", "user": False} for path in within]
    frames.append({"file": file, "line": line, "function": "contrast", "user": True, "code": "sim = z @ z.t()"})
    threads = [{"name": "main", "main": True, "frames": frames}]
    return record.event("stacks", at + 0.1, pid=TRAINER, reason="memory", used=used, limit=limit, at=MONO + at,
                        threads=threads)  # fmt: skip


@pytest.mark.parametrize(("workers", "held"), [(0, 1.5 * GB), (1, 1.8 * GB), (2, 2.1 * GB)])
def test_pages_of_files_and_pages_counted_twice_are_not_in_the_runs_curve(workers, held):
    """A limit need have no room for files that are read; it was measured with two processes, and holds for others."""
    from holter.diagnosis.memory.memory import memory_curve

    record = without_memory(ordinary_run(seconds=10), 0)
    sizes = {"rss": 2 * GB + workers * 1.8 * GB, "count": 1 + workers}
    measured = {"rss": 3.8 * GB, "pss": 2.3 * GB, "file": 0.5 * GB}
    record.sample(1, processes={"rss": 3.8 * GB, "count": 2}, proportional=measured)
    record.sample(9, processes=sizes)

    assert memory_curve(record).last == held


def test_workers_that_were_never_measured_hold_what_is_beyond_their_parents_pages():
    """Workers of a short epoch are gone before the next measurement: each said what it had from its parent."""
    from holter.diagnosis.memory.memory import memory_curve

    record = without_memory(ordinary_run(seconds=10), 0)
    sizes = {TRAINER: 2 * GB, WORKER: 2 * GB, WORKER + 1: 1.5 * GB}
    rows = [{"pid": pid, "rss": rss, "shared": 0} for pid, rss in sizes.items()]
    for pid in (WORKER, WORKER + 1):
        record.event("guest", 5, pid=pid, ppid=TRAINER, role="worker", inherited=1.5 * GB)
    record.sample(
        1, processes={"rss": 2 * GB, "count": 1, "list": rows[:1]}, proportional={"rss": 2 * GB, "pss": 2 * GB}
    )
    record.sample(6, processes={"rss": 5.5 * GB, "count": 3, "list": rows})

    assert memory_curve(record).last == 2.5 * GB


def test_a_file_that_is_read_into_memory_bit_by_bit_is_no_growth():
    """Between two measurements of all pages the process's own count of mapped pages tells it."""
    from holter.diagnosis.memory.memory import memory_curve

    record = without_memory(ordinary_run(seconds=10), 0)
    for second in range(1, 10):
        row = {"pid": TRAINER, "rss": (2 + second) * GB, "shared": second * GB}
        measured = {"rss": 3 * GB, "pss": 2.5 * GB, "file": 0.5 * GB} if second == 1 else {}
        processes = {"rss": row["rss"], "count": 1, "list": [row]}
        record.sample(second, processes=processes, **({"proportional": measured} if measured else {}))

    assert {held for _, held in memory_curve(record).points} == {2 * GB}


def test_what_other_programs_hold_is_not_in_the_runs_curve():
    """Against the machine's memory a look between samples counts every program: the run's peak is its own."""
    from holter.diagnosis.memory.memory import memory_curve

    record = ordinary_run()
    for line in record.timeline:
        if line["k"] == "sample":
            line.pop("cgroup", None)
            line["memory"] = {"total": 25 * GB, "available": 16 * GB}
    memory_look(record, 30, 9 * GB, 8, limit=25 * GB)

    curve = memory_curve(record)

    assert (curve.kind, curve.limit) == ("ram", 25 * GB)
    assert curve.peak < 3 * GB


def test_a_kill_names_the_line_at_which_memory_shot_up():
    """The line that gained the most on the last climb, which a kill's missing traceback can't tell."""
    record = killed(lambda _: 2 * GB)
    for at, used, line in ((59.1, 2.5 * GB, 31), (59.2, 4 * GB, 8), (59.3, 6 * GB, 8), (59.4, 7.5 * GB, 9)):
        memory_look(record, at, used, line)

    first = verdict(record).findings[0]

    assert (first.cause, first.culprit.line) == ("oversize.spike", 8)


def test_a_climb_before_the_first_step_is_told_by_where_it_happened():
    """Inside the framework's layers it is the model, in the user's own lines the data."""
    found = []
    for within in ((), ("/x/site-packages/torch/nn/modules/linear.py",)):
        record = killed(lambda _: 1 * GB, steps=False)
        for n in range(5):
            memory_look(record, 58 + n / 10, (2 + n) * GB, 5, within=within)
        found.append((verdict(record).findings[0].cause, verdict(record).findings[0].grade))

    assert found == [("oversize.data", "supported"), ("oversize.model", "supported")]


@pytest.mark.parametrize(
    ("looks", "cause"),
    [
        (("import",) * 5, "oversize.libraries"),
        (("import",) * 3 + ("own",) * 2, "oversize.data"),
        (("own",) * 3 + ("import",) * 2, "oversize.data"),
    ],
    ids=["imports filled it", "imports filled half of it", "imports came last"],
)
def test_libraries_that_fill_a_small_limit_are_told_as_that(looks, cause):
    """A limit below what the imports take is no matter of data or model; an import that only came last is."""
    record = killed(lambda _: 1 * GB, steps=False)
    for n, at in enumerate(looks):
        within = ("<frozen importlib._bootstrap>", "/x/site-packages/torch/optim/adamw.py") if at == "import" else ()
        memory_look(record, 58 + n / 10, (3 + n) * GB, 5, within=within)

    assert verdict(record).findings[0].cause == cause


def on_gpu(weights: float, frames: list[dict]):
    """A run whose first loss was refused 2 GiB by a card of 16 GB."""
    record = ordinary_run(steps=False)
    record.event("made", 2, pid=TRAINER, what="optimizer", name="AdamW", made=1, alive=1, weights=weights)
    record.sample(30, nvidia={"list": [{"index": 0, "total": 16 * GB, "used": 15 * GB, "tree": 15 * GB}]})
    record.event(
        "exception", 59, pid=TRAINER, type="OutOfMemoryError", main=True, frames=frames,
        message="CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.00 GiB",
    )  # fmt: skip
    return verdict(record.exit(60, 1))


def test_a_loss_that_does_not_fit_is_the_batch_and_not_the_model():
    """A model of 13 MB is not what fills a card: what its training keeps is known, and decides."""
    user = {"file": "/home/u/train.py", "line": 9, "function": "step", "code": "F.cross_entropy(out, y)", "user": True}
    inside = {"file": "/lib/python3.12/site-packages/torch/nn/functional.py", "line": 3504, "function": "cross_entropy"}

    assert on_gpu(13e6, [user, inside]).findings[0].cause == "oversize.batch"
    assert on_gpu(13e6, [user]).findings[0].cause == "oversize.batch"


def test_a_model_whose_training_state_fills_the_card_is_the_model():
    """Weights, gradients and Adam's two moments together."""
    user = {"file": "/home/u/train.py", "line": 9, "function": "<module>", "code": "model.cuda()", "user": True}

    assert on_gpu(3.5e9, [user]).findings[0].cause == "oversize.model"


def commands(diagnosis):
    return [cure.how for cure in diagnosis.findings[0].cures if cure.how.startswith("holter ")]


PLAN, HEAL = "holter plan -- python 'my train.py'", "holter run --heal -- python 'my train.py'"


@pytest.mark.parametrize(
    ("run", "expected"),
    [({}, [PLAN, HEAL]), ({"heal": "safe"}, [PLAN])],
)
def test_what_did_not_fit_ends_with_commands_to_paste(run, expected):
    """The run's own command, planned and healed; the second not where that was on already."""
    diagnosis = verdict(killed(lambda _: 2 * GB, command=("python", "my train.py"), **run))

    assert commands(diagnosis) == expected
    assert diagnosis.findings[0].cures[-1].how == expected[-1]


MPS = "MPS backend out of memory (MPS allocated: 17.9 GiB, max allowed: 18.1 GiB). Tried to allocate 512.00 MiB"


@pytest.mark.parametrize(("kind", "message"), [("OutOfMemoryError", CUDA), ("RuntimeError", MPS)])
def test_a_device_that_is_full_ends_with_the_same_commands(kind, message):
    """The framework's own error, at the first step."""
    record = ordinary_run(steps=False, command=("python", "my train.py"))
    record.event("batch", 20, pid=TRAINER, step=0, shapes=[[[64, 3], "float32"]])

    diagnosis = verdict(exception(record, 59, kind, message).exit(60, 1))

    assert causes(diagnosis) == ["oversize.batch"]
    assert commands(diagnosis) == [PLAN, HEAL]


def test_a_leak_ends_with_none():
    """Neither a plan nor chunks of a batch help where memory grows without end."""
    assert commands(verdict(killed(lambda second: 1 * GB + second * 6.9 * GB / 60))) == []
