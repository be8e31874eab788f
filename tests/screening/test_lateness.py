"""Tests of triplepoint.screening.lateness: a candidate that is only late."""

import dataclasses

import numpy as np
import pytest

from triplepoint.evidence import ENDPOINTS, Trajectory
from triplepoint.screening.lateness import outlook, wins
from triplepoint.screening.latents import QUANTITIES, Law
from triplepoint.screening.readings import read

S = np.linspace(0.1, 1.0, 10)


def laws(**constants):
    """No spread: the forecast is one curve. ``acceleration`` 0 goes on as before."""
    values = {"acceleration": 0.0, "curvature": 0.5, "catching_up": 0.0, "escaping": 0.0, "relief": 0.0, "offset": 0.0}  # fmt: skip
    return {
        name: Law(coefficients=(value, *[0.0] * (len(QUANTITIES[name].prior) - 1)), spread=0.0)
        for name, value in {**values, **constants}.items()
    }


def run(train, val, s=S):
    steps = np.arange(1, len(s) + 1)
    return Trajectory(
        seed=0, steps=steps, s1=s, train=train, val=val(train), series={}, outcome="finished", diverged_at=None,
    )  # fmt: skip


def pair(fast, slow, val, s=S):
    return read(run(fast, val, s), run(slow, val), plateau=9.0, epochs_per_step=1.0)


def falling(level):
    """No over-fitting: one nat of validation loss for one of train loss."""
    return level + 0.2


def power(speed=1.0):
    return 2.0 * (speed * S) ** -0.25


def p(found, endpoint, margin=0.005):
    return wins(found.difference(endpoint), margin)


def test_a_late_arm_is_behind_by_what_the_baseline_has_yet_to_learn():
    found = outlook(pair(power(), power(0.5), falling), laws(curvature=0.0), s_end=4.0)
    # both on 2 s^-0.25, the candidate at half the clock: at 4 and at 2
    ends = [2.0 * s**-0.25 + 0.2 for s in (4.0, 2.0)]
    assert found.baseline["fixed_step"] == pytest.approx(np.full(1000, ends[0]), rel=1e-6)
    assert found.candidate["fixed_step"] == pytest.approx(np.full(1000, ends[1]), rel=2e-3)
    for endpoint in ENDPOINTS:
        assert p(found, endpoint) < 0.001
    assert found.best_clock == pytest.approx(np.full(1000, 4.0))


def test_a_parabola_is_continued_to_its_end():
    val = lambda level: 2.0 + (level - 1.6) ** 2 / 2  # noqa: E731
    train, slow = 2.0 * S**-0.1, 2.0 * (0.6 * S) ** -0.1
    found = outlook(pair(train, slow, val), laws(curvature=1.0), s_end=30.0)
    ends = [2.0 * (speed * 30.0) ** -0.1 for speed in (1.0, 0.6)]
    expected = (val(ends[1]) - val(ends[0])) / val(ends[0])
    assert expected < 0
    assert found.difference("fixed_step")[0] == pytest.approx(expected, abs=2e-3)
    # both pass the bottom at 1.6; the grid of times misses it by a little
    assert found.difference("best_checkpoint")[0] == pytest.approx(0.0, abs=1e-3)
    assert 2.0 * found.best_clock[0] ** -0.1 == pytest.approx(1.6, abs=0.03)


def test_over_fitting_makes_the_late_arm_end_lower_and_its_best_no_better():
    val = lambda level: 2.0 + 2 * np.abs(level - 2.2)  # noqa: E731
    found = outlook(pair(power(), power(0.5), val), laws(), s_end=4.0)
    assert p(found, "fixed_step") > 0.99
    assert np.abs(found.difference("best_checkpoint")).max() < 0.02


def test_an_offset_decides_at_the_best_checkpoint():
    # behind by 2 (3.6^-0.25 - 4^-0.25) = 0.038 nats for its speed, ahead by 0.1
    found = outlook(pair(power(), power(0.9), falling), laws(offset=-0.1, curvature=0.0), s_end=4.0)
    ahead = found.candidate["best_checkpoint"] - found.baseline["best_checkpoint"]
    assert ahead == pytest.approx(np.full(1000, 0.038 - 0.1), abs=2e-3)
    assert p(found, "best_checkpoint") > 0.99


def test_relief_spares_a_share_of_the_gap_and_none_where_there_is_none():
    val = lambda level: 2.0 + 2 * np.abs(level - 2.2)  # noqa: E731
    reading = pair(power(), power(), val)
    found = outlook(reading, laws(relief=0.5, curvature=0.0), s_end=4.0)
    level = found.baseline["fixed_step"][0]
    train = 2.0 * 4.0**-0.25
    gap = level - train - (val(power()[0]) - power()[0])
    assert gap > 0
    assert found.candidate["fixed_step"][0] == pytest.approx(level - gap / 2, rel=1e-6)
    none = outlook(pair(power(), power(), falling), laws(relief=0.5, curvature=0.0), s_end=4.0)
    assert none.difference("fixed_step") == pytest.approx(np.zeros(1000), abs=1e-9)


def test_a_candidate_that_catches_up_ends_level():
    slow = outlook(pair(power(), power(0.5), falling), laws(curvature=0.0), s_end=4.0)
    # r = 0.5 x 4^0.5 = 1 at the end
    level = outlook(pair(power(), power(0.5), falling), laws(curvature=0.0, catching_up=0.5), s_end=4.0)  # fmt: skip
    assert slow.difference("fixed_step")[0] > 0.05
    assert level.difference("fixed_step")[0] == pytest.approx(0.0, abs=3e-3)


def test_a_baseline_that_has_been_finished_is_read_and_not_forecast():
    s = np.linspace(0.1, 4.0, 40)
    train = 2.0 * s**-0.25
    finished = read(
        run(train, falling, s), run(power(0.5), falling), plateau=9.0, epochs_per_step=1.0
    )
    wild = {
        name: dataclasses.replace(law, spread=5.0) if QUANTITIES[name].of_baseline else law
        for name, law in laws().items()
    }
    found = outlook(finished, wild, s_end=4.0)
    assert found.baseline["fixed_step"] == pytest.approx(np.full(1000, train[-1] + 0.2))
    assert found.candidate["fixed_step"] == pytest.approx(np.full(1000, 2.0 * 2.0**-0.25 + 0.2), rel=1e-3)  # fmt: skip


def test_the_same_arm_is_no_better_and_no_worse():
    found = outlook(pair(power(), power(), falling), laws(), s_end=4.0)
    assert np.abs(found.difference("fixed_step")).max() < 1e-9


def test_seeds_share_what_the_laws_leave_open():
    wide = {name: dataclasses.replace(law, spread=0.3) for name, law in laws().items()}
    one = outlook(pair(power(), power(0.5), falling), wide, s_end=4.0)
    other = outlook(pair(power(), power(0.45), falling), wide, s_end=4.0)
    pairs = one.difference("fixed_step"), other.difference("fixed_step")
    assert np.corrcoef(*pairs)[0, 1] > 0.95


def test_probabilities_are_never_0_or_1():
    assert wins(np.full(1000, 0.3), 0.005) == 1 / 1002
    assert wins(np.zeros(10), 0.005) == 0.5
