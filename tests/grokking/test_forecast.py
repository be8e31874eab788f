"""Tests of triplepoint.grokking.forecast and the laws it asks."""

import dataclasses
import math

import pytest

from triplepoint.errors import PlanError, StatisticsError
from triplepoint.grokking.forecast import (
    LAWS,
    forecast_grokking,
    leave_one_out,
    median_ratio,
)
from triplepoint.grokking.isolated_laws import complexity_threshold
from triplepoint.grokking.laws import GrokFacts

ISOLATED = GrokFacts(
    loss="mse",
    optimizer="isolated",
    model="two_layer",
    activation="relu",
    lr=1e-3,
    weight_decay=1.0,
)
ADAMW = dataclasses.replace(ISOLATED, optimizer="adamw", task="modular", p=23, fraction=0.7)
TRANSFORMER = GrokFacts(
    loss="cross_entropy", optimizer="adamw", model="transformer", layers=1, task="modular", p=59,
    fraction=0.5, lr=1e-3, weight_decay=1.0, T_mem=100, V_mem=1000 * math.e,
)  # fmt: skip
MLP = GrokFacts(
    loss="cross_entropy", optimizer="adamw", model="mlp", layernorm=False, hidden=256,
    activation="gelu", task="modular", p=59, weight_decay=1.0, lr=1e-3, reference_T_grok=1000,
)  # fmt: skip

# (slow time of the isolated flow from the checkpoint, slow time of the AdamW run from there), p = 23
SEVEN_RUNS = [
    (1.485, 5.05), (1.55, 3.7), (1.043, 2.0), (1.5, 2.8), (1.93, 3.6), (2.36, 4.6), (1.424, 3.6)
]  # fmt: skip


def asked(law, facts, **more):
    """What one law says of these facts."""
    return LAWS[law].ask(dataclasses.replace(facts, **more))


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_a_law_carries_all_that_limits_it_and_claims_nothing_of_an_unknown_run(law):
    assert law.formula and law.source and law.spread and law.weak_points
    assert law.scope.keys() <= {f.name for f in dataclasses.fields(GrokFacts)}
    assert law.ask(GrokFacts()).startswith("not given: ")


# ---- numbers worked by hand


def test_fast_forward_lag_of_a_run():
    # 1.55 / 1e-3 = 1550 steps of the flow, 400 behind us
    said = asked("fast-forward lag", ADAMW, step=400, t99_iso=1.55)
    assert said == pytest.approx((400 + 1.40 * 1550, 400 + 4.27 * 1550))
    assert said[0] < 4100 < said[1]  # where this run did grok


def test_norm_separation_of_e_is_one_over_the_rate():
    said = asked("norm separation", TRANSFORMER, V_post=1000.0)
    assert said == pytest.approx((100 + 1000 / 1.41, 100 + 1000))


@pytest.mark.parametrize(
    ("net", "kappa"),
    [
        ({"layers": 1}, 0.242),
        ({"layers": 2, "layernorm": False}, 0.370),
        ({"layers": 2, "layernorm": True}, 0.175),
        ({"model": "mlp", "layers": None}, 0.206),
    ],
)
def test_first_passage_takes_the_kappa_of_the_net(net, kappa):
    delay = 1 / (2 * kappa * 1e-3)
    said = asked("first passage", TRANSFORMER, V_star=1000.0, **net)
    assert said == pytest.approx((100 + delay / 1.233, 100 + delay / 0.767))


def test_first_passage_knows_v_star_in_its_own_cell_only():
    delay = math.log(1000 * math.e / 2501) / (2 * 0.242 * 1e-3)
    said = asked("first passage", TRANSFORMER, p=97)
    assert said == pytest.approx((100 + delay / 1.233, 100 + delay / 0.767))
    assert asked("first passage", TRANSFORMER) == (
        "not given: V_star (known only for one layer, p = 97, lr 1e-3, weight decay 1)"
    )


def test_held_norm_under_cross_entropy():
    # Wc = 55, so rho goes from 0.9 to 1.0
    said = asked("held norm, cross-entropy", MLP, reference_norm=49.5, held_norm=55.0)
    assert said == pytest.approx((1000 * math.exp(0.716), 1000 * math.exp(0.769)))
    # a smaller norm groks sooner, and the ends change places
    back = asked("held norm, cross-entropy", MLP, reference_norm=55.0, held_norm=49.5)
    assert back == pytest.approx((1000 * math.exp(-0.769), 1000 * math.exp(-0.716)))


def test_wc_is_linear_in_the_logarithm_of_decay_and_grows_with_p():
    # half way between 1 and 3 in ln lam: Wc = (55 + 49) / 2
    half = {"weight_decay": 3**0.5, "reference_norm": 46.8, "held_norm": 52.0}
    said = asked("held norm, cross-entropy", MLP, **half)
    assert said == pytest.approx((1000 * math.exp(0.716), 1000 * math.exp(0.769)))
    # corners of alpha and of the power of p
    wide = asked("held norm, cross-entropy", MLP, p=113, reference_norm=66.0, held_norm=72.0)
    rho = [6 / (55 * (113 / 59) ** power) for power in (0.38, 0.44)]
    expected = (1000 * math.exp(7.16 * rho[1]), 1000 * math.exp(7.69 * rho[0]))
    assert wide == pytest.approx(expected)


def test_held_norm_refuses_a_norm_it_was_not_measured_at():
    said = asked("held norm, cross-entropy", MLP, reference_norm=55.0, held_norm=110.0)
    assert said == "rho = 110 / 55.0 = 2.00, it holds for 0.85 to 1.15"


def test_half_the_decay_takes_two_to_the_power():
    said = asked("regime threshold", TRANSFORMER, weight_decay=0.5, reference_weight_decay=1.0,
                 reference_T_grok=1000)  # fmt: skip
    assert said == pytest.approx((1000 * 2**0.725, 1000 * 2**0.799))


@pytest.mark.parametrize(
    ("scale", "expected"),
    [(4.0, (3860, 3940)), (1.0, (2500, 2500)), (0.5, (1780, 1820))],
)
def test_initial_scale_shifts_the_time(scale, expected):
    said = asked("initial scale", ISOLATED, init_scale=scale, reference_T_grok=2500)
    assert said == pytest.approx(expected)


def test_initial_scale_does_not_go_below_the_start():
    said = asked("initial scale", ISOLATED, init_scale=0.25, reference_T_grok=1000)
    assert "below 0" in said


def test_twice_the_held_first_layer_takes_sixteen_times_as_long():
    said = asked("held norm, squared error", ISOLATED, held_norm=20.0, reference_norm=10.0,
                 reference_T_grok=100)  # fmt: skip
    assert said == pytest.approx((1600 * 8.59 / 9.14, 1600 * 9.14 / 8.59))
    # the two held runs behind the law: ||W1||^2 = 100 and 200, 910 and 3440 steps
    low, high = asked("held norm, squared error", ISOLATED, held_norm=200**0.5,
                      reference_norm=10.0, reference_T_grok=910)  # fmt: skip
    assert low < 3440 < high


@pytest.mark.parametrize(("C", "word"), [(150.0, "above"), (100.0, "within"), (80.0, "below")])
def test_complexity_says_where_and_not_when(C, word):
    said = asked("complexity threshold", ADAMW, fraction=0.7, C_now=C)
    assert said == (
        f"it says where and not when: C = {C:g} is {word} the 87 to 106 at which such nets grok"
    )


def test_complexity_takes_a_threshold_from_an_earlier_run_where_it_has_none():
    beyond = {"fraction": 0.7, "p": 59, "C_now": 400.0}
    assert asked("complexity threshold", ADAMW, **beyond) == (
        "not given: C_star (known only for p = 17 to 37)"
    )
    assert "within the 378 to 462" in asked("complexity threshold", ADAMW, C_star=420.0, **beyond)


def test_complexity_threshold_is_within_its_spread_of_every_measured_one():
    for p, C in {17: 58.8, 23: 98.6, 29: 139.2, 31: 154.9, 37: 211.7}.items():
        low, fitted, high = complexity_threshold(p)
        assert low < C < high
        assert fitted == pytest.approx(C, rel=0.03)
    with pytest.raises(PlanError, match="p = 17 to 37, got p = 59.\nGive C_star"):
        complexity_threshold(59)


def test_norm_decay_is_a_rate():
    sgd = {"optimizer": "sgd", "layernorm": False, "V_now": 300.0, "tau": 0.25}
    assert asked("norm decay", ADAMW, **sgd) == (
        "it is a rate and no time: V = 300 now falls by 0.5 of itself per slow time"
    )


# ---- a forecast is a hull, or says why there is none


def test_laws_that_disagree_make_it_wider():
    facts = dataclasses.replace(TRANSFORMER, V_post=1000.0, V_star=1000.0)
    forecast = forecast_grokking(facts)
    assert set(forecast.intervals) == {"norm separation", "first passage"}
    first, second = forecast.intervals.values()
    assert forecast.interval == (min(first[0], second[0]), max(first[1], second[1]))
    assert forecast.words == (
        "Expected to grok between steps 809 and 2794, by: "
        "norm separation (arXiv 2603.13331), first passage (arXiv 2605.18845)."
    )


def test_nothing_known_is_outside_every_law():
    forecast = forecast_grokking(GrokFacts())
    assert forecast.interval is None
    assert forecast.words == "Outside the scope of every law."
    assert set(forecast.excluded) == set(LAWS)


def test_what_is_outside_is_named_before_what_is_missing():
    said = asked("fast-forward lag", ADAMW, loss="cross_entropy", p=97)
    assert said == "loss is cross_entropy, it holds for mse; p is 97, it holds for 23"
    assert asked("fast-forward lag", ADAMW, step=0) == "not given: t99_iso"


def test_sparse_parity_and_too_little_decay_have_no_norm_separation():
    said = asked("norm separation", TRANSFORMER, task="sparse_parity", weight_decay=0.01)
    assert said == (
        "task is sparse_parity, it holds for modular; weight_decay is 0.01, it holds for 0.1 to 1"
    )


def test_a_norm_below_its_threshold_is_no_delay():
    said = asked("norm separation", TRANSFORMER, V_post=3000.0)
    assert said == "V_mem = 2718.28 is not above its threshold 3000: no delay is left to explain"


def test_an_unmeasured_depth_has_no_kappa():
    said = asked("first passage", TRANSFORMER, layers=6, layernorm=True, V_star=1000.0)
    assert said.endswith("and not for 6 layers, layernorm True")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"loss": "hinge"}, "loss is 'hinge'.\nGive one of mse, cross_entropy, or None."),
        ({"lr": 0.0}, "lr is 0.0, which is not a positive number.\nLeave it out"),
        ({"V_mem": math.nan}, "V_mem is nan, which is not a positive number."),
        ({"T_mem": -1}, "T_mem is -1, which is not a number from 0."),
    ],
)
def test_facts_that_cannot_be(wrong, message):
    with pytest.raises(PlanError, match=message):
        GrokFacts(**wrong)


# ---- leave one out


def test_leave_one_out_by_hand():
    # ratios 2, 2, 3; the held-out run gets the median of the other two
    scored = leave_one_out([(1.0, 2.0), (2.0, 4.0), (2.0, 6.0)], median_ratio)
    # 2.5 * 1 against 2; 2.5 * 2 against 4; 2 * 2 against 6
    assert scored.law_errors == pytest.approx((0.25, 0.25, 1 / 3))
    # medians of the others: 5, 4, 3
    assert scored.median_errors == pytest.approx((1.5, 0.0, 0.5))
    assert (scored.law_mape, scored.median_mape) == pytest.approx((5 / 18, 2 / 3))


def test_seven_adamw_runs_gain_little_from_the_lag():
    scored = leave_one_out(SEVEN_RUNS, median_ratio)
    assert scored.law_mape == pytest.approx(0.202, abs=5e-4)
    assert scored.median_mape == pytest.approx(0.241, abs=5e-4)
    # runs that the law's own range, from other runs, was not read off
    low, high = LAWS["fast-forward lag"].constants["lag, observed"]
    assert all(low < T / x < high for x, T in SEVEN_RUNS)


@pytest.mark.parametrize("runs", [[(1.0, 2.0)], [(1.0, 2.0), (1.0, 0.0)]])
def test_leave_one_out_refuses_what_has_no_error(runs):
    with pytest.raises(StatisticsError, match="at least two runs.*\nLeave out the runs"):
        leave_one_out(runs, median_ratio)
