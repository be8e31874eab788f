"""Tests of triplepoint.maps.table and triplepoint.maps.summary, on cells that are made up."""

import pytest
import scipy.stats
from tests.maps.made import result

from triplepoint.maps import MapPlan
from triplepoint.maps.summary import summarise
from triplepoint.maps.table import COLUMNS, Compared, rows_of
from triplepoint.runs import read_rows, write_rows

PLAN = MapPlan.of(
    grid={"unique_tokens": [50, 400], "op": ["norm", "dyt"], "seed": [0, 1]},
    defaults={"steps": 100},
)
FALLING = [3.2, 2.5, 2.4, 2.3]
FLAT = [3.2, 3.0, 3.0, 3.0]


def made(curve_of=lambda cell: FALLING, **facts):
    """The plan's cells, finished, with ``curve_of(cell)`` as losses."""
    results = [
        result(PLAN, c, curve_of(c), train_tokens=c.unique_tokens,
               **{k: f(c) for k, f in facts.items()})
        for c in PLAN.cells()
    ]  # fmt: skip
    return Compared(PLAN, results)


def test_rows_are_cells_then_pairs_then_effects():
    rows = rows_of(made())
    assert [row["row"] for row in rows] == ["cell"] * 8 + ["pair"] * 4 + ["effect"] * 2
    effects = rows[-2:]
    assert [(r["unique_tokens"], r["op"], r["seed"], r["seeds"], r["baseline"]) for r in effects] == [
        (50, "dyt:recommended", None, 2, "layernorm"), (400, "dyt:recommended", None, 2, "layernorm"),
    ]  # fmt: skip
    assert {row["is_baseline"] for row in rows if row["op"] == "layernorm"} == {True}


def test_the_columns_are_those_that_are_described_and_survive_the_file(tmp_path):
    rows = rows_of(made())
    assert {name for row in rows for name in row} <= set(COLUMNS)
    write_rows(tmp_path / "t.parquet", rows, {name: c.type for name, c in COLUMNS.items()})
    back = read_rows(tmp_path / "t.parquet")
    assert back == [{name: row.get(name) for name in COLUMNS} for row in rows]


def test_epochs_and_tokens_per_parameter_are_of_what_was_seen():
    first, last = rows_of(made())[0], rows_of(made())[7]
    # 100 steps of 2 tokens over 50 and 400; 100 parameters but positions
    assert (first["tokens_seen"], first["epochs"], first["tokens_per_parameter"]) == (200, 4, 0.5)
    assert (last["tokens_seen"], last["epochs"], last["tokens_per_parameter"]) == (200, 0.5, 2)


def test_a_pair_is_of_one_seed_and_has_no_t_interval():
    rows = rows_of(made(lambda c: [3.2, 2.2 + 0.1 * c.seed] if c.op != "layernorm" else [3.2, 2.0]))
    pairs = [row for row in rows if row["row"] == "pair"][:2]
    assert [p["fixed_step"] for p in pairs] == pytest.approx([0.1, 0.15])
    assert all("fixed_step_t_low" not in p for p in pairs)
    effect = next(row for row in rows if row["row"] == "effect")
    assert effect["fixed_step"] == pytest.approx(0.125)
    assert effect["fixed_step_t_low"] < 0.125 < effect["fixed_step_t_high"]
    assert {p["baseline_folder"] for p in pairs} == {r["folder"] for r in rows[:2]}


def test_an_effect_has_the_worst_phase_and_counts_the_seeds():
    def curve(cell):
        return FLAT if (cell.op, cell.seed) == ("dyt:recommended", 1) else FALLING

    rows = rows_of(made(curve, prediction_kl=lambda c: 0.001))
    effect = next(row for row in rows if row["row"] == "effect")
    assert (effect["phase"], effect["collapsed_seeds"], effect["stalled_seeds"]) == ("collapsed", 1, 1)  # fmt: skip
    cells = {(r["op"], r["seed"]): r for r in rows[:4]}
    assert cells["dyt:recommended", 1]["collapsed"]
    assert cells["dyt:recommended", 0]["phase"] == "generalising"
    assert cells["layernorm", 1]["plateau_exit_step"] == 50


def test_a_diverged_seed_is_counted_and_left_out():
    rows = rows_of(made(diverged_at=lambda c: 20 if c.op != "layernorm" and c.seed else None))
    lost = [r for r in rows if r["row"] == "pair" and r["seed"] == 1]
    assert all(r["diverged"] and "fixed_step" not in r for r in lost)
    effect = next(row for row in rows if row["row"] == "effect")
    assert (effect["seeds"], effect["diverged_seeds"], effect["fixed_step"]) == (1, 1, 0.0)


def test_a_cell_without_a_finished_baseline_is_in_no_pair():
    whole = made()
    some = Compared(PLAN, [r for r in whole.results if r.planned.settings.op != "layernorm"])
    rows = rows_of(some)
    assert {row["row"] for row in rows} == {"cell"}
    assert {row["baseline"] for row in rows} == {"layernorm"}


def test_saturation_is_averaged_over_the_seeds_of_an_effect():
    rows = rows_of(made(saturation_end=lambda c: 0.2 + 0.2 * c.seed))
    assert [r["saturation_end"] for r in rows if r["row"] == "effect"] == pytest.approx([0.3, 0.3])


def collapse(cell):
    return FLAT if cell.op != "layernorm" else FALLING


def test_collapse_rates_have_wilson_s_and_fisher_s_intervals():
    compared = made(collapse, prediction_kl=lambda c: 0.001)
    summary = summarise(compared, rows_of(compared))
    rates = {(r["level"], r["arm"], r["outcome"]): r for r in summary["collapse_rates"]}
    arm = rates["arm", "dyt:recommended", "collapsed"]
    assert (arm["count"], arm["n"], arm["baseline_count"], arm["baseline_n"]) == (4, 4, 0, 4)
    other = scipy.stats.binomtest(4, 4).proportion_ci(method="wilson")
    assert (arm["wilson_low"], arm["wilson_high"]) == pytest.approx((other.low, other.high))
    assert arm["fisher_p"] == pytest.approx(scipy.stats.fisher_exact([[4, 0], [0, 4]]).pvalue)
    assert arm["odds_ratio_high"] is None
    assert arm["odds_ratio_low"] > 1
    cell = rates["cell", "dyt:recommended", "collapsed"]
    assert (cell["count"], cell["n"], cell["settings"]["unique_tokens"]) == (2, 2, 400)
    assert "baseline" not in rates["arm", "layernorm", "collapsed"]


def test_saturation_is_correlated_with_the_effect_over_effects():
    plan = MapPlan.of(grid={"unique_tokens": [1, 2, 3, 4, 5], "op": ["norm", "dyt"]}, defaults={"steps": 100})  # fmt: skip
    results = [
        result(plan, c, [3.2, 2.0 + 0.1 * c.unique_tokens * (c.op != "layernorm")], train_tokens=c.unique_tokens,
               saturation_end=0.1 * c.unique_tokens if c.op != "layernorm" else None)
        for c in plan.cells()
    ]  # fmt: skip
    compared = Compared(plan, results)
    found = {
        (c["saturation"], c["endpoint"]): c
        for c in summarise(compared, rows_of(compared))["saturation_effect"]
    }
    end = found["saturation_end", "fixed_step"]
    # perfect order of five: it and its reverse, of 120
    assert (end["n"], end["spearman"], end["permutation_p"]) == (5, 1.0, pytest.approx(2 / 120))
    assert ("saturation_500", "fixed_step") not in found


SIZES = {"gpt2-0.1m": 1e5, "gpt2-0.4m": 1e6, "gpt2-0.8m": 1e7}
PLACED = {"gpt2-0.1m": 1.1, "gpt2-0.4m": 1.2, "gpt2-0.8m": 1.3}
"""Factor on the candidate's loss: the effect rises by 0.1 with each tenfold size."""


def sized(sizes, *, seeds=(0, 1)):
    plan = MapPlan.of(grid={"size": list(sizes), "op": ["norm", "dyt"], "seed": list(seeds)}, defaults={"steps": 100})  # fmt: skip
    results = [
        result(plan, c, [3.2, 2.0 * (PLACED[c.size] + 0.01 * c.seed if c.op != "layernorm" else 1.0)],
               params={"params_total": 1, "params_no_positions": SIZES[c.size], "params_non_embedding": 1})
        for c in plan.cells()
    ]  # fmt: skip
    compared = Compared(plan, results)
    return {s["endpoint"]: s for s in summarise(compared, rows_of(compared))["size_slopes"]}


def test_the_effect_s_slope_is_per_tenfold_parameters_over_the_pairs():
    slope = sized(SIZES)["fixed_step"]
    assert (slope["sizes"], slope["n"], slope["arm"]) == (3, 6, "dyt:recommended")
    assert slope["slope"] == pytest.approx(0.1, rel=1e-3)
    # both seeds lie 0.005 off the line at each of three sizes: se = sqrt(6 * 0.005^2 / 4 / 4), t(4) = 2.776
    assert slope["t_high"] - slope["slope"] == pytest.approx(
        2.776 * 0.005 * (6 / 16) ** 0.5, rel=0.01
    )


def test_no_slope_is_told_of_two_sizes():
    assert sized(["gpt2-0.1m", "gpt2-0.8m"]) == {}


def test_tokens_per_parameter_are_those_of_the_plan_also_where_the_run_diverged():
    plan = MapPlan.of(grid={"op": ["norm"]}, defaults={"steps": 100})
    (cell,) = plan.cells()
    one = result(plan, cell, [3.2, 2.0], train_tokens=1000, last_step=10, diverged_at=10)
    (row,) = rows_of(Compared(plan, [one]))
    # 100 steps of 2 tokens over 100 parameters, though 10 steps were made
    assert (row["tokens_per_parameter"], row["tokens_seen"]) == (2.0, 20)
