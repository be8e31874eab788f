"""Tests of triplepoint.report.series."""

import math

from triplepoint.records import Record
from triplepoint.report.series import BASELINE_COLOUR, COLOURS, arms_of, index, mean_over_seeds


def test_mean_is_not_finite_where_one_seed_is_not():
    mean = mean_over_seeds([{1: 2.0, 2: 2.0}, {1: 4.0, 2: math.nan}])
    assert mean[1] == 3.0
    assert math.isnan(mean[2])


def test_mean_stops_where_the_first_seed_stops():
    assert mean_over_seeds([{1: 1.0}, {1: 3.0, 2: 9.0}]) == {1: 2.0}


def test_endpoint_values_are_not_points_of_the_curve():
    rows = [
        Record(metric="val_loss", value=2.0, step=10, arm="a", seed=0),
        Record(metric="val_loss", value=9.0, step=10, arm="a", seed=0, endpoint="best_checkpoint"),
    ]
    assert index(rows, None).whole["val_loss", "a"] == {0: {10: 2.0}}


def test_sites_keep_the_order_of_their_records():
    rows = [
        Record(metric="alpha", value=1.0, step=1, arm="a", seed=0, site=s) for s in ("b", "a", "c")
    ]
    series = index(rows, None)
    assert list(series.site_means("alpha", series.arms[0])) == ["b", "a", "c"]


def test_baseline_is_first_and_dark_wherever_it_is_declared():
    declared = {"dyt": {"role": "candidate"}, "rmsnorm": {"role": "baseline"}, "derf": {}}
    arms = arms_of(declared, ["derf", "dyt", "rmsnorm"])
    assert [(arm.name, arm.colour) for arm in arms] == [
        ("rmsnorm", BASELINE_COLOUR),
        ("dyt", COLOURS[0]),
        ("derf", COLOURS[1]),
    ]


def test_records_without_arm_belong_to_the_one_declared_arm():
    (arm,) = arms_of({"dyt": {"op": "dyt"}}, [None])
    assert (arm.name, arm.key) == ("dyt", None)


def test_more_candidates_than_colours_still_get_one():
    arms = arms_of({f"arm{i}": {"role": "candidate"} for i in range(9)}, [])
    assert {arm.colour for arm in arms} == set(COLOURS)
