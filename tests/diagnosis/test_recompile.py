"""Functions that are traced without end, told by what changes, each beside the traces that every run has."""

from __future__ import annotations

import pytest
from build import MB, TRAINER, causes, memory, ordinary_run, without_memory

from holter.diagnosis.core.doctor import verdict

FILE = "/home/u/train.py"


def at(line, code):
    return {"file": FILE, "line": line, "function": "<module>", "code": code}


def change(kind, argument, n, *examples):
    return {"kind": kind, "argument": argument, "count": n, "examples": list(examples)}


def traced(record, second, count, seconds, changes=(), what="tf.function", name="train_step", **more):
    """Add what the agent says of one function at a second of the run."""
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


def with_source(record, *body, decorator="@tf.function", last="    loss = train_step(x, y, n)"):
    """Keep the script: the function on line 11, its call on line 30."""
    lines = [""] * 9 + [decorator, "def train_step(x, y, n):", *(body or ("    return x * n",))]
    record.sources = {FILE: [*lines, *[""] * (28 - len(lines)), "for n in range(9):", last]}
    return record


def test_a_python_number_that_changes_is_named_with_the_line_that_passes_it():
    """The argument, its values and the call stand in the verdict, and the cure makes it a tensor."""
    diagnosis = verdict(with_source(retraced("scalar", call=CALL)))

    found = diagnosis.findings[0]
    assert (found.cause, found.grade, found.culprit.line) == ("recompile.scalar", "established", 30)
    assert "`n`" in found.claim
    assert "541 times" in found.claim
    assert found.cures[0].how == "- loss = train_step(x, y, n)\n+ loss = train_step(x, y, tf.constant(n))"
    assert not diagnosis.healthy


@pytest.mark.parametrize("line", ["loss = train_step(x, y, n=n / 2)", "loss = train_step(x, y, n / 2)"])
def test_the_number_is_wrapped_by_place_or_by_name(line):
    """Whatever stands there, as a number with a fraction."""
    record = with_source(retraced("scalar", examples=("0.5", "1.0"), call=CALL), last=f"    {line}")

    how = verdict(record).findings[0].cures[0].how
    assert how == f"- {line}\n+ {line.replace('n / 2', 'tf.constant(n / 2, tf.float32)')}"


@pytest.mark.parametrize("body", ["    for _ in range(n): pass", "    return x if n > 3 else y", "    return x[:n]"])
def test_a_number_that_decides_is_not_made_a_tensor(body):
    """How often a loop turns, which branch is taken, how much is cut off: a tensor would not cure it."""
    cures = verdict(with_source(retraced("scalar", call=CALL), body)).findings[0].cures

    assert [(cure.title[:4], cure.how) for cure in cures] == [("keep", "")]


def test_new_shapes_of_a_compiled_function_are_named_where_it_is_compiled():
    """That line says how it is to be compiled, and the cure is that line with open sizes."""
    maker = at(20, "step = torch.compile(step, mode='default')")
    record = with_source(retraced("shape", "x", ("32", "40"), what="torch.compile", call=CALL, maker=maker))
    record.sources[FILE][19] = "step = torch.compile(step, mode='default')"
    found = verdict(record).findings[0]

    assert (found.cause, found.culprit.line) == ("recompile.shape", 20)
    assert "+ step = torch.compile(step, mode='default', dynamic=True)" in found.cures[0].how


def test_new_shapes_are_named_on_the_function_itself():
    """The shape is what the function has to leave open, so its own line is the one to change."""
    found = verdict(with_source(retraced("shape", "x", ("(32, 7) float32",), call=CALL))).findings[0]

    assert (found.cause, found.culprit.line) == ("recompile.shape", 11)
    assert found.cures[0].how == ("- @tf.function\n+ @tf.function(reduce_retracing=True)\n  def train_step(x, y, n):")
    assert "tf.TensorSpec((None, None), tf.float32)" in found.cures[1].title


COMPILE = at(20, "model.compile('adam', 'mse', jit_compile=True)")


def compiled_by_xla(each=0.5, per_second=2, **more):
    """Make a run of a minute in which XLA compiles again and again; each of its steps takes that long."""
    fields = {"what": "keras", "jit": True, "usual": 0.003, "maker": COMPILE, "call": CALL, **more}
    return retraced("shape", "data[0]", ("(16, 31, 8) float32",), each=each, per_second=per_second, **fields)


def test_a_batch_of_ever_new_lengths_under_xla_is_named_where_the_model_is_compiled():
    """No trace is made, but XLA compiles for each length; the cures pad, or leave XLA out."""
    found = verdict(compiled_by_xla()).findings[0]

    assert (found.cause, found.grade, found.culprit.line) == ("recompile.shape", "established", 20)
    assert "XLA compiled the step that Keras makes of the model 109 times" in found.claim
    assert "takes 3 ms" in found.claim
    assert [cure.keeps for cure in found.cures] == ["equivalent", "equivalent"]
    assert "+ model.compile('adam', 'mse', jit_compile=False)" in found.cures[1].how


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("model.compile('adam', 'mse')", "+ model.compile('adam', 'mse', jit_compile=False)"),
        ("model.compile(", "model.compile(..., jit_compile=False)"),
    ],
)
def test_keras_own_choice_of_xla_is_taken_back_on_the_same_line(code, expected):
    """On a GPU Keras asks for XLA by itself, so the line may not name it."""
    found = verdict(compiled_by_xla(maker=at(20, code))).findings[0]

    assert found.cures[1].how.endswith(expected)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("@tf.function(jit_compile=True)", "+ @tf.function(reduce_retracing=True)"),
        (
            "@tf.function(jit_compile=True, reduce_retracing=True)",
            "+ @tf.function(jit_compile=False, reduce_retracing=True)",
        ),
    ],
)
def test_a_function_under_xla_is_named_where_that_is_asked_for(code, expected):
    """Without XLA the same function would be traced for each shape, unless it is told not to."""
    record = compiled_by_xla(what="tf.function", maker=at(9, code))
    traced(record, 58, 2, 0.1, [change("shape", "x", 1, "(16, None, 8) float32")])  # its traces are counted apart
    found = verdict(record).findings[0]

    assert (found.grade, found.culprit.line) == ("established", 9)
    assert "XLA compiled `train_step`" in found.claim
    assert found.cures[1].how.endswith(expected)


@pytest.mark.parametrize(("more", "grade"), [({"usual": 0.0}, "supported"), ({}, "established")])
def test_a_step_that_draws_its_data_needs_a_yardstick(more, grade):
    """Where every batch has a new length, nobody can tell compiling from waiting for the batch."""
    found = verdict(compiled_by_xla(draws=True, **more)).findings[0]

    assert (found.cause, found.grade) == ("recompile.shape", grade)
    assert "bucket_by_sequence_length" in found.cures[0].title


def test_compilations_that_take_a_fifth_of_the_time_are_supported():
    """Most of the time goes elsewhere: XLA is worth a word, but may not be the illness."""
    found = verdict(compiled_by_xla(each=0.1)).findings[0]

    assert (found.cause, found.grade) == ("recompile.shape", "supported")


def test_compilations_that_take_little_of_the_time_are_left_alone():
    """A new length now and then, where compiling for it takes a twentieth of the time."""
    assert verdict(compiled_by_xla(each=0.025)).healthy


@pytest.mark.parametrize("count", [3, 12])
def test_a_warm_up_under_xla_is_no_illness(count):
    """The last batch, validation and a dozen buckets are compiled for once each, at a second apiece."""
    record = ordinary_run()
    for n in range(1, count + 1):
        changes = [change("shape", "data[0]", n - 1, "(16, 31, 8) float32")] if n > 1 else ()
        traced(record, 5 + n, n, 1.0 * n, changes, "keras", jit=True, usual=0.003, maker=COMPILE, call=CALL)

    assert verdict(record.exit(60, 0)).healthy


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

    diagnosis = verdict(record)

    assert causes(diagnosis)[0] == "recompile.scalar"
    assert any("grew" in one.value for one in diagnosis.findings[0].evidence)


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


@pytest.mark.parametrize(("models", "healthy"), [(27, True), (1, False)])
def test_training_and_validation_of_each_fold_are_traced_once(models, healthy):
    """Two functions for each model, of which the second counts as made anew; one model compiled in a loop is ill."""
    record = ordinary_run()
    for n in range(1, 28):
        anew = [change("closure", "", n)]
        traced(record, 5 + 2 * n, 2 * n, 0.9 * n, anew, "keras", functions=2 * n, owners=min(n, models),
               maker=at(21, "model.compile('adam', 'mse')"))  # fmt: skip

    assert verdict(record.exit(60, 0)).healthy is healthy


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
    """Metal's runs are read from the agent's events alone; no probe of Linux is needed."""
    record = retraced("shape", "x", ("(8, 120) float32",), call=CALL)
    record.meta["platform"] = "Darwin"
    record.timeline = [line for line in record.timeline if line["k"] != "sample"]

    assert causes(verdict(record)) == ["recompile.shape"]
