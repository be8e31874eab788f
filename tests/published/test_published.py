"""Tests of triplepoint.published: the paper's numbers follow from its own facts."""

import dataclasses
import json
import math

import pytest

from triplepoint.errors import UnknownNameError
from triplepoint.published import (
    Facts,
    apply_rules,
    facts_of,
    load_cells,
    published_rules,
    record,
)
from triplepoint.statistics import auc, best_threshold, permutation_p

RULES = {rule.name: rule for rule in published_rules()}
TWELVE = load_cells("calibration")
FOURTEEN = load_cells("calibration", "stress")


def cell(name):
    return next(c for c in load_cells() if c.name == name)


def confusion(rule, cells):
    pairs = [(rule.says(facts_of(c)), c.helps) for c in cells]
    return {
        "TP": pairs.count((True, True)),
        "FN": pairs.count((False, True)),
        "FP": pairs.count((True, False)),
        "TN": pairs.count((False, False)),
    }


# --- facts


def test_the_papers_sets_have_their_sizes():
    sizes = {g: len(load_cells(g)) for g in ("calibration", "stress", "llama")}
    assert sizes == {"calibration": 12, "stress": 2, "llama": 3}
    assert [c.helps for c in TWELVE].count(True) == 4
    assert len({c.name for c in load_cells()}) == len(load_cells())


@pytest.mark.parametrize(
    "c",
    [c for c in load_cells() if c.baseline_loss and c.delta_pct is not None],
    ids=lambda c: c.name,
)
def test_deltas_follow_from_the_losses(c):
    # the Llama deltas are shipped with one decimal, and not always rounded
    tolerance = 0.1 if c.family == "llama" else 0.01
    assert 100 * c.delta_rel == pytest.approx(c.delta_pct, abs=tolerance)


def test_llama_deltas_off_by_more_than_rounding_are_flagged():
    off = [
        c.name
        for c in load_cells("llama")
        if abs(100 * c.delta_rel - c.delta_pct) > 0.05 and "delta_pct" in c.caveats
    ]
    assert off == ["Llama_S1/1M", "Llama_S1/118M"]


@pytest.mark.parametrize(
    ("scale", "layers", "width"),
    [("S1", 12, 512), ("S2", 12, 768), ("S2.5", 16, 896), ("S3", 24, 1024), ("S4", 24, 2048),
     ("S5", 32, 3072)],
)  # fmt: skip
def test_parameters_follow_from_the_shape(scale, layers, width):
    blocks, norms, words = layers * 12 * width**2, (2 * layers + 1) * width, 50304 * width
    assert {c.params for c in load_cells() if c.scale == scale} == {blocks + norms + words}


@pytest.mark.parametrize(
    ("scale", "width", "hidden"), [("Llama_S1", 512, 1536), ("Llama_S2", 768, 2048)]
)
def test_llama_parameters_follow_from_the_shape(scale, width, hidden):
    blocks = 12 * (4 * width**2 + 3 * width * hidden)
    params = blocks + 25 * width + 50304 * width
    assert {c.params for c in load_cells() if c.scale == scale} == {params}


@pytest.mark.parametrize(
    ("name", "saturation"),
    [("S1/1M", 0.4931), ("S1/10M", 0.4135), ("S1/50M", 0.2368), ("S1/118M", 0.2343),
     ("S2/1M", 0.4662), ("S2/10M", 0.2924), ("S2/118M", 0.1931), ("S3/1M", 0.4902),
     ("S3/10M", 0.3688), ("S3/118M", 0.3271), ("S4/1M", 0.3934), ("S4/118M", 0.2376),
     ("S5/1M", 0.5095), ("S5/118M", 0.8027), ("S4/10M", 0.9258)],
)  # fmt: skip
def test_saturation_means_equal_the_published_ones(name, saturation):
    assert cell(name).mean("saturation_2") == pytest.approx(saturation, abs=1.01e-4)


def test_axes_of_a_cell():
    c = cell("S1/118M")
    assert c.tokens_processed == 5000 * 64 * 512
    assert c.epochs == pytest.approx(1.388, abs=1e-3)
    # the paper prints 1.84 with its rounded 64M
    assert c.tokens_per_parameter == pytest.approx(1.858, abs=1e-3)


def test_gaps_and_saturations_are_means_over_seeds():
    facts = facts_of(cell("S1/1M"))
    assert facts.train_val_gap == pytest.approx((9.2228 + 9.3171 + 9.2674) / 3)
    assert facts.saturation_2 == pytest.approx(0.4931, abs=1e-4)
    assert facts_of(cell("S2/1M")).train_val_gap is None
    assert facts_of(cell("S2.5/1M")).saturation_2 is None


def test_every_number_has_a_source_and_known_defects_a_caveat():
    for c in load_cells():
        assert ("losses" in c.sources) == (c.baseline_loss is not None)
        for field in ("delta_pct", "saturation_2", "baseline_gap"):
            assert (field in c.sources) == (getattr(c, field) is not None), (c.name, field)
    flagged = {c.name for c in FOURTEEN if "saturation_2" in c.caveats}
    assert flagged == {"S1/10M", "S2/10M", "S3/10M", "S5/1M"}


def test_a_shipped_delta_stands_in_where_losses_are_missing():
    assert cell("S3/10M").delta_rel == pytest.approx(-0.241)
    assert cell("S4/50M").delta_rel is None and cell("S4/50M").helps is None


def test_unknown_group_names_the_nearest():
    with pytest.raises(UnknownNameError, match="no group of cells 'stres'.\nDid you mean 'stress'"):
        load_cells("stres")


# --- the saturation rule


def test_saturation_in_sample():
    worth = record(RULES["saturation"])
    assert confusion(RULES["saturation"], TWELVE) == {"TP": 2, "FN": 2, "FP": 1, "TN": 7}
    assert (worth.correct, worth.n, worth.in_sample) == (9, 12, True)
    assert (worth.wilson_low, worth.wilson_high) == pytest.approx((0.468, 0.911), abs=5e-4)
    assert worth.auc == 0.75


def test_saturation_with_the_scale_held_out():
    worth = record(RULES["saturation"])
    expected = {"S1": 0.265, "S2": 0.492, "S3": 0.440, "S4": 0.265}
    assert worth.loso_thresholds == pytest.approx(expected, abs=5e-4)
    assert (worth.loso_correct, worth.loso_n) == (6, 12)
    interval = (worth.loso_wilson_low, worth.loso_wilson_high)
    assert interval == pytest.approx((0.254, 0.746), abs=5e-4)
    assert worth.loso_balanced_accuracy == pytest.approx(0.4375)


def test_saturation_is_no_better_than_chance_may_be():
    # 53 of the C(12, 4) = 495 placements
    assert record(RULES["saturation"]).permutation_p == pytest.approx(53 / 495)
    scores = [c.mean("saturation_2") for c in TWELVE]
    labels = [c.helps for c in TWELVE]

    def best_accuracy(s, y):
        return best_threshold(s, y)[1]

    assert permutation_p(scores, labels, statistic=best_accuracy) == pytest.approx(0.444, abs=5e-4)


def test_saturation_on_the_stress_cells():
    worth = record(RULES["saturation"], cells=FOURTEEN)
    assert (worth.correct, worth.n) == (9, 14)
    assert worth.auc == pytest.approx(0.60)
    assert record(RULES["saturation"], cells=load_cells("stress")).correct == 0


def test_saturation_with_cells_the_paper_left_out():
    thirteen = [*TWELVE, cell("S4/10M")]
    assert record(RULES["saturation"], cells=thirteen).auc == pytest.approx(0.80)
    assert record(RULES["saturation"], cells=[*FOURTEEN, cell("S4/10M")]).auc == pytest.approx(0.68)


def test_saturation_with_the_clean_seed_of_s1_10m_only():
    scores = [0.3139 if c.name == "S1/10M" else c.mean("saturation_2") for c in TWELVE]
    assert auc(scores, [c.helps for c in TWELVE]) == pytest.approx(0.781, abs=5e-4)


def test_llama_is_two_of_three_once_the_collapsed_seed_counts():
    worth = record(RULES["saturation"], cells=load_cells("llama"))
    assert (worth.correct, worth.n) == (2, 3)
    assert cell("Llama_S1/118M").mean("saturation_2") == pytest.approx(0.4529, abs=1e-4)


def test_the_published_cut_is_strict():
    assert RULES["saturation"].says(Facts(saturation_2=0.43)) is False
    assert RULES["saturation"].says(Facts(saturation_2=0.431)) is True


# --- the other rules


def test_always_keep_is_the_larger_class():
    worth = record(RULES["always keep"])
    assert (worth.correct, worth.n, worth.loso_correct, worth.loso_n) == (8, 12, 8, 12)
    assert worth.loso_balanced_accuracy == 0.5
    assert not worth.in_sample and worth.auc is None


def test_unique_tokens():
    worth = record(RULES["unique tokens"])
    assert (worth.correct, worth.n) == (9, 12)
    assert RULES["unique tokens"].says(Facts(unique_tokens=10e6)) is True
    assert RULES["unique tokens"].says(Facts(unique_tokens=10_000_001)) is False


def test_tokens_per_parameter_needs_no_training_and_ranks_as_well():
    assert record(RULES["tokens per parameter"]).auc == 0.75
    assert record(RULES["tokens per parameter"], cells=FOURTEEN).auc == pytest.approx(0.675)


def test_tokens_per_parameter_cuts_between_two_cells():
    # the last cell that DyT helped, and the next: the geometric mean of both
    low, high = cell("S2/10M").tokens_per_parameter, cell("S4/118M").tokens_per_parameter
    cut = math.sqrt(low * high)
    rule = RULES["tokens per parameter"]
    assert rule.says(Facts(tokens_per_parameter=cut * 0.999)) is True
    assert rule.says(Facts(tokens_per_parameter=cut * 1.001)) is False
    assert confusion(rule, TWELVE) == {"TP": 4, "FN": 0, "FP": 2, "TN": 6}
    assert (record(rule).loso_correct, record(rule).loso_n) == (8, 12)


def test_epochs_are_unique_tokens_under_another_name_there():
    epochs, tokens = record(RULES["epochs"]), record(RULES["unique tokens"])
    assert (epochs.correct, epochs.loso_correct) == (tokens.correct, tokens.loso_correct) == (9, 7)
    assert RULES["epochs"].says(Facts(epochs=16.4)) is True
    assert RULES["epochs"].says(Facts(epochs=3.3)) is False


def test_the_gap_rule_says_how_little_it_stands_on():
    worth = record(RULES["train/val gap"])
    assert (worth.n, worth.correct, worth.loso_correct) == (2, 2, None)
    assert worth.sentence() == (
        "2 of 2 cells in-sample (34-100 %), no scale held out: gaps were shipped for S1 only"
    )


def test_no_cell_gives_no_record():
    worth = record(RULES["train/val gap"], cells=load_cells("stress"))
    assert (worth.n, worth.wilson_low, worth.wilson_high) == (0, 0.0, 1.0)
    assert worth.sentence() == "no record: gaps were shipped for S1 only"


# --- apply_rules


def test_apply_rules_is_json_and_plain():
    rows = apply_rules(Facts(unique_tokens=1e6, epochs=1.0, saturation_2=0.2))
    assert json.loads(json.dumps(rows)) == rows
    assert {row["name"]: row["says"] for row in rows} == {
        "always keep": "keep",
        "tokens per parameter": "cannot say",
        "unique tokens": "replace",
        "epochs": "keep",
        "train/val gap": "cannot say",
        "saturation": "keep",
    }
    assert rows[-1]["record"] == (
        "9 of 12 cells in-sample (47-91 %), 6 of 12 with the scale held out (25-75 %)"
    )


def test_what_is_unknown_or_nan_cannot_be_said():
    facts = Facts(**dict.fromkeys((f.name for f in dataclasses.fields(Facts)), math.nan))
    for given in (Facts(), facts):
        says = [row["says"] for row in apply_rules(given)]
        assert says == ["keep"] + ["cannot say"] * 5
