"""Growth that stands, and the shapes that only look like it."""

from __future__ import annotations

import math
import random

import pytest

from holter.diagnosis.core.trend import begins, certainty, evenly, keeps_on, slope, slope_range, stairs, trend_of


def series(shape, n=100, noise=0.0, seed=1):
    """A series of n readings of a shape over 0 to 1, with noise."""
    rng = random.Random(seed)
    return [(float(x), shape(x / n) + rng.gauss(0, noise)) for x in range(n)]


GROWING = {
    "a line": lambda x: 100 + 80 * x,
    "a line after a flat third": lambda x: 100 + max(0.0, x - 0.33) * 120,
    "faster and faster": lambda x: 100 + 80 * x * x,
    "ten stairs": lambda x: 100 + 8 * int(10 * x),
    "a line with teeth": lambda x: 100 + 80 * x + 8 * (20 * x % 1),
}
LOOK_ALIKES = {
    "flat": lambda _x: 100,
    "warm-up that levels off": lambda x: 100 + 80 * (1 - math.exp(-8 * x)),
    "a ramp and a plateau": lambda x: 100 + 80 * min(1.0, 2.5 * x),
    "a plateau near the limit": lambda x: 960 + 3 * (7 * x % 1),
    "teeth of a collector": lambda x: 100 + 60 * (9 * x % 1),
    "three large teeth": lambda x: 100 + 60 * (3 * x % 1),
    "one jump": lambda x: 100 if x < 0.55 else 180,
    "one jump at the end": lambda x: 100 if x < 0.95 else 180,
    "a fall": lambda x: 200 - 80 * x,
    "a rise and a fall": lambda x: 100 + 80 * math.sin(math.pi * x),
}


@pytest.mark.parametrize("name", GROWING)
@pytest.mark.parametrize("noise", [0.0, 3.0])
def test_growth_is_seen(name, noise):
    """Each kind of growth that goes on is told as such, with and without noise."""
    found = trend_of(series(GROWING[name], noise=noise))

    assert found.shape == "grows"
    assert 50 <= found.rise <= 110


@pytest.mark.parametrize("name", LOOK_ALIKES)
@pytest.mark.parametrize("seed", range(5))
def test_what_only_looks_like_growth_is_none(name, seed):
    """Warm-up, plateaus, teeth, jumps and noise are not growth."""
    assert not trend_of(series(LOOK_ALIKES[name], noise=2.0, seed=seed)).grows


def test_noise_alone_is_no_growth():
    """Of two hundred flat and noisy series almost none is taken for growth."""
    grew = sum(trend_of(series(lambda _: 100, n=60, noise=5, seed=seed)).grows for seed in range(200))

    assert grew <= 4


def test_an_outlier_moves_no_slope():
    """One reading a hundred times too large leaves the slope where it was."""
    points = [(float(x), 2.0 * x) for x in range(40)]
    points[20] = (20.0, 4000.0)

    assert slope(points) == pytest.approx(2.0, rel=0.05)


def test_the_bounds_hold_the_true_slope():
    """In nine of ten noisy lines and more, the true slope lies within the bounds."""
    held = 0
    for seed in range(60):
        low, _, high = slope_range(series(lambda x: 200 * x, n=50, noise=20, seed=seed))
        held += low <= 2.0 * 2 <= high

    assert held >= 52


def test_where_growth_began():
    """Flat for sixty readings and a line after them: it began there."""
    points = series(lambda x: 100 + 300 * max(0.0, x - 0.6), noise=1.0)

    assert begins(points) == pytest.approx(60, abs=6)
    assert begins(series(lambda x: 100 + 50 * x)) == 0


def test_readings_that_crowd_at_the_end_do_not_outvote():
    """Ten readings a step near the limit weigh as much as one did before."""
    points = [(float(x), 100.0) for x in range(90)] + [(90 + x / 100, 100.0 + x) for x in range(900)]

    assert len(evenly(points, 50)) <= 50
    assert trend_of(points).since > 80


@pytest.mark.parametrize(("shape", "low", "high"), [("a line", 0.95, 1.05), ("faster and faster", 1.5, 5)])
def test_a_line_keeps_on(shape, low, high):
    """The later half of a line is as steep as the earlier."""
    assert low <= keeps_on(series(GROWING[shape])) <= high


def test_what_levels_off_does_not_keep_on():
    """The later half of what saturates is far flatter."""
    assert keeps_on(series(LOOK_ALIKES["warm-up that levels off"])) < 0.1


def test_certainty_has_a_sign():
    """Rising is above two deviations, falling below minus two, flat near zero."""
    assert certainty(series(GROWING["a line"])) > 5
    assert certainty(series(LOOK_ALIKES["a fall"])) < -5
    assert certainty([(float(x), 1.0) for x in range(30)]) == 0


@pytest.mark.parametrize(
    ("levels", "climbs"),
    [
        ([100, 150, 200, 250], True),
        ([100, 180, 230, 280], True),
        ([100, 190, 192, 193], False),
        ([100, 150, 140, 190], False),
        ([100, 100, 100], False),
        ([100, 150], False),
        ([100, 200, 300], True),
        ([100, 101, 102, 190], False),
    ],
)
def test_stairs_climb_alike(levels, climbs):
    """Growth from epoch to epoch is stairs of about one height; a first step may be higher."""
    assert (stairs(levels) is not None) == climbs


def test_too_little_is_said_to_be_so():
    """Three readings are no trend, nor is none."""
    assert trend_of([]).shape == "short"
    assert trend_of([(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)]).shape == "short"


def test_all_readings_at_one_step_are_no_trend():
    """A hang has readings and no steps."""
    assert trend_of([(5.0, float(x)) for x in range(50)]).shape == "short"
