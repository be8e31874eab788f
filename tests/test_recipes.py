"""Tests of triplepoint.recipes."""

import math

import pytest

from triplepoint.errors import PlanError
from triplepoint.recipes import MOST_SEQUENCES, Recipe, screening_steps


def message_of(**settings):
    with pytest.raises(PlanError) as caught:
        Recipe(**{"steps": 100, **settings})
    return str(caught.value).split("\n")


# --- learning rate


def test_warmup_of_the_paper_by_hand():
    recipe = Recipe(steps=5000, lr=3e-4, warmup=2000)
    assert recipe.lr_at(1) == pytest.approx(1.5e-7)
    assert recipe.lr_at(500) == pytest.approx(7.5e-5)
    assert recipe.lr_at(2000) == 3e-4


def test_cosine_falls_from_the_peak_to_a_tenth_of_it():
    recipe = Recipe(steps=1100, lr=1.0, warmup=100)
    # halfway: the mean of 1 and 0.1; a third of the way: 0.1 + 0.9 * (1 + cos 60 deg) / 2
    assert recipe.lr_at(100) == 1.0
    assert recipe.lr_at(600) == pytest.approx(0.55)
    assert recipe.lr_at(100 + 1000 // 4) == pytest.approx(0.1 + 0.9 * (1 + math.sqrt(0.5)) / 2)
    assert recipe.lr_at(1100) == pytest.approx(0.1)


def test_constant_stays_at_the_peak_after_warmup():
    recipe = Recipe(steps=50, lr=2.0, warmup=4, schedule="constant")
    assert [recipe.lr_at(k) for k in (1, 2, 4, 5, 50)] == [0.5, 1.0, 2.0, 2.0, 2.0]


def test_horizon_is_where_the_cosine_ends_and_need_not_be_the_end():
    short = Recipe(steps=500, lr=1.0, warmup=100, horizon=1100)
    long = Recipe(steps=1100, lr=1.0, warmup=100)
    assert [short.lr_at(k) for k in (50, 300, 500)] == [long.lr_at(k) for k in (50, 300, 500)]
    past = Recipe(steps=500, lr=1.0, warmup=100, horizon=300)
    assert past.lr_at(300) == past.lr_at(500) == pytest.approx(0.1)


def test_without_warmup_the_first_update_has_nearly_the_peak():
    assert Recipe(steps=1000, lr=1.0, warmup=0).lr_at(1) == pytest.approx(1.0, abs=1e-5)


def test_a_horizon_within_warmup_goes_straight_to_the_lowest():
    recipe = Recipe(steps=500, lr=1.0, warmup=100, horizon=50)
    assert (recipe.lr_at(100), recipe.lr_at(101)) == (1.0, pytest.approx(0.1))


def test_lowest_ratio_may_be_chosen():
    assert Recipe(steps=10, lr=1.0, warmup=0, min_lr_ratio=0.0).lr_at(10) == pytest.approx(0)


def test_s1_sums_the_learning_rates_of_the_updates_done():
    recipe = Recipe(steps=50, lr=2.0, warmup=4, schedule="constant")
    assert recipe.s1_at(0) == 0
    assert recipe.s1_at(6) == 0.5 + 1.0 + 1.5 + 2.0 + 2.0 + 2.0


@pytest.mark.parametrize("schedule", ["cosine", "constant"])
@pytest.mark.parametrize("horizon", [None, 1, 9, 21, 30, 300])
@pytest.mark.parametrize("warmup", [0, 1, 8])
def test_s1_in_closed_form_is_the_sum_of_the_rates(schedule, horizon, warmup):
    recipe = Recipe(steps=40, lr=0.3, warmup=warmup, schedule=schedule, horizon=horizon)
    for step in range(41):
        expected = math.fsum(recipe.lr_at(k) for k in range(1, step + 1))
        assert recipe.s1_at(step) == pytest.approx(expected, rel=1e-12)


# --- when to look


def test_evaluations_are_ascending_once_each_and_end_with_the_last_step():
    recipe = Recipe(steps=100, eval_steps=(50, 25, 0, 200, 50), average_steps=(60, 25))
    assert recipe.evaluations == (25, 50, 60, 100)
    assert Recipe(steps=7).evaluations == (7,)


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (24, ()),
        (25, (25,)),
        (500, (25, 50, 100, 175, 250, 375, 500)),
        (1399, (25, 50, 100, 175, 250, 375, 500, 700, 1000)),
        (5500, (25, 50, 100, 175, 250, 375, 500, 700, 1000, 1400, 2000, 2800, 3900, 5500)),
    ],
)
def test_a_screen_looks_at_these_steps(last, expected):
    assert screening_steps(last) == expected


# --- bad values


@pytest.mark.parametrize("name", ["steps", "batch"])
def test_counts_below_one_are_refused(name):
    assert message_of(**{name: 0}) == [
        f"{name} must be at least 1 and finite, got 0.",
        f"Give another --{name}.",
    ]


@pytest.mark.parametrize("value", [2.0, True, "500", None])
@pytest.mark.parametrize("name", ["steps", "batch"])
def test_counts_that_are_not_whole_numbers_are_refused(name, value):
    assert message_of(**{name: value}) == [
        f"{name} must be a whole number, got {value!r}.",
        f"Try {name}=500.",
    ]


def test_a_batch_larger_than_any_machine_is_refused():
    Recipe(steps=1, batch=MOST_SEQUENCES)
    assert message_of(batch=MOST_SEQUENCES + 1) == [
        f"batch must be at most {MOST_SEQUENCES} sequences, got {MOST_SEQUENCES + 1}.",
        "Try --batch 8.",
    ]


@pytest.mark.parametrize("value", [-1, math.nan, math.inf])
@pytest.mark.parametrize(
    "name", ["warmup", "weight_decay", "clip", "sample_every", "checkpoint_every"]
)
def test_values_below_zero_or_not_finite_are_refused(name, value):
    assert message_of(**{name: value}) == [
        f"{name} must be at least 0 and finite, got {value}.",
        f"Give another --{name.replace('_', '-')}.",
    ]


@pytest.mark.parametrize("lr", [0.0, 9e-13, -1e-3, math.nan, math.inf])
def test_a_learning_rate_that_moves_nothing_or_is_not_finite_is_refused(lr):
    assert message_of(lr=lr) == [
        f"The learning rate must be positive and finite, at least 1e-12, got {lr}.",
        "Try --lr 1e-3.",
    ]


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_that_no_generator_takes_is_refused(seed):
    assert message_of(seed=seed) == [f"A seed lies in [0, 2^63), got {seed}.", "Try --seed 0."]


def test_an_unknown_schedule_is_refused():
    assert message_of(schedule="linear") == [
        "There is no schedule 'linear'.",
        "Known: cosine, constant.",
    ]


def test_an_unknown_precision_is_refused():
    assert message_of(precision="fp16") == ["There is no precision 'fp16'.", "Known: fp32, bf16."]


def test_a_bad_value_is_a_value_error_as_well():
    with pytest.raises(ValueError, match="^steps must be at least 1 and finite, got -5"):
        Recipe(steps=-5)


def test_zeros_that_mean_never_are_allowed():
    Recipe(steps=1, warmup=0, weight_decay=0, clip=0, sample_every=0, checkpoint_every=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"min_lr_ratio": -0.1}, r"min_lr_ratio must lie in \[0, 1\], got -0\.1\.\nTry 0\.1"),
        ({"min_lr_ratio": 2.0}, r"min_lr_ratio must lie in"),
        ({"betas": (0.9, 1.0)}, r"betas lie in \[0, 1\), got \(0\.9, 1\.0\)\.\nTry"),
        ({"horizon": 0}, r"horizon must be at least 1 and finite, got 0"),
    ],
)
def test_a_schedule_or_betas_out_of_range_are_refused(changes, message):
    with pytest.raises(PlanError, match=message):
        Recipe(steps=10, **changes)
