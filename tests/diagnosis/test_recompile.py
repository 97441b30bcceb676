"""Functions that are traced without end, told by what changes, each beside the traces that every run has."""

from __future__ import annotations

import pytest
from build import MB, TRAINER, causes, memory, ordinary_run, without_memory

from holter.diagnosis.doctor import verdict

FILE = "/home/u/train.py"


def at(line, code):
    return {"file": FILE, "line": line, "function": "<module>", "code": code}


def change(kind, argument, n, *examples):
    return {"kind": kind, "argument": argument, "count": n, "examples": list(examples)}


def traced(record, second, count, seconds, changes=(), what="tf.function", name="train_step", **more):
    """Add what the guest says of one function at a second of the run."""
    step = max(0, (second - 4) * 10)
    fields = {"what": what, "name": name, "file": FILE, "line": 10, "def_line": 11, "function": name,
              "code": f"def {name}(x, y):", "functions": 1, "owners": 1}  # fmt: skip
    fields.update(more)
    record.event("trace", second, pid=TRAINER, count=count, seconds=seconds, step=step, changes=list(changes), **fields)
    return record


def retraced(kind, argument="n", examples=("1", "2"), each=0.04, per_second=10, **more):
    """Make a run of a minute whose function is traced at every step."""
    record = ordinary_run()
    for second in range(5, 60):
        n = (second - 5) * per_second + 1
        traced(record, second, n, n * each, [change(kind, argument, n - 1, *examples)] if n > 1 else (), **more)
    return record.exit(60, 0)


CALL = at(30, "loss = train_step(x, y, n)")


def test_a_python_number_that_changes_is_named_with_the_line_that_passes_it():
    """The argument, its values and the call stand in the verdict, and the cure makes it a tensor."""
    told = verdict(retraced("scalar", call=CALL))

    found = told.findings[0]
    assert (found.cause, found.grade, found.culprit.line) == ("recompile.scalar", "established", 30)
    assert "`n`" in found.claim
    assert "541 times" in found.claim
    assert "tf.constant(n)" in found.cures[0].how
    assert not told.healthy


def test_new_shapes_of_a_compiled_function_are_named_where_it_is_compiled():
    """That line says how it is to be compiled, and the cure is that line with open sizes."""
    maker = at(20, "step = torch.compile(step, mode='default')")
    record = retraced("shape", "x", ("32", "40"), what="torch.compile", call=CALL, maker=maker)
    found = verdict(record).findings[0]

    assert (found.cause, found.culprit.line) == ("recompile.shape", 20)
    assert "+ step = torch.compile(step, mode='default', dynamic=True)" in found.cures[0].how


def test_new_shapes_are_named_on_the_function_itself():
    """The shape is what the function has to leave open, so its own line is the one to change."""
    found = verdict(retraced("shape", "x", ("(32, 7) float32",), call=CALL)).findings[0]

    assert (found.cause, found.culprit.line) == ("recompile.shape", 11)
    assert "reduce_retracing=True" in found.cures[0].how
    assert "tf.TensorSpec((None, None), tf.float32)" in found.cures[0].how


def test_a_function_made_in_the_loop_is_named_on_the_line_that_makes_it():
    """Not the call and not the function's own line: the one that says `tf.function`."""
    record = retraced("closure", "", (), functions=600, call=CALL, maker=at(21, "step = tf.function(work)"))

    found = verdict(record).findings[0]

    assert (found.cause, found.culprit.line) == ("recompile.closure", 21)
    assert "made anew" in found.claim


def test_an_object_made_for_each_call_is_named_on_the_call():
    """The function is the same, but what it is given is a new object each time."""
    found = verdict(retraced("closure", "scheduler", (), call=CALL, maker=at(9, "@tf.function"))).findings[0]

    assert (found.cause, found.culprit.line) == ("recompile.closure", 30)
    assert "`scheduler`" in found.claim


def test_a_model_compiled_in_the_loop_is_named_on_its_compile():
    """Keras makes its functions anew after each `compile`; the line is the user's `compile`, not the `fit`."""
    record = retraced("closure", "", (), what="keras", functions=600, each=0.3, call=CALL,
                      maker=at(20, "model.compile('adam', 'mse')"))  # fmt: skip

    found = verdict(record).findings[0]

    assert (found.cause, found.culprit.line) == ("recompile.closure", 20)
    assert "compiled anew" in found.claim


def test_a_compiler_that_gave_up_is_told_though_the_traces_have_stopped():
    """torch.compile runs uncompiled after its limit, in silence."""
    record = ordinary_run()
    for n in range(1, 9):
        traced(record, 5, n, 0.2 * n, [change("scalar", "tag", n - 1, "'a'")], "torch.compile", "forward", call=CALL)
    traced(record, 5, 8, 1.6, [change("scalar", "tag", 8, "'a'")], "torch.compile", "forward", call=CALL, limit=8)

    found = verdict(record.exit(60, 0)).findings[0]

    assert (found.cause, found.grade, found.culprit.line) == ("recompile.scalar", "established", 30)
    assert "gave up" in found.claim


def test_an_attribute_that_changes_is_named_where_it_is_read():
    """`self.calls` is passed by nobody: the compiler says which line reads it."""
    record = ordinary_run()
    more = {"call": CALL, "use": at(14, "self.calls += 1"), "limit": 8}
    traced(record, 5, 8, 1.6, [change("scalar", "self.calls", 8, "0")], "torch.compile", "forward", **more)

    assert verdict(record.exit(60, 0)).findings[0].culprit.line == 14


def test_memory_that_grows_with_the_traces_is_their_effect():
    """A run whose traces fill the memory up to its end has one root: the traces."""
    record = without_memory(retraced("scalar", call=CALL), 5)
    for second in range(5, 60):
        memory(record, second, 2000 * MB + second * 100 * MB, oom_kill=0)

    told = verdict(record)

    assert causes(told)[0] == "recompile.scalar"
    assert any("grew" in one.value for one in told.findings[0].evidence)


@pytest.mark.parametrize("count", [2, 4, 5])
def test_the_traces_of_a_warm_up_are_no_illness(count):
    """Training, validation, the smaller last batch and a few buckets are each traced once."""
    record = ordinary_run()
    for n in range(1, count + 1):
        traced(record, 5 + n, n, 0.5 * n, [change("shape", "x", n - 1, "(7, 8) float32")] if n > 1 else ())

    assert verdict(record.exit(60, 0)).healthy


def test_many_buckets_that_are_all_seen_in_the_first_epoch_are_no_illness():
    """Twenty shapes, traced one after the other, and from then on none: the warm-up of a bucketed data set."""
    record = ordinary_run()
    for n in range(1, 21):
        traced(record, 5 + n / 2, n, 0.4 * n, [change("shape", "x", n - 1, "(7, 8) float32")] if n > 1 else ())

    assert verdict(record.exit(60, 0)).healthy


def test_a_function_for_each_model_of_a_search_is_no_illness():
    """New functions for new models say nothing of what has changed, however many there are."""
    record = ordinary_run()
    for n in range(1, 28):
        traced(record, 5 + 2 * n, n, 0.9 * n, functions=n, owners=n, maker=at(21, "step = tf.function(work)"))

    assert verdict(record.exit(60, 0)).healthy


def test_rare_cheap_traces_are_left_alone():
    """One trace of a few milliseconds in a second of training is not worth a word."""
    assert verdict(retraced("scalar", per_second=1, each=0.01, call=CALL)).healthy


def test_a_trace_without_what_has_changed_is_not_blamed():
    """Records of older versions count traces and say nothing else."""
    record = ordinary_run()
    for n in range(1, 40):
        record.event("trace", 5 + n, pid=TRAINER, name="step", file=FILE, line=10, count=n * 10)

    assert verdict(record.exit(60, 0)).healthy


def test_on_a_mac_the_same_events_say_the_same():
    """Metal's runs are read from the guest's events alone; no probe of Linux is needed."""
    record = retraced("shape", "x", ("(8, 120) float32",), call=CALL)
    record.meta["platform"] = "Darwin"
    record.timeline = [line for line in record.timeline if line["k"] != "sample"]

    assert causes(verdict(record)) == ["recompile.shape"]
