"""What a NaN is put down to, from the look that was taken or from the windows of steps alone."""

from __future__ import annotations

import io

import pytest
from tests.diagnosis.build import TRAINER, causes, exception, ordinary_run

from holter.diagnosis.core.doctor import verdict
from holter.diagnosis.nonfinite.nonfinite import edge_calls, growth_of
from holter.diagnosis.nonfinite.repaired_line import repaired_line
from holter.figures.summary import summary_of
from holter.views.text import write_verdict

CALM = [2.3, 2.2, 2.25, 2.1, 2.15, 2.0, 2.05, 1.98, 2.0, 1.95, 1.9, 1.97]
PARAMS = {"bad": 0, "of": 6, "max": 1.2, "dtype": "float32"}


def seen(record, **fields):
    """Add a look at step 300."""
    known = {"step": 300, "what": "loss", "loss": "nan", "losses": CALM, "params": PARAMS, "looked_at": 2, "lr": 0.01}
    return record.event("nan", 40, pid=TRAINER, **{**known, **fields})


def made(record, what="optimizer", line=9):
    place = {"file": "/home/u/train.py", "line": line, "function": "main", "code": f"make_{what}()"}
    return record.event("made", 3, pid=TRAINER, what=what, name="SGD", made=1, alive=1, **place)


def first(record):
    return verdict(record.exit(59, code=0)).findings[0]


def test_losses_that_grew_before_the_first_nan_point_to_the_rate_and_the_optimizers_line():
    """A loss that grew a thousandfold in several steps is the learning rate's, on the line that made the optimizer."""
    found = first(seen(made(ordinary_run()), losses=[2.3, 2.1, 9.0, 80.0, 900.0, 2.0e5]))

    assert (found.cause, found.grade) == ("nan.learning-rate", "supported")
    assert found.culprit is not None
    assert found.culprit.line == 9
    assert "2e+05" in found.claim
    assert "0.01" in found.claim


@pytest.mark.parametrize(
    ("at_first", "line"), [(0.0001, 3), (0.009, 9)], ids=["raised a hundredfold", "about the same"]
)
def test_a_rate_that_the_script_raises_is_told_on_the_line_that_raises_it(at_first, line):
    """A warm-up without an end: the number where the optimizer is made was right."""
    record = made(ordinary_run())
    for window in record.timeline:
        window.update({"lr": at_first} if window["k"] == "steps" else {})
    record.sources["/home/u/train.py"] = [
        "def warm(step):",
        "    for group in groups:",
        "        group['lr'] = rate * step",
    ]
    found = first(seen(record, losses=[2.3, 2.1, 9.0, 80.0, 900.0, 2.0e5]))

    assert (found.cause, found.culprit.line) == ("nan.learning-rate", line)
    assert ("risen from 0.0001" in found.claim) is (line == 3)


@pytest.mark.parametrize(
    ("line", "cause"), [("scale = degree.pow(-1.0)", "nan.math"), ("scale = degree + 1", "nan.unexplained")]
)
def test_a_nan_that_came_in_where_no_gradient_goes_is_looked_for_in_the_source(line, cause):
    """The batch is not said to be finite, and no rate is blamed."""
    record = made(ordinary_run())
    record.sources["/home/u/train.py"] = ["def normalised(degree):", f"    {line}", "    return scale * edges"]
    found = first(seen(record, outside=True))

    assert found.cause == cause
    assert (found.culprit.line == 2) if cause == "nan.math" else "learning rate" not in found.claim
    assert not any(one.value == "every input and target finite" for one in found.evidence)


def test_a_bad_sample_is_established_and_named_by_its_index():
    """The sample's index in the dataset stands in the claim, and the cure is about it."""
    bad = {"name": "x", "bad": "nan", "sample": 3, "index": 1234, "of": 32, "samples": 1, "max": 4.0}
    found = first(seen(made(ordinary_run(), "loader", 12), what="input", inputs=bad))

    assert (found.cause, found.grade) == ("nan.data", "established")
    assert "sample 1234" in found.claim
    assert found.culprit is not None
    assert found.culprit.line == 12


def test_an_operation_of_finite_values_clears_a_batch_with_a_nan_that_was_not_used():
    """A NaN in the batch is no cause where the first bad operation had only finite inputs."""
    bad = {"name": "unused", "bad": "nan", "sample": 0, "of": 32}
    place = {"file": "/home/u/train.py", "line": 20, "function": "loss", "code": "return torch.log(p).mean()"}
    found = first(seen(ordinary_run(), what="input", inputs=bad, op="log", edge="log of 0", via="replay", **place))

    assert (found.cause, found.grade) == ("nan.math", "established")
    assert found.culprit is not None
    assert found.culprit.line == 20
    assert "+ return torch.log(p + 1e-8).mean()" in found.cures[0].how


def test_one_outlier_is_the_datas_fault_although_the_weights_ran_away_after_it():
    """The first spike counts: its batch held a value far beyond all others."""
    inputs = {"name": "x", "bad": "outlier", "sample": 7, "index": 70, "max": 1e9, "usual": 2.0, "of": 32}
    spikes = [{"step": 299, "loss": 1e14, "inputs": inputs}]
    huge = {**PARAMS, "max": 1e12}
    found = first(seen(ordinary_run(), losses=[*CALM, 1e14], spikes=spikes, params=huge, op="mse_loss", via="replay"))

    assert found.cause == "nan.data"
    assert "1e+09" in found.claim
    assert "sample 70" in found.claim


@pytest.mark.parametrize(
    "fields",
    [
        {"op": "matmul", "via": "replay", "op_dtype": "float16", "finite_in_float32": True},
        {"what": "parameter", "params": {**PARAMS, "bad": 6, "dtype": "float16"}, "losses": [1.37]},
        {"what": "gradient", "scale": 1e-5},
    ],
)
def test_half_precision_is_named_where_float32_would_have_done(fields):
    """An operation that is finite in float32, half weights, or a loss scale that collapsed."""
    assert first(seen(ordinary_run(), **fields)).cause == "nan.precision"


def test_half_precision_is_not_blamed_for_losses_that_ran_away():
    """Losses that grew for many steps would have left any range."""
    fields = {"op": "sum", "via": "replay", "op_dtype": "float16", "finite_in_float32": True}
    losses = [2.0, 2.1, 9.0, 40.0, 300.0, 5000.0, 90000.0]

    assert first(seen(ordinary_run(), losses=losses, **fields)).cause == "nan.learning-rate"


def test_a_gradient_at_the_slope_of_a_root_is_math():
    """A finite loss with a gradient that is non-finite, and one root in the graph."""
    lines = [{"file": "/home/u/train.py", "line": 8, "function": "norm", "code": "return torch.sqrt(d)"}]
    found = first(seen(ordinary_run(), what="gradient", slopes=[{"op": "sqrt", "lines": lines, "sure": True}]))

    assert (found.cause, found.grade) == ("nan.math", "supported")
    assert found.culprit is not None
    assert found.culprit.line == 8


def test_exactly_one_reason_is_given_for_one_nan():
    """The four rules share one reading: they never contradict each other."""
    record = seen(made(ordinary_run()), losses=[2.0, 90.0, 1e4, 1e8]).exit(59, code=0)

    assert [cause for cause in causes(verdict(record)) if cause.startswith("nan")] == ["nan.learning-rate"]


def test_a_nan_is_the_first_finding_of_a_run_that_raised_because_of_it():
    """The exception only reports what the look has seen."""
    record = seen(made(ordinary_run()), losses=[2.0, 90.0, 1e4, 1e8])
    exception(record, 41, "ValueError", "loss is nan")
    found = causes(verdict(record.exit(42, code=1)))

    assert found[0] == "nan.learning-rate"
    assert "user-error" not in found


def test_a_guess_does_not_stand_before_another_error():
    """Nothing was seen of the batch, and the run ended with an exception about something else."""
    record = seen(ordinary_run(), looked_at=0, params={})
    exception(record, 41, "KeyError", "'labels'")

    assert causes(verdict(record.exit(42, code=1)))[0] == "user-error"


def test_an_exception_that_says_so_is_enough_for_the_family():
    """A loop that nothing could look into, and that ended itself for a loss that is non-finite."""
    record = exception(ordinary_run(), 41, "RuntimeError", "loss became NaN at step 300")

    assert causes(verdict(record.exit(42, code=1)))[0].startswith("nan.")


def on_a_gpu(seconds=60):
    """A run whose loss is non-finite from step 300 on, and of which nothing but that could be seen."""
    record = seen(ordinary_run(seconds=seconds), looked_at=0, params={}, losses=CALM, updated=True)
    return record.steps(58, 570, bad_loss=560)


def test_a_loss_that_is_no_number_is_a_fact_whatever_led_to_it():
    """It is established and stands first, with its step and how long it lasted; the reason stays a guess beside it."""
    diagnosis = verdict(on_a_gpu().exit(59, code=0))
    fact, guess = diagnosis.findings

    assert (fact.cause, fact.grade) == ("nan.unexplained", "established")
    assert "at step 300 and stayed so to the end, 270 steps" in fact.claim
    assert (guess.cause, guess.grade) == ("nan.learning-rate", "hypothesis")
    assert not diagnosis.healthy


def test_the_rate_is_not_guessed_where_many_losses_before_were_calm():
    """On a GPU no operation is looked at: that none was at its edge can't be said, and nothing ran away."""
    record = seen(ordinary_run(), looked_at=0, losses=CALM * 8, updated=True, params={"bad": 4, "of": 4, "max": 0.0})
    diagnosis = verdict(record.steps(58, 570, bad_loss=560).exit(59, code=0))

    assert causes(diagnosis) == ["nan.unexplained"]
    assert ("weights", "4 of 4 not finite after that step's update") in [
        (one.what, one.value) for one in diagnosis.findings[0].evidence
    ]


@pytest.mark.parametrize(("losses", "cause"), [(CALM * 8, "nan.unexplained"), (CALM, "nan.learning-rate")])
def test_nor_where_a_look_has_found_nothing(losses, cause):
    """A weight that was set by hand comes out of calm losses, too; of the first steps nothing is known to be calm."""
    record = seen(ordinary_run(), looked_at=2, losses=losses, updated=True, params={"bad": 1, "of": 4, "max": 0.3})

    assert causes(verdict(record.steps(58, 570, bad_loss=560).exit(59, code=0)))[0] == cause


def test_a_run_whose_loss_is_no_number_is_not_ticked_off():
    """It completed, and what it computed is lost: no check mark stands before it, in any view."""
    record, page = on_a_gpu().exit(59, code=0), io.StringIO()
    diagnosis = verdict(record)
    write_verdict(diagnosis, summary_of(record, diagnosis), page)

    assert page.getvalue().startswith("✗")
    assert "✓" not in page.getvalue()


def test_the_fact_stands_behind_an_error_that_ended_the_run_by_itself():
    """Another exception is why it stopped; that the loss was non-finite before is told all the same."""
    record = exception(on_a_gpu(), 58.5, "KeyError", "'labels'")

    assert causes(verdict(record.exit(59, code=1))) == ["user-error", "nan.unexplained"]


def test_losses_that_recovered_are_no_finding():
    """A loss scaler or a skipped batch: the next losses were numbers."""
    record = seen(ordinary_run(), what="loss").event("nan-over", 41, pid=TRAINER, step=301)

    assert causes(verdict(record.exit(59, code=0))) == []


def test_a_loss_that_recovered_in_the_very_last_window_is_no_finding():
    """A window says that one of its losses was non-finite; that a later one of it was, the event says."""
    record = seen(ordinary_run(seconds=40, steps=False), looked_at=0, params={})
    record.event("nan-over", 40.2, pid=TRAINER, step=301).steps(40.5, 310, bad_loss=300)

    assert causes(verdict(record.exit(41, code=0))) == []


def test_a_run_that_recovered_at_first_and_then_lost_its_numbers_for_good_is_told():
    """The windows at the end hold no number any more, whatever came back before."""
    record = seen(ordinary_run(), what="loss").event("nan-over", 41, pid=TRAINER, step=301)
    for second in range(50, 60):
        record.steps(second + 0.5, 10 * second, bad_loss=10 * second)

    assert causes(verdict(record.exit(60, code=0)))[0].startswith("nan.")


def test_windows_alone_tell_a_run_that_ran_away():
    """A record without a look still has the losses of its windows and the first bad step."""
    record = made(ordinary_run(seconds=10, steps=False))
    for second, loss in enumerate((2.0, 9.0, 70.0, 3000.0, 2e6)):
        record.steps(second + 2, 10 * (second + 1), loss={"last": loss, "min": loss, "max": loss}, lr=0.5)
    record.steps(7, 60, bad_loss=53).steps(8, 70, bad_loss=61)
    found = verdict(record.exit(9, code=0)).findings[0]

    assert (found.cause, found.grade) == ("nan.learning-rate", "supported")
    assert "step 53" in found.claim


def test_windows_with_one_bad_loss_and_good_ones_after_it_are_silent():
    """One infinite loss among many that are numbers."""
    record = ordinary_run(seconds=10, steps=False)
    good = {"last": 2.0, "min": 1.0, "max": 3.0}
    record.steps(2, 10, loss=good).steps(3, 20, loss=good, bad_loss=15).steps(4, 30, loss=good)

    assert causes(verdict(record.exit(9, code=0))) == []


def test_an_infinite_norm_of_a_loss_scaler_is_silent():
    """Gradients that overflow under a scaler are skipped on purpose."""
    record = ordinary_run(seconds=10, steps=False)
    record.steps(2, 10, loss={"last": 2.0, "min": 1.0, "max": 3.0}, bad_grad=10)

    assert causes(verdict(record.exit(9, code=0))) == []


def test_a_message_about_bad_input_is_data():
    """Libraries refuse what is non-finite; then nothing has been trained on it."""
    record = exception(ordinary_run(), 30, "ValueError", "Input X contains NaN.")

    assert causes(verdict(record.exit(31, code=1)))[0] == "nan.data"


def test_a_damaged_look_is_survived():
    """Fields of other types, or none at all, lead to no error."""
    for event in ({}, {"losses": 3, "params": [], "inputs": "x", "slopes": [3], "spikes": {}, "step": "x"}):
        record = ordinary_run().event("nan", 40, pid=TRAINER, **event).exit(59, code=0)

        assert all(finding.cause.startswith("nan") for finding in verdict(record).findings)


def test_growth_is_told_from_noise():
    """A loss that only wavers has not grown, however low it has come."""
    noisy = growth_of([0.95, 0.6, 0.4, 0.3, 0.2, 0.17, 0.14, 0.12, 0.07, 0.15, 0.03, 0.41, 0.07, 0.06])
    away = growth_of([2.3, 2.2, 8.0, 70.0, 900.0])

    assert noisy is not None
    assert not noisy.clear
    assert away is not None
    assert away.clear


def test_unprotected_functions_are_found_and_protected_ones_are_not():
    """An epsilon, a clip, a count or NumPy on plain numbers keep a line out."""
    lines = [
        "def loss(y, p):",
        "    a = tf.math.log(p)",
        "    b = tf.math.log(p + 1e-7)",
        "    c = total / len(y)",
        "    d = np.log(3)",
        "    return a / tf.reduce_sum(y)",
    ]

    assert edge_calls(lines) == [(2, "log"), (6, "div")]


def test_a_line_is_repaired_where_the_edge_is():
    """An epsilon goes into the call, around the divisor, or a clamp before the method."""
    assert (
        repaired_line("x = torch.sqrt((d * d).sum(1))", "slope of sqrt at 0") == "x = torch.sqrt((d * d).sum(1) + 1e-8)"
    )
    assert repaired_line("return a / x.std(1)", "division by zero") == "return a / (x.std(1) + 1e-8)"
    assert repaired_line("return p.log()", "log of 0") == "return p.clamp(min=1e-8).log()"
    assert repaired_line("if (", "log of 0") == ""


SCRIPT = [
    "x = (x - x.mean(0)) / x.std(0)",
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.01)",
    "loader = DataLoader(TensorDataset(x, y), batch_size=32)",
]


def scripted(record, **fields):
    """Add a look to a run whose script is known, with its optimizer on line 2."""
    seen(record, **fields).sources = {"/home/u/train.py": SCRIPT}
    record.event("guest", 0.6, pid=TRAINER, role="trainer", file="/home/u/train.py")
    return made(record, line=2)


def test_a_feature_that_is_bad_in_every_sample_is_cured_at_its_division():
    """To drop the samples would leave none: the deviation of 0 that they are divided by is what is wrong."""
    bad = {"name": "x", "bad": "nan", "sample": 0, "samples": 32, "of": 32, "feature": 3, "max": 4.0}
    cure = first(scripted(ordinary_run(), what="input", inputs=bad)).cures[0]

    assert cure.how == f"- {SCRIPT[0]}\n+ x = (x - x.mean(0)) / (x.std(0) + 1e-8)"
    assert "drop" not in cure.title


def test_bad_samples_are_left_out_above_the_line_that_hands_them_over():
    """By all that is handed over with them: a target may be what is bad."""
    bad = {"name": "y", "bad": "nan", "sample": 3, "index": 1234, "samples": 1, "of": 32}
    rows = first(scripted(ordinary_run(), what="input", inputs=bad)).cures[0].how.splitlines()

    finite = " & ".join(f"torch.isfinite({name}).reshape(len({name}), -1).all(1)" for name in "xy")
    assert rows == [f"+ keep = {finite}", "+ x, y = x[keep], y[keep]", f"  {SCRIPT[2]}"]


@pytest.mark.parametrize(("losses", "lower"), [([1, 1.1, 30, 900, 27000], "0.001"), ([1, 1, 9e6, 8e13, 7e20], "3e-06")])
def test_the_smaller_rate_fits_the_growth_that_was_seen(losses, lower):
    """A tenth, or less where the loss was multiplied by more than a tenth could undo; on the optimizer's own line."""
    cure = first(scripted(ordinary_run(), losses=[float(loss) for loss in losses])).cures[0]

    assert cure.how == f"- {SCRIPT[1]}\n+ {SCRIPT[1].replace('0.01', lower)}"


RATE_ELSEWHERE = ["RATE = 0.01", "", "", "", "", "", "", "", "optimizer = SGD(model.parameters(), lr=RATE)"]


def test_a_rate_that_is_written_elsewhere_is_changed_there():
    record = seen(made(ordinary_run()), losses=[2.3, 2.1, 9.0, 80.0, 900.0, 2.0e5])
    record.sources = {"/home/u/train.py": RATE_ELSEWHERE}
    found = first(record)

    assert found.culprit.line == 9
    assert ("the rate", "written in line 1: RATE = 0.01") in [(one.what, one.value) for one in found.evidence]
    assert found.cures[0].how.splitlines()[0] == "- RATE = 0.01"


def test_a_number_that_is_written_twice_may_be_another():
    record = seen(made(ordinary_run()), losses=[2.3, 2.1, 9.0, 80.0, 900.0, 2.0e5])
    record.sources = {"/home/u/train.py": [*RATE_ELSEWHERE, "decay = 0.01"]}
    found = first(record)

    assert not found.cures[0].how
    assert "the rate" not in [one.what for one in found.evidence]


@pytest.mark.parametrize(
    ("fields", "scaled"),
    [
        ({"largest": 4200.0}, "values up to 4200"),
        ({"losses": [3e9, 4e10, 5e11, 6e12, 7e13]}, "the first loss was 3e+09"),
        ({"largest": 4.2}, ""),
    ],
)
def test_data_that_was_never_scaled_is_scaled_before_the_rate_is_touched(fields, scaled):
    """A rate that suits values in the thousands would learn nothing."""
    known = {"losses": [2.3, 2.1, 9.0, 80.0, 900.0, 2.0e5]}
    cures = first(scripted(ordinary_run(), **{**known, **fields})).cures

    assert ("scale the data" in cures[0].title) is bool(scaled)
    assert scaled in cures[0].title
