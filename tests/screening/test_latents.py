"""Tests of triplepoint.screening.latents: laws of what a beginning does not tell."""

import math

import numpy as np
import pytest

from triplepoint.screening.latents import PRIOR_PAIRS, QUANTITIES, Law, fit_laws
from triplepoint.screening.readings import Outcome, Reading

S = np.linspace(0.1, 1.0, 4)


def reading(*, slope=0.5, ratio=0.5, on_plateau=False, epochs=1.0, offset=0.0, regularised=False, last=2.0):  # fmt: skip
    train = np.array([3.0, 2.7, 2.4, last])
    return Reading(
        s=S, train=train, val=train + 0.1, s_candidate=1.0, best_candidate=2.0, slope=slope, middle=2.2, exponent=0.12,
        speed_ratio=ratio, offset=offset, on_plateau=on_plateau, epochs=epochs, regularised=regularised,
    )  # fmt: skip


def end(**values):
    told = {"acceleration": None, "curvature": None, "catching_up": None, "offset": None, "gap": None}  # fmt: skip
    return Outcome(**{**told, **values})


def test_a_line_is_found_again_and_its_spread_is_small():
    rng = np.random.default_rng(0)
    slopes = np.linspace(0, 1, 600)
    pairs = [
        (reading(slope=m, last=2.0 - m / 10), end(acceleration=1.5 - 0.8 * m + 0.05 * e))
        for m, e in zip(slopes, rng.normal(size=600), strict=True)
    ]
    law = fit_laws(pairs)["acceleration"]
    assert law.coefficients[:2] == pytest.approx((1.5, -0.8), abs=0.05)
    # 600 residuals of 0.05 and 4 of the prior's 0.5
    expected = math.sqrt((600 * 0.05**2 + PRIOR_PAIRS * 0.5**2) / (600 + PRIOR_PAIRS))
    assert law.spread == pytest.approx(expected, rel=0.15)


def test_a_baseline_with_many_candidates_counts_once():
    base = reading(slope=0.5), end(acceleration=2.0)
    other = reading(slope=0.4, last=1.9), end(acceleration=1.0)
    once, often = fit_laws([base, other]), fit_laws([*[base] * 9, other])
    assert once["acceleration"] == often["acceleration"]
    # the candidate's own quantities count as often as there are candidates
    late = reading(), end(catching_up=1.0)
    assert fit_laws([late] * 9)["catching_up"].coefficients[0] > fit_laws([late])["catching_up"].coefficients[0]  # fmt: skip


def test_an_arm_on_the_plateau_has_a_law_of_its_own():
    stuck = [(reading(on_plateau=True, ratio=0.02), end(catching_up=3.0))] * 5
    moving = [(reading(), end(catching_up=0.5))] * 20
    laws = fit_laws([*stuck, *moving])
    assert laws["catching_up"].expected([math.log(0.5), 0.0]) == pytest.approx(0.5, abs=0.05)
    assert laws["escaping"].expected([math.log(0.02), 0.0]) == pytest.approx(3.0, abs=0.3)


def test_one_outlier_moves_neither_line_nor_spread_much():
    usual = [(reading(), end(catching_up=0.5 + 0.01 * i)) for i in range(-10, 11)]
    clean, dirty = fit_laws(usual), fit_laws([*usual, (reading(), end(catching_up=40.0))])
    assert dirty["catching_up"].expected([math.log(0.5), 0]) == pytest.approx(
        clean["catching_up"].expected([math.log(0.5), 0]), abs=0.05
    )
    assert dirty["catching_up"].spread < 2 * clean["catching_up"].spread


def test_relief_is_learned_where_there_is_a_gap_only():
    blind = [(reading(), end(offset=-0.5, gap=0.0))] * 10
    assert fit_laws(blind)["relief"] == Law(coefficients=(0.0, 1.0, 0.0), spread=0.2)
    seen = [(reading(), end(offset=-0.5, gap=2.0))] * 10
    assert fit_laws(seen)["relief"].expected([0.0, 0.0]) == pytest.approx(0.25, abs=0.03)


def test_without_pairs_the_priors_hold():
    for name, law in fit_laws([]).items():
        assert (law.coefficients, law.spread) == (QUANTITIES[name].prior, QUANTITIES[name].spread)
        assert len(law.coefficients) == 1 + len(QUANTITIES[name].features(reading()))
