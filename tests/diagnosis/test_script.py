"""The light look at a script: where a name grows, who calls what, which loop a line stands in."""

from __future__ import annotations

import pytest

from holter.diagnosis.leak.growing_line import growing_line
from holter.source.lines import (
    appends_to,
    calls_of,
    culprit_at,
    function_around,
    handler_around,
    loop_around,
    settings_of,
    turn_of_loop,
)

TEXT = """\
history = []
for epoch in range(10):
    for x in data:
        history.append(x)
        total += x


def pairwise(z):
    h = []
    while z:
        with no_grad():
            y = (
                z
                .log()
            )
    return y


class Keeper:
    def keep(self, out):
        self.outputs.append(out)
        self.by_key[out.key] = out
        seen = seen + [out]
        bank = torch.cat([bank, out])
        other = torch.cat([out, out])
        plain = history
"""
SCRIPT = TEXT.split("\n")


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("history", [4]),
        ("total", [5]),
        ("self.outputs", [21]),
        ("keeper.by_key", [22]),
        ("seen", [23]),
        ("bank", [24]),
        ("other", []),
        ("plain", []),
        ("", []),
    ],
)
def test_lines_that_make_a_name_grow_are_found(name, lines):
    assert appends_to(SCRIPT, name) == lines


def test_a_call_is_found_on_the_line_of_its_name():
    assert calls_of(SCRIPT, ["log"]) == [(14, "log")]


def test_the_innermost_loop_around_a_line_is_named():
    assert [loop_around(SCRIPT, n) for n in (1, 2, 3, 4, 9, 12)] == [None, None, 2, 3, None, 10]


def test_the_function_around_a_line_is_named():
    assert [function_around(SCRIPT, n) for n in (4, 9, 21)] == ["", "pairwise", "keep"]


def test_a_culprit_carries_the_code_of_its_line():
    found = culprit_at("/a.py", SCRIPT, 21)

    assert (found.function, found.code) == ("keep", "self.outputs.append(out)")


@pytest.mark.parametrize("text", [[], ["def broken(:"], ["\0"], ["(" * 5000]])
def test_what_does_not_parse_has_nothing_to_say(text):
    assert (appends_to(text, "a"), calls_of(text, ["b"]), loop_around(text, 1)) == ([], [], None)


def test_settings_are_found_by_the_end_of_their_name():
    script = ["BATCH_SIZE = 512", "args = Args(", "    per_device_train_batch_size=64,", "    epochs=3,", ")"]

    assert settings_of(script, "batch_size") == [(1, "BATCH_SIZE"), (3, "per_device_train_batch_size")]


def test_the_except_that_keeps_an_error_to_itself_is_found():
    script = [
        "try:",
        "    step()",
        "except ValueError:",
        "    pass",
        "try:",
        "    step()",
        "except OSError:",
        "    raise",
        "step()",
    ]

    assert [handler_around(script, line) for line in (2, 4, 6, 9)] == [3, None, None, None]
    assert [handler_around(script, line, silent=True) for line in (2, 4, 6, 9)] == [None] * 4


def test_the_line_in_a_loop_that_a_line_runs_for_is_found():
    script = [
        "def build():",
        "    return Net()",
        "def fold():",
        "    net = build()",
        "for k in range(5):",
        "    fold()",
    ]

    assert [turn_of_loop(script, line) for line in (2, 4, 6)] == [6, 6, 6]
    assert turn_of_loop(script[:4], 2) == 2


def test_a_variable_of_the_same_name_in_another_function_is_another_variable():
    """The state that a loop at the top carries on is not the one inside the model."""
    script = [
        "class Net:",
        "    def forward(self, x, state):",
        "        out, state = self.rnn(x, state)",
        "        return out, state",
        "for x in stream:",
        "    out, state = net(x, state)",
    ]

    assert growing_line(script, "state", top=True).line == 6
    assert growing_line(script, "state", "forward").line == 3
