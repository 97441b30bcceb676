"""Runs that ended by themselves: completed, an exception, early, interrupted; and those still on."""

from __future__ import annotations

import time

import pytest
from build import TRAINER, causes, exception, ordinary_run, traceback_text

from holter.diagnosis.core.doctor import verdict
from holter.diagnosis.ending.ending import ending_of


def test_ordinary_run_completed_is_healthy_and_silent():
    """A run that did its plan has no findings at all."""
    diagnosis = verdict(ordinary_run(planned=550).exit(60, 0))

    assert (diagnosis.ending.kind, diagnosis.healthy, diagnosis.findings) == ("completed", True, ())


def test_exception_names_the_last_user_line():
    """The exception's event gives the user's line, not the library's below it."""
    diagnosis = verdict(exception(ordinary_run(), 59, "ValueError", "bad shape", line=41).exit(60, 1))

    assert diagnosis.ending.kind == "exception"
    assert "ended with ValueError at train.py:41" in diagnosis.ending.claim
    assert causes(diagnosis) == ["user-error"]
    assert (diagnosis.findings[0].culprit.line, diagnosis.findings[0].culprit.code) == (41, "fit(model)")


def test_exception_is_parsed_from_the_output_without_an_agent():
    """Where no agent spoke, the traceback in the output tells the same."""
    record = ordinary_run().exit(60, 1)
    record.output = "epoch 1\n" + traceback_text("KeyError", "'loss'", line=12)

    diagnosis = verdict(record)

    assert diagnosis.findings[0].culprit.line == 12
    assert diagnosis.findings[0].culprit.code == "fit(model)"


def test_root_of_a_chain_is_named():
    """Of chained exceptions the first is the cause, and its line the culprit."""
    inner = {"type": "KeyError", "message": "'x'", "frames": [{"file": "/home/u/data.py", "line": 3, "user": True}]}
    record = exception(ordinary_run(), 59, "RuntimeError", "could not load", chain=[inner]).exit(60, 1)

    diagnosis = verdict(record)

    assert "it began with KeyError" in diagnosis.ending.claim
    assert diagnosis.findings[0].culprit.file == "/home/u/data.py"


def test_workers_own_traceback_is_the_root():
    """An error raised in a DataLoader worker is blamed on the dataset's line, not on the loop."""
    inner = (
        "Caught ValueError in DataLoader worker process 0.\n"
        "Original Traceback (most recent call last):\n"
        '  File "/v/site-packages/torch/utils/data/_utils/worker.py", line 1, in _worker_loop\n'
        '  File "/home/u/data.py", line 30, in __getitem__\n'
        "    raise ValueError(path)\n"
        "ValueError: broken.png\n"
    )
    diagnosis = verdict(exception(ordinary_run(), 59, "ValueError", inner).exit(60, 1))

    assert (diagnosis.findings[0].culprit.file, diagnosis.findings[0].culprit.line) == ("/home/u/data.py", 30)


def test_exit_code_without_traceback_is_told_by_its_code():
    """A non-zero exit with nothing said is told as the code, and blamed on nobody."""
    diagnosis = verdict(ordinary_run().exit(60, 3))

    assert diagnosis.ending.kind == "exception"
    assert "exit code 3 and no traceback" in diagnosis.ending.claim
    assert not diagnosis.findings


@pytest.mark.parametrize(
    "how", [{"code": 130, "signal": "SIGINT"}, {"code": 130}, {"code": 1}], ids=["signal", "shell", "traceback"]
)
def test_interrupted(how):
    """Ctrl-C shows as the signal, as 130, or as an uncaught KeyboardInterrupt."""
    record = ordinary_run()
    if how == {"code": 1}:
        exception(record, 59.5, "KeyboardInterrupt", "")

    ending = ending_of(record.exit(60, **how))

    assert ending.kind == "interrupted"


def test_keras_input_exhausted_is_stopped_early_with_the_warning():
    """Exit 0, half the steps, and the framework's warning: stopped early, quoting it."""
    warning = "Your input ran out of data; interrupting training. Make sure that your dataset can generate..."
    record = ordinary_run(planned=1000).exit(60, 0)
    record.output = f"/venv/trainer.py:164: UserWarning: {warning}\n"

    diagnosis = verdict(record)

    assert diagnosis.ending.kind == "stopped-early"
    assert "550 of 1,000 steps" in diagnosis.ending.claim
    assert "Your input ran out of data" in diagnosis.ending.claim
    assert causes(diagnosis) == ["early-stop.input-exhausted"]
    assert not diagnosis.healthy


def test_same_warning_after_all_steps_is_healthy():
    """The warning in a run that did its plan is no finding."""
    record = ordinary_run(planned=550).exit(60, 0)
    record.output = "WARNING:tensorflow:Your input ran out of data; interrupting training.\n"

    assert verdict(record).healthy


@pytest.mark.parametrize(
    "printed",
    [
        "Epoch 00012: early stopping\n",
        "Epoch 12: early stopping\nRestoring model weights from the end of the best epoch: 7.\n",
        "Monitored metric val_loss did not improve in the last 3 records. Signaling Trainer to stop.\n",
        "`Trainer.fit` stopped: `max_time=00:01:00` reached.\n",
    ],
)
def test_early_stopping_on_purpose_is_completed(printed):
    """Fewer steps because a callback decided so is a completed run."""
    record = ordinary_run(planned=1000).exit(60, 0)
    record.output = printed

    diagnosis = verdict(record)

    assert diagnosis.ending.kind == "completed"
    assert diagnosis.healthy


def test_silent_early_stopping_callback_is_completed():
    """A callback that asked for the stop without a word to the output is believed."""
    record = ordinary_run(planned=1000).event("early-stop", 59, pid=TRAINER, by="EarlyStopping").exit(60, 0)

    assert ending_of(record).kind == "completed"


def test_a_callback_that_ended_the_training_is_believed_before_a_warning():
    """Keras says the same words of a validation whose length it does not know."""
    record = ordinary_run(planned=1000).event("early-stop", 59, pid=TRAINER, by="EarlyStopping").exit(60, 0)
    record.output = "WARNING:tensorflow:Your input ran out of data; interrupting training.\n"

    assert verdict(record).healthy


def test_last_partial_accumulation_is_tolerated():
    """One step an epoch may be missing by rounding."""
    assert ending_of(ordinary_run(planned=552).exit(60, 0)).kind == "completed"


def test_plan_read_off_a_loop_may_be_left_with_break():
    """A plan guessed from the script's loops is no promise, so fewer steps alone are no illness."""
    record = ordinary_run().event("plan", 2, pid=TRAINER, steps=5000, source="loop").exit(60, 0)

    assert verdict(record).healthy


def test_swallowed_error_is_stopped_early():
    """A printed traceback, fewer steps and exit 0: the error was swallowed."""
    record = ordinary_run().event("plan", 2, pid=TRAINER, steps=5000, source="loop").exit(60, 0)
    record.output = traceback_text("OSError", "cannot identify image", line=33)

    diagnosis = verdict(record)

    assert diagnosis.ending.kind == "stopped-early"
    assert causes(diagnosis) == ["early-stop.swallowed-error"]
    assert diagnosis.findings[0].culprit.line == 33


def test_traceback_in_a_run_that_did_all_its_steps_is_no_finding():
    """A handled error of no consequence is left alone."""
    record = ordinary_run(planned=550).exit(60, 0)
    record.output = traceback_text("OSError", "cannot identify image")

    assert verdict(record).healthy


def test_trainer_that_died_inside_a_pipe_is_not_a_success():
    """`train.py | tee log` ends with 0: the trainer's own uncaught exception still counts."""
    record = exception(ordinary_run(command=("sh", "-c", "python train.py | tee log")), 59, "ValueError", "x")

    diagnosis = verdict(record.exit(60, 0))

    assert diagnosis.ending.kind == "stopped-early"
    assert causes(diagnosis) == ["early-stop.swallowed-error"]


COUNTED = """
while step < most:
    try:
        loss = model(next(batches))
        loss.backward()
        {within}
        step += 1
    except StopIteration:
        batches = iter(loader)
    except {caught}:
        {handled}
        break
"""


@pytest.mark.parametrize(
    ("within", "caught", "handled", "found"),
    [
        ("callback(step)", "Exception as e", "logger.debug(e)", ["early-stop.swallowed-error"]),
        ("callback(step)", "Exception as e", "print(e)", []),
        ("callback(step)", "EnoughLearned", "pass", []),
        ("if good(loss): break", "Exception", "pass", []),
    ],
    ids=["nobody hears of it", "printed", "one that is meant", "another way out"],
)
def test_an_error_is_what_leaves_a_loop_whose_only_way_out_is_an_except(within, caught, handled, found):
    """Steps of a loop that counts them itself are missing, and its only `break` stands where any error is caught."""
    record = ordinary_run().event("plan", 2, pid=TRAINER, steps=5000, source="loop").exit(60, 0)
    record.lines("guest")[0]["file"] = "/home/u/train.py"
    record.sources["/home/u/train.py"] = COUNTED.format(within=within, caught=caught, handled=handled).split("\n")

    diagnosis = verdict(record)

    assert causes(diagnosis) == found
    assert [finding.culprit.line for finding in diagnosis.findings] == [10] * len(found)


GUARDED = """
def fit():
    for epoch in range(40):
        for x in loader:
            loss = model(x)
            loss.backward()
        {after}

try:
    {called}
except {caught}:
    {handled}
"""


@pytest.mark.parametrize(
    ("caught", "after", "epoch", "found"),
    [
        ("Exception", "metrics(epoch)", 12, ["early-stop.swallowed-error"]),
        ("Exception as e:\n    print(e)\nexcept ValueError", "metrics(epoch)", 12, []),
        ("StopIteration:\n    pass\nexcept Exception", "metrics(epoch)", 12, []),
        ("", "metrics(epoch)", 12, ["early-stop.swallowed-error"]),
        ("(ValueError, BaseException)", "metrics(epoch)", 12, ["early-stop.swallowed-error"]),
        ("KeyboardInterrupt", "metrics(epoch)", 12, []),
        ("EnoughLearned", "metrics(epoch)", 12, []),
        ("Exception", "if good(): break", 12, []),
        ("Exception", "if good(): return", 12, []),
        ("Exception", "metrics(epoch)", 40, []),
    ],
)
def test_a_loop_without_a_way_out_was_left_by_an_error(caught, after, epoch, found):
    """What an `except` for everything around it took: told with its line. A loop that may be left is none, nor is one
    that has come to its last epoch, whatever its loader's length promised; nor where a kind of error is meant to end
    it, or where the error was printed."""
    record = ordinary_run()
    record.event("plan", 2, pid=TRAINER, steps=0, epochs=40, steps_per_epoch=50, source="loop")
    record.event("epoch", 55, pid=TRAINER, epoch=epoch, step=549)
    for line in record.lines("steps"):
        line["epoch"] = epoch
    record.lines("guest")[0]["file"] = "/home/u/train.py"
    record.sources["/home/u/train.py"] = GUARDED.format(
        caught=caught, after=after, called="fit()", handled="pass"
    ).split("\n")

    diagnosis = verdict(record.exit(60, 0))

    assert causes(diagnosis) == found
    if found:
        assert (diagnosis.ending.kind, diagnosis.findings[0].culprit.line) == ("stopped-early", 11)


EXITS = {
    "printed": ["if spent > budget:", '    print(f"budget used up at {epoch}")', "    save()", "    sys.exit(0)"],
    "logged": ["if spent > budget:", '    logger.info("budget used up")', "    sys.exit(0)"],
    "in an else": ["if good:", "    go_on()", "else:", '    print("nothing more to learn")', "    sys.exit(0)"],
    "in a function": ["def leave(step):", '    print(f"budget used up at {step}")', "    save()", "    sys.exit(0)"],
    "ahead of the work": ["def main():", '    print("go")', "    for x in data:", "        pass", "    sys.exit(0)"],
    "of an error": ["try:", "    step()", "except Exception:", '    print("broken")', "    sys.exit(0)"],
    "not a word": ["if spent > budget:", "    save()", "    sys.exit(0)"],
    "a number": ["if spent > budget:", "    print(loss)", "    sys.exit(0)"],
    "in the other branch": ["if good:", '    print("goes on")', "else:", "    sys.exit(0)"],
    "in what an error calls": [
        "def leave(error):",
        '    print("training failed")',
        "    sys.exit(0)",
        "try:",
        "    step()",
        "except Exception as error:",
        "    leave(error)",
    ],
    "ahead of the branch": ['print("step", step)', "if spent > budget:", "    sys.exit(0)"],
}


@pytest.mark.parametrize("name", EXITS)
def test_an_exit_with_a_message_ahead_of_it_is_meant(name):
    """A branch that says why and then leaves is a stop on purpose, told in one line; without a word it is not."""
    record = ordinary_run(planned=5000)
    record.sources["/home/u/train.py"] = ["import sys", *EXITS[name]]
    at = next(n for n, text in enumerate(EXITS[name], 2) if "exit" in text)
    line = {"file": "/home/u/train.py", "line": at, "function": "guard", "code": "sys.exit(0)", "status": "0"}

    diagnosis = verdict(record.event("exit-called", 59.5, pid=TRAINER, **line).exit(60, 0))

    meant = name in ("printed", "logged", "in an else", "in a function")
    assert (diagnosis.ending.kind, diagnosis.healthy) == (("completed", True) if meant else ("stopped-early", False))
    assert ("exit was called at" in diagnosis.ending.claim, causes(diagnosis)) == (True, ["early-stop.exit-called"])


def test_an_exit_after_a_printed_error_is_never_meant():
    """A function that prints the traceback, a word on it, and then leaves with 0: the error is the finding."""
    record = ordinary_run(planned=5000)
    record.sources["/home/u/train.py"] = ["import sys", *EXITS["in a function"]]
    record.output = traceback_text("ValueError", "bad target")
    line = {"file": "/home/u/train.py", "line": 5, "function": "leave", "code": "sys.exit(0)", "status": "0"}

    diagnosis = verdict(record.event("exit-called", 59.5, pid=TRAINER, **line).exit(60, 0))

    assert (diagnosis.ending.kind, causes(diagnosis)[0]) == ("stopped-early", "early-stop.swallowed-error")


def test_exit_called_amid_the_steps():
    """sys.exit(0) by the user's own code amid the steps is named with its line."""
    line = {"file": "/home/u/train.py", "line": 9, "function": "guard", "code": "sys.exit(0)", "status": "0"}
    record = ordinary_run(planned=5000).event("exit-called", 59.5, pid=TRAINER, **line).exit(60, 0)

    diagnosis = verdict(record)

    assert causes(diagnosis) == ["early-stop.exit-called"]
    assert diagnosis.findings[0].culprit.line == 9


def test_exit_of_main_at_the_end_is_ordinary():
    """sys.exit(main()) after a loop that was left on purpose is how scripts end."""
    line = {"file": "/home/u/train.py", "line": 90, "function": "<module>", "code": "sys.exit(main())", "status": "0"}
    record = ordinary_run().event("plan", 2, pid=TRAINER, steps=5000, source="loop")

    assert verdict(record.event("exit-called", 59.5, pid=TRAINER, **line).exit(60, 0)).healthy


def test_sigterm_that_the_script_answered_in_order():
    """A script that catches SIGTERM and leaves with 0 before its plan is done was killed, not completed."""
    record = ordinary_run(planned=5000).event("signal", 58, signal="SIGTERM", sender="slurmstepd", sender_pid=5)

    ending = ending_of(record.exit(60, 0))

    assert ending.kind == "killed"
    assert "slurmstepd" in ending.claim


@pytest.mark.parametrize(
    ("said", "planned", "kind"),
    [
        ("[rank: 0] Received SIGTERM: 15", 5000, "killed"),
        ("[rank: 0] Received SIGTERM: 15", 0, "completed"),
        ("a handler for SIGTERM was set", 5000, "stopped-early"),
    ],
    ids=["asked to stop", "nothing is missing", "only named"],
)
def test_a_signal_that_only_the_training_saw_is_known_by_its_words(said, planned, kind):
    """A scheduler that ends the trainer itself passes Holter by; Lightning says so and leaves with 0."""
    record = ordinary_run(**({"planned": planned} if planned else {}))
    record.output += f"epoch 3\n{said}\n"

    assert ending_of(record.exit(60, 0)).kind == kind


def test_live_run_without_findings_is_healthy():
    """A run that is on and well is running."""
    record = ordinary_run()
    record.live = True

    diagnosis = verdict(record)

    assert (diagnosis.ending.kind, diagnosis.healthy) == ("running", True)


def test_command_that_could_not_start():
    """A command that could not be started is told with the system's words."""
    record = ordinary_run(seconds=0)
    record.events = [event for event in record.events if event["k"] != "spawned"]

    ending = ending_of(record.event("failed", 1, errno=2, error="No such file or directory"))

    assert ending.kind == "exception"
    assert "could not be started" in ending.claim
    assert ending.claim.endswith("No such file or directory")


def test_run_part_of_the_verdict_follows_the_schema():
    """The run's own fields are those of schema 2, frameworks by name and version; no job without ranks."""
    run = verdict(ordinary_run().exit(60, 0)).run

    assert set(run) == {"id", "name", "command", "started", "ended", "host", "frameworks", "job"}
    assert run["frameworks"] == {"torch": "2.13.0"}
    assert run["job"] is None


def fit_end(record, at, steps, planned, stopped=False):
    fields = {"epochs": 1, "epochs_planned": 2, "steps": steps, "steps_planned": planned, "stopped": stopped}
    return record.event("fit-end", at, pid=TRAINER, source="keras", **fields)


def test_earlier_fit_that_fell_short_is_not_forgotten():
    """Of several fits in one run each has its own plan; one that fell short counts."""
    record = fit_end(fit_end(ordinary_run(), 30, 100, 400), 59.5, 450, 450)
    record.output = "Your input ran out of data; interrupting training.\n"

    diagnosis = verdict(record.exit(60, 0))

    assert "100 of 400 steps" in diagnosis.ending.claim
    assert causes(diagnosis) == ["early-stop.input-exhausted"]


def test_fit_that_was_stopped_on_purpose_is_completed():
    """The framework's own word that it was stopped on purpose is enough."""
    record = fit_end(ordinary_run(planned=1000), 59.5, 550, 1000, stopped=True).exit(60, 0)

    assert verdict(record).healthy


def test_launcher_with_a_traceback_of_its_own_is_still_a_kill():
    """A wrapper's CalledProcessError reports its child's SIGKILL; the child was the trainer."""
    record = ordinary_run(command=("python", "launch.py")).exit(60, 1)
    record.output = traceback_text("subprocess.CalledProcessError", "Command 'x' died with <Signals.SIGKILL: 9>.")

    assert ending_of(record).kind == "killed"


def test_progress_bar_of_one_long_line_costs_no_time():
    """A quarter of a megabyte without a line feed is read in a moment."""
    record = ordinary_run(planned=9999).exit(60, 0)
    record.output = "\r 10%|### | 5/50 loss=1.0 EarlyStopping Epoch 3:" * 5000

    begun = time.process_time()
    verdict(record)

    assert time.process_time() - begun < 2.0


def test_ranks_that_a_launcher_ended_are_not_the_cause():
    """torchrun ends the other ranks with SIGTERM: the one that failed first, and its error, count."""
    record = exception(ordinary_run(), 58, "RuntimeError", "Connection closed by peer", line=9)
    record = exception(record, 57, "ValueError", "bad shape", pid=11, line=41)
    record.event("guest", 1, pid=11, role="trainer")
    record.events.sort(key=lambda event: -event["m"] if event["k"] == "exception" else event["m"])
    record.output = (
        "Failures:\n[1]:\n  exitcode  : -15 (pid: 10)  (SIGTERM)\n"
        "  traceback : Signal 15 (SIGTERM) received by PID 10\n"
        "Root Cause (first observed failure):\n[0]:\n  exitcode  : 1 (pid: 11)\n"
    )

    diagnosis = verdict(record.exit(60, 1))

    assert diagnosis.ending.kind == "exception"
    assert diagnosis.findings[0].culprit.line == 41
