"""The record of the published rules, pinned: what the library says is what plain loops find in the values per seed."""

import math
from fractions import Fraction

import numpy as np
import pytest
from tests.reference import published_rules as twin

from triplepoint.published import load_cells, load_values, published_rules, record
from triplepoint.published.rules import PUBLISHED_SATURATION, PUBLISHED_TOKENS

RULES = {rule.name: rule for rule in published_rules()}
TWELVE = load_cells("calibration")
FOURTEEN = load_cells("calibration", "stress")
CUT = Fraction(str(PUBLISHED_SATURATION))


def saturations(cells):
    return [twin.mean(c.saturation_2) for c in cells]


def labels(cells):
    return [twin.helped(c) for c in cells]


def scales(cells):
    return [c.scale for c in cells]


def by_amount(cells):
    """What the rules on data compare with a cut, on the axis of decades."""
    return {
        "tokens per parameter": [-math.log10(c.unique_tokens / c.params) for c in cells],
        "unique tokens": [-math.log10(c.unique_tokens) for c in cells],
        "epochs": [math.log10(c.tokens_processed / c.unique_tokens) for c in cells],
    }


# --- the twin on lines of numbers, by hand


def test_the_twin_worked_by_hand():
    assert twin.fitted_cut([1, 2, 4], [False, False, True]) == 3
    assert twin.fitted_cut([1, 2], [True, False]) == Fraction(99, 100)
    assert twin.without_each([4, 1, 9, 1], [1, 0, 1, 0], "aabb") == {
        "a": (5, 1, 2), "b": (Fraction(5, 2), 2, 2),
    }  # fmt: skip
    assert twin.auc([3, 2, 1, 2], [True, True, False, False]) == Fraction(7, 8)
    assert twin.placements_as_good([4, 3, 2, 1], [True, True, False, False]) == (1, 6)


def test_labels_are_the_signs_of_the_means_over_seeds():
    assert labels(FOURTEEN) == [c.helps for c in FOURTEEN]
    assert sum(labels(TWELVE)) == 4


# --- saturation above 0.43


@pytest.mark.parametrize(
    ("groups", "right", "n"),
    [
        (("calibration",), 9, 12),
        (("calibration", "stress"), 9, 14),
        (("stress",), 0, 2),
        (("llama",), 2, 3),
    ],
    ids=lambda v: "+".join(v) if isinstance(v, tuple) else None,
)
def test_saturation_in_sample(groups, right, n):
    cells = load_cells(*groups)
    assert twin.right_at(CUT, saturations(cells), labels(cells)) == right
    worth = record(RULES["saturation"], cells=cells)
    assert (worth.correct, worth.n) == (right, n)


def test_saturation_is_right_in_six_of_twelve_with_the_scale_held_out_and_keeping_in_eight():
    folds = twin.without_each(saturations(TWELVE), labels(TWELVE), scales(TWELVE))
    assert {scale: fold[1:] for scale, fold in folds.items()} == {
        "S1": (3, 4), "S2": (1, 3), "S3": (1, 3), "S4": (1, 2),
    }  # fmt: skip
    worth, keep = record(RULES["saturation"]), record(RULES["always keep"])
    assert (worth.loso_correct, worth.loso_n) == (6, 12)
    assert sum(fold[1] for fold in folds.values()) == worth.loso_correct
    cuts = {scale: float(fold[0]) for scale, fold in folds.items()}
    assert worth.loso_thresholds == pytest.approx(cuts, abs=1e-12)
    assert (keep.correct, keep.loso_correct, keep.loso_n) == (8, 8, 12)
    assert labels(TWELVE).count(False) == keep.loso_correct


def test_saturation_from_two_small_scales_is_right_in_two_of_seven_larger_cells():
    small = [c for c in FOURTEEN if c.scale in ("S1", "S2")]
    large = [c for c in FOURTEEN if c not in small]
    cut = twin.fitted_cut(saturations(small), labels(small))
    # the middle of S1/50M and S2/10M
    assert float(cut) == pytest.approx(0.265, abs=5e-4)
    assert (twin.right_at(cut, saturations(large), labels(large)), len(large)) == (2, 7)


@pytest.mark.parametrize(
    ("cells", "area"),
    [(TWELVE, Fraction(24, 32)), (FOURTEEN, Fraction(24, 40))],
    ids=["12", "14"],
)
def test_saturation_ranks_so_well(cells, area):
    assert twin.auc(saturations(cells), labels(cells)) == area
    assert record(RULES["saturation"], cells=cells).auc == pytest.approx(float(area), abs=1e-12)


def test_the_published_cut_is_the_middle_of_two_overlapping_classes_of_an_older_table():
    # S2/10M stood there as +6.1 %
    old = {c.name: twin.helped(c) and c.name != "S2/10M" for c in TWELVE}
    value = dict(zip(old, saturations(TWELVE), strict=True))
    least = min(value[name] for name in old if old[name])
    most = max(value[name] for name in old if not old[name])
    assert least < most
    assert float((least + most) / 2) == pytest.approx(0.4295, abs=5e-5)
    assert round((least + most) / 2, 2) == CUT
    assert twin.right_at(CUT, list(value.values()), list(old.values())) == 10


# --- rules on the amount of data


@pytest.mark.parametrize(
    ("name", "right", "held_out"),
    [("tokens per parameter", 10, 8), ("unique tokens", 9, 7), ("epochs", 9, 7)],
)
def test_rules_on_the_amount_of_data(name, right, held_out):
    worth = record(RULES[name])
    assert (worth.correct, worth.n, worth.loso_correct, worth.loso_n) == (right, 12, held_out, 12)
    scores, truth = by_amount(TWELVE)[name], labels(TWELVE)
    # the published amount itself is still little data
    given = -math.log10(PUBLISHED_TOKENS) - 1e-9
    cut = given if name == "unique tokens" else twin.fitted_cut(scores, truth)
    assert twin.right_at(cut, scores, truth) == right
    folds = twin.without_each(scores, truth, scales(TWELVE))
    assert sum(fold[1] for fold in folds.values()) == held_out
    cuts = {scale: float(fold[0]) for scale, fold in folds.items()}
    assert worth.loso_thresholds == pytest.approx(cuts, abs=1e-12)
    assert worth.auc == pytest.approx(float(twin.auc(scores, truth)), abs=1e-12)


@pytest.mark.parametrize("name", ["saturation", "tokens per parameter", "unique tokens", "epochs"])
def test_the_chance_of_such_a_rank_is_counted_over_all_placements(name):
    scores = saturations(TWELVE) if name == "saturation" else by_amount(TWELVE)[name]
    as_good, placements = twin.placements_as_good(scores, labels(TWELVE))
    assert record(RULES[name]).permutation_p == pytest.approx(as_good / placements, abs=1e-12)
    assert placements == 495


def test_the_rule_on_gaps_stands_on_two_cells():
    known = [c for c in TWELVE if c.baseline_gap is not None]
    gaps, truth = [twin.mean(c.baseline_gap) for c in known], labels(known)
    cut = twin.fitted_cut(gaps, truth)
    worth = record(RULES["train/val gap"])
    assert (twin.right_at(cut, gaps, truth), len(known)) == (worth.correct, worth.n) == (2, 2)
    assert f"{float(cut):.2f} nats/token" in RULES["train/val gap"].definition
    assert worth.loso_correct is None


def test_no_rule_beats_keeping_with_the_scale_held_out():
    found = {name: record(rule).loso_correct for name, rule in RULES.items()}
    assert found == {
        "always keep": 8, "tokens per parameter": 8, "unique tokens": 7, "epochs": 7, "train/val gap": None,
        "saturation": 6,
    }  # fmt: skip


# --- saturation of at least one half says that a Llama style run collapsed

VALUES = load_values()
PARTS = ("no rope", "no gqa", "no swiglu")
ABLATED = [f"Llama_S1/118M dyt {{}}, {part}" for part in PARTS]
WHOLE = [f"Llama_{scale}/118M dyt {{}}" for scale in ("S1", "S2")]
COLLAPSED = 7.0
"""Nats per token: above it lie the runs that never learnt more than unigrams, all at 7.44 to 7.45."""


def runs(names):
    """(saturation, loss) of each seed."""
    found = []
    for name in names:
        loss, saturation = (VALUES[name.format(what)].seeds for what in ("loss", "saturation"))
        found += [(saturation[seed], loss[seed]) for seed in loss]
    return found


@pytest.mark.parametrize(
    ("names", "hits", "collapsed", "others"),
    [(ABLATED, 4, 4, 5), (WHOLE, 2, 2, 4), ([*ABLATED, *WHOLE], 6, 6, 9)],
    ids=["ablations", "whole", "all"],
)
def test_saturation_tells_collapsed_runs_apart_at_their_end(names, hits, collapsed, others):
    called = [(saturation >= 0.5, loss > COLLAPSED) for saturation, loss in runs(names)]
    assert called.count((True, True)) == hits
    assert called.count((True, False)) == 0
    assert sum(truth for _, truth in called) == collapsed
    assert len(called) == collapsed + others


def test_on_little_data_a_run_that_learnt_is_called_as_well():
    # the plateau there is another, and one seed of three stayed on it
    found = dict(zip(("1337", "42", "7"), runs(["Llama_S1/1M dyt {}"]), strict=True))
    assert [seed for seed, (saturation, _) in found.items() if saturation >= 0.5] == ["1337", "7"]
    assert min(found.values(), key=lambda run: run[1]) == found["1337"]


@pytest.mark.parametrize(
    ("names", "r"),
    [(ABLATED, 0.9388), ([*ABLATED, WHOLE[0]], 0.944), ([*ABLATED, *WHOLE], 0.959)],
    ids=["9", "12", "15"],
)
def test_saturation_follows_the_loss_of_two_clusters(names, r):
    assert np.corrcoef(np.transpose(runs(names)))[0, 1] == pytest.approx(r, abs=5e-4)
