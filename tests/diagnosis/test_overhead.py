"""Steps of thousands of tiny operations, beside steps that compute, wait for data, or belong to a toy."""

from __future__ import annotations

import pytest
from build import MONO, TRAINER, causes, ordinary_run

from holter.diagnosis.core.doctor import verdict

FILE = "/home/u/train.py"
LINE = {"file": FILE, "line": 31, "function": "forward", "code": "h, c = self.cell(x[:, t], (h, c))"}


def run_of(step_seconds, data=0.02, batch=32, seconds=60, **look):
    """Make a run whose steps take so long, with one look into a step where one is described."""
    record = ordinary_run(steps=False, seconds=seconds)
    n = max(1, round(1 / step_seconds))
    for second in range(5, seconds):
        took = n * step_seconds
        rest = took * (1 - data)
        record.steps(second, (second - 4) * n, n, sum=took, data=took * data, forward=rest * 0.5, backward=rest * 0.4,
                     optimizer=rest * 0.1, batch=batch, epoch=1)  # fmt: skip
    if look:
        look = {"nodes": 0, "ops": 0, "lines": [], "kinds": [], **look}
        record.event("anatomy", 8, pid=TRAINER, step=30, steps=1, watched=1.0, took=1.0, **look)
    return record.exit(seconds, 0)


CELLS = {"nodes": 6000, "elements": 2048, "kinds": [["SigmoidBackward0", 1200]], "lines": [{**LINE, "calls": 800}]}


def test_a_loop_over_time_steps_is_named_with_its_line_and_the_fused_layer():
    """Six thousand nodes at 20 µs each, 800 calls from one line."""
    diagnosis = verdict(run_of(0.12, **CELLS))

    found = diagnosis.findings[0]
    assert (found.cause, found.grade, found.culprit.line) == ("overhead.eager-loop", "established", 31)
    assert "6,000 small operations" in found.claim
    assert "nn.LSTM" in found.cures[0].title
    assert not [cure for cure in diagnosis.findings[0].cures if "torch.compile" in cure.title], (
        "it would unroll the loop"
    )


@pytest.mark.parametrize(("nodes", "told"), [(6000, True), (300, False)])
def test_more_calls_than_nodes_of_a_large_graph_take_nothing_from_it(nodes, told):
    """Calls count where little is computed, and then only where most of the time is spent in the user's own lines."""
    record = run_of(0.12, **{**CELLS, "nodes": nodes, "lines": [{**LINE, "calls": 6500}]})

    assert (causes(verdict(record))[:1] == ["overhead.eager-loop"]) is told


def test_the_cell_is_named_with_the_line_that_makes_it():
    """By what the script calls there, not by how it names it: the layer that does the same in one call."""
    record = run_of(
        0.12, **{**CELLS, "lines": [{**LINE, "line": 4, "code": "a, b = go(x[:, t], (a, b))", "calls": 800}]}
    )
    record.sources = {FILE: ["go = nn.GRUCell(8, 16)", "a = b = 0", "for t in range(9):", "    a = go(x[:, t], a)"]}

    cure = verdict(record).findings[0].cures[0]

    assert "nn.GRU run over the whole sequence: make it where line 1 makes the GRUCell" in cure.title
    assert cure.how == ""


def test_a_loop_over_samples_is_cured_by_the_whole_batch():
    """The code on the line is no recurrent cell, so the cure is no recurrent layer."""
    line = {**LINE, "code": "loss = loss + criterion(model(x[k]), y[k])", "calls": 192}
    found = verdict(run_of(0.03, nodes=1089, elements=64, lines=[line])).findings[0]

    assert (found.cause, found.grade) == ("overhead.eager-loop", "established")
    assert "whole batch" in found.cures[0].title


OWN_LOOP = ["def forward(self, x):", "    for t in range(99):", "        h = self.cell(x[t], h)", "    return h"]
SOLVED = ["def rate(t, y):", "    return net(y ** 3)", "", "path = odeint(rate, y0, times)"]


@pytest.mark.parametrize(
    ("lines", "line", "busy", "established"),
    [
        pytest.param(OWN_LOOP, 3, 0.9, True, id="a loop of its own"),
        pytest.param(SOLVED, 2, 0.9, False, id="a solver's loop"),
        pytest.param(OWN_LOOP, 3, 0.4, False, id="a game between the moves"),
    ],
)
def test_only_a_loop_that_could_be_spared_is_told(lines, line, busy, established):
    """What a library asks for again and again, or what waits for a game's next move, is so by its nature."""
    row = {**LINE, "line": line, "code": lines[line - 1].strip(), "calls": 800}
    record = run_of(0.12, **{**CELLS, "lines": [row]})
    for window in record.lines("steps"):
        for phase in ("forward", "backward", "optimizer"):
            window[phase] *= busy
        window["other"] = window["sum"] * (0.98 - 0.98 * busy)
    record.sources = {FILE: lines}

    found = verdict(record)

    assert (found.healthy, found.findings[0].grade) == ((False, "established") if established else (True, "hypothesis"))
    assert ("LSTM" in found.findings[0].cures[0].title) == (line == 3)


def test_run_eagerly_is_named_where_it_is_set():
    """The source kept in the record says on which line of the `compile` the setting stands."""
    record = run_of(0.03, ops=280, run_eagerly=True, compiled={**LINE, "line": 3, "code": "model.compile("})
    record.event("batch", 6, pid=TRAINER, step=1, shapes=[[[32, 16], "float32"]])
    record.sources = {FILE: ["import keras", "", "model.compile(", "    'adam', 'mse',", "    run_eagerly=True,", ")"]}

    found = verdict(record).findings[0]

    assert (found.cause, found.grade, found.culprit.line) == ("overhead.eager-loop", "established", 5)


def test_a_tape_that_was_never_made_a_graph():
    """Seventy operations of TensorFlow at 130 µs each, for a minute: what `tf.function` is for."""
    line = {**LINE, "code": "grads = tape.gradient(loss, model.trainable_variables)", "calls": 2}
    found = verdict(run_of(0.009, ops=68, elements=12_000, lines=[line])).findings[0]

    assert (found.cause, found.grade, found.culprit.line) == ("overhead.eager-loop", "hypothesis", 31)
    assert ["@tf.function" in cure.title for cure in found.cures] == [True]


@pytest.mark.parametrize(("last", "how"), [("loss", "+ @tf.function\n  def step(x):"), ("loss.numpy()", "")])
def test_a_tape_is_made_a_graph_on_its_own_function(last, how):
    """Unless something in it has to stay in Python."""
    record = run_of(
        0.009, ops=68, elements=12_000, lines=[{**LINE, "line": 4, "code": "g = tape.gradient()", "calls": 2}]
    )
    record.sources = {FILE: ["def step(x):", "    with tf.GradientTape() as tape:", "        loss = model(x)",
                             "    g = tape.gradient(loss, w)", f"    return {last}"]}  # fmt: skip

    assert verdict(record).findings[0].cures[0].how == how


@pytest.mark.parametrize(
    ("step", "seconds", "look"),
    [
        (0.009, 14, {"ops": 68, "elements": 12_000}),  # a few seconds of it
        (0.009, 60, {"ops": 20, "elements": 12_000}),  # a graph, and a few operations around it
        (0.060, 60, {"ops": 68, "elements": 12_000}),  # each of them computes
        (0.009, 60, {"ops": 68, "elements": 900_000}),  # or works on much
    ],
)
def test_tapes_that_are_well(step, seconds, look):
    assert causes(verdict(run_of(step, seconds=seconds, **look))) == []


def test_a_look_that_ended_before_its_step_stands_for_the_rest():
    """A tenth of the step was watched, in which 500 operations ran."""
    record = run_of(0.5, ops=500, lines=[{**LINE, "calls": 50, "ops": 480}])
    record.events = [{**e, "watched": 0.1} if e["k"] == "anatomy" else e for e in record.events]

    found = verdict(record).findings[0]

    assert found.cause == "overhead.eager-loop"
    assert "5,000 small operations" in found.claim


def test_one_sample_at_a_time_is_named_on_the_loader():
    """Six thousand steps of half a millisecond in each epoch."""
    record = run_of(0.0005, batch=1, nodes=12, elements=64, lines=[{**LINE, "calls": 3}])
    record.event("plan", 5, pid=TRAINER, steps_per_epoch=6400, source="loop")
    record.event("made", 4, pid=TRAINER, what="loader", name="DataLoader", file=FILE, line=12, batch_size=1,
                 code="loader = DataLoader(data, batch_size=1)", made=1, alive=1)  # fmt: skip

    found = verdict(record).findings[0]

    assert (found.cause, found.grade, found.culprit.line) == ("overhead.small-steps", "supported", 12)
    assert "6,400" in found.claim


def test_an_unrolled_layer_that_takes_long_to_trace_is_named():
    """Two thousand products for nineteen variables, and twenty seconds before the first step."""
    record = run_of(0.04)
    record.event("trace", 5, pid=TRAINER, what="keras", name="train", file=FILE, line=26, count=1, functions=1,
                 seconds=20.0, step=0, changes=[], graph=14735, products=2004, variables=19)  # fmt: skip
    record.sources = {FILE: ["import keras", "layer = keras.layers.LSTM(32, unroll=True)"]}

    found = verdict(record).findings[0]

    assert (found.cause, found.culprit.line) == ("overhead.small-steps", 2)


@pytest.mark.parametrize(
    ("step", "look"),
    [
        (0.001, {"nodes": 12, "elements": 64, "lines": [{**LINE, "calls": 3}]}),  # a toy
        (0.05, {"nodes": 500, "elements": 30000, "lines": [{**LINE, "calls": 24}]}),  # a small transformer
        (0.02, {"ops": 240, "lines": [{**LINE, "calls": 2, "ops": 220}]}),  # a short tape without a tf.function
        (3.0, {"nodes": 4000, "elements": 4_000_000, "lines": [{**LINE, "calls": 96}]}),  # deep, and computing
        (3.0, {"nodes": 4000, "elements": 4000, "lines": [{**LINE, "calls": 96}]}),  # each takes long: it computes
        (0.2, {"ops": 280, "run_eagerly": True}),  # eager, but each operation computes
    ],
)
def test_steps_that_are_small_or_compute_are_left_alone(step, look):
    """Toys are healthy, and large operations take long because they compute."""
    assert verdict(run_of(step, **look)).healthy


def test_steps_that_wait_for_data_are_another_illness():
    """Where most of the step is waiting, its operations are not what is slow."""
    assert "overhead" not in " ".join(causes(verdict(run_of(0.12, data=0.7, **CELLS))))


def test_a_few_seconds_of_such_steps_are_not_worth_a_word():
    """A loop that is over before anybody has waited for it."""
    assert verdict(run_of(0.12, seconds=12, **CELLS)).healthy


def test_a_large_batch_of_one_is_left_alone():
    """A model whose one sample fills the machine trains with a batch of one for good reason."""
    record = run_of(0.4, batch=1, nodes=900, elements=2_000_000, lines=[{**LINE, "calls": 12}])
    record.event("plan", 5, pid=TRAINER, steps_per_epoch=6400, source="loop")

    assert verdict(record).healthy


def test_a_gpu_that_is_busy_is_not_waiting_for_python():
    """Whatever the number of operations, a device at 95 % has its hands full."""
    record = run_of(0.12, **CELLS)
    for second in range(10, 50):
        record.sample(second, nvidia={"list": [{"index": 0, "total": 8e10, "used": 1e10, "tree": 1e10, "util": 95}]})

    assert verdict(record).healthy


def test_a_gpu_at_rest_is_evidence():
    """The same steps with a device that is mostly idle."""
    record = run_of(0.12, **CELLS)
    for second in range(10, 50):
        record.sample(second, nvidia={"list": [{"index": 0, "total": 8e10, "used": 1e10, "tree": 1e10, "util": 12}]})

    found = verdict(record).findings[0]

    assert found.cause == "overhead.eager-loop"
    assert any(one.what == "GPU" and "12 %" in one.value for one in found.evidence)


def test_on_a_mac_the_same_events_say_the_same():
    """Metal's many small kernels are read from the agent's events alone."""
    record = run_of(0.12, **CELLS)
    record.meta["platform"] = "Darwin"
    record.timeline = [line for line in record.timeline if line["k"] == "steps" or line["m"] < MONO]

    assert causes(verdict(record)) == ["overhead.eager-loop"]
