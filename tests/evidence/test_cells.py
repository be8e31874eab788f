"""Tests of the benchmark's schema: triplepoint.evidence."""

import dataclasses
import json

import numpy as np
import pytest

from triplepoint.errors import DataError
from triplepoint.evidence import Setting, Trajectory, Truth, benchmark_from, truth_of
from triplepoint.evidence.loading import CELLS, RUNS
from triplepoint.runs import read_rows, write_rows

SETTING = Setting(
    architecture="gpt2", size="gpt2-0.1m", corpus="stdlib", unique_tokens=1000, params={"params_no_positions": 500},
    steps=100, tokens_per_step=20, lr=1e-3, candidate_lr=1e-3, rate="plan", warmup=10, schedule="cosine", plateau=3.0,
)  # fmt: skip


def run(*, diverged_at=None):
    steps = np.array([10, 20, 40])
    return Trajectory(
        seed=0, steps=steps, s1=steps / 100, train=3.0 - steps / 40, val=3.1 - steps / 40,
        series={"grad_norm": (np.array([10, 40]), np.array([1.0, 2.0]))},
        outcome="finished" if diverged_at is None else "diverged", diverged_at=diverged_at,
    )  # fmt: skip


def test_nothing_of_later_steps_is_seen():
    cut = run(diverged_at=30).until(20)
    assert cut.steps.tolist() == [10, 20]
    assert len(cut.s1) == len(cut.train) == len(cut.val) == 2
    assert [v.tolist() for v in cut.series["grad_norm"]] == [[10], [1.0]]
    assert (cut.outcome, cut.diverged_at) == ("finished", None)
    assert run(diverged_at=20).until(20).outcome == "diverged"


def test_what_follows_from_a_setting():
    assert (SETTING.epochs, SETTING.tokens_per_parameter, SETTING.scale) == (2.0, 2.0, "0.1m")
    assert SETTING.group == "gpt2 gpt2-0.1m 1000 stdlib"


def windows(level, spread=0.0):
    return np.full((2, 4), level) + spread * np.arange(4)


def test_a_cell_is_clear_where_every_seed_is_and_the_difference_beats_the_margin():
    base = windows(2.0, 0.1)
    both = truth_of([1.10 * base, 1.12 * base], [base, base])["fixed_step"]
    assert both.by_seed == pytest.approx((0.10, 0.12))
    # standard error of 10 and 12 %: 1 %, twice that is the margin
    assert both.margin == pytest.approx(0.02)
    assert (both.clear, both.winner) == (True, "baseline")
    apart = truth_of([1.10 * base, 0.98 * base], [base, base])["fixed_step"]
    assert (apart.clear, apart.winner) == (False, "tie")
    small = truth_of([1.004 * base], [base])["fixed_step"]
    assert (small.margin, small.winner) == (0.005, "tie")
    better = truth_of([0.9 * base], [base])["fixed_step"]
    assert better.winner == "candidate"


def test_one_seed_that_is_not_sure_leaves_the_cell_unclear():
    base = windows(2.0)
    mixed = base * np.array([0.8, 1.3, 0.8, 1.3])
    truth = truth_of([1.1 * base, mixed], [base, base])["fixed_step"]
    assert truth.intervals[1][0] < 0 < truth.intervals[1][1]
    assert not truth.clear


def test_the_endpoints_are_the_last_and_each_arm_s_best():
    falling = np.array([3.0, 2.0, 2.5])[:, None] * np.ones(4)
    later = np.array([3.0, 2.4, 2.2])[:, None] * np.ones(4)
    truth = truth_of([later], [falling])
    assert truth["fixed_step"].delta_rel == pytest.approx(2.2 / 2.5 - 1)
    assert truth["best_checkpoint"].delta_rel == pytest.approx(0.1)


def tables(folder, *, names=("a",)):
    rows = [
        {
            "run": "a",
            "seed": 0,
            "diverged_at": None,
            "metric": metric,
            "step": step,
            "value": step / 100,
        }
        for metric in ("s1", "train_loss", "val_loss", "logit_scale")
        for step in (20, 10)
    ]
    write_rows(folder / RUNS, rows, {"run": str, "seed": int, "diverged_at": int, "metric": str, "step": int, "value": float})  # fmt: skip
    truth = Truth(delta_rel=0.1, interval=(0.05, 0.15), by_seed=(0.1,), intervals=((0.05, 0.15),), margin=0.005)  # fmt: skip
    cell = {
        "name": "c", "candidate": "dyt:paper", "op": "dyt:paper", "setting": json.dumps(dataclasses.asdict(SETTING)),
        "baseline_runs": json.dumps(names), "candidate_runs": json.dumps(["a"]),
        "truth": json.dumps({"fixed_step": dataclasses.asdict(truth)}),
    }  # fmt: skip
    write_rows(folder / CELLS, [cell], dict.fromkeys(cell, str))


def test_what_is_read_is_what_was_written(tmp_path):
    tables(tmp_path)
    (cell,) = benchmark_from(tmp_path)
    assert cell.setting == SETTING
    (trajectory,) = cell.baseline_runs
    assert trajectory.steps.tolist() == [10, 20]
    assert trajectory.val.tolist() == [0.1, 0.2]
    assert trajectory.series["logit_scale"][0].tolist() == [10, 20]
    assert cell.truth["fixed_step"].winner == "baseline"
    seen = cell.seen(10)
    assert seen.truth is None and seen.candidate_runs[0].steps.tolist() == [10]


def test_a_cell_without_its_run_is_refused(tmp_path):
    tables(tmp_path, names=("a", "b"))
    with pytest.raises(
        DataError,
        match="The cell c has a run b that runs.parquet has not.\nBuild both tables again",
    ):
        benchmark_from(tmp_path)


@pytest.mark.parametrize(
    ("table", "column"),
    [(RUNS, "metric"), (RUNS, "diverged_at"), (CELLS, "truth"), (CELLS, "setting")],
)
def test_a_table_without_a_column_is_refused(tmp_path, table, column):
    tables(tmp_path)
    rows = [{k: v for k, v in row.items() if k != column} for row in read_rows(tmp_path / table)]
    write_rows(
        tmp_path / table, rows, {k: int if v is None else type(v) for k, v in rows[0].items()}
    )
    with pytest.raises(
        DataError, match=f"{table} has no column {column}.\nBuild both tables again"
    ):
        benchmark_from(tmp_path)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("setting", "{"), ("setting", '{"size": 1}'), ("truth", '{"fixed_step": {}}'), ("candidate_runs", "nothing"),
    ],
)  # fmt: skip
def test_a_cell_that_cannot_be_read_is_refused(tmp_path, column, value):
    tables(tmp_path)
    rows = [{**row, column: value} for row in read_rows(tmp_path / CELLS)]
    write_rows(tmp_path / CELLS, rows, dict.fromkeys(rows[0], str))
    with pytest.raises(DataError, match="is not as this version writes it.*\nBuild both tables"):
        benchmark_from(tmp_path)


def test_runs_without_their_curves_are_refused(tmp_path):
    tables(tmp_path)
    rows = [r for r in read_rows(tmp_path / RUNS) if r["metric"] != "val_loss"]
    write_rows(tmp_path / RUNS, rows, {"run": str, "seed": int, "diverged_at": int, "metric": str, "step": int, "value": float})  # fmt: skip
    with pytest.raises(DataError, match="KeyError 'val_loss'"):
        benchmark_from(tmp_path)


def test_a_missing_and_an_empty_table_are_told_apart(tmp_path):
    with pytest.raises(DataError, match="There is no table .*runs.parquet.\nGive the folder"):
        benchmark_from(tmp_path)
    tables(tmp_path)
    write_rows(tmp_path / CELLS, [], dict.fromkeys(("name", "candidate"), str))
    with pytest.raises(DataError, match="cells.parquet has no rows"):
        benchmark_from(tmp_path)
    (tmp_path / CELLS).unlink()
    (tmp_path / CELLS).mkdir()
    with pytest.raises(DataError, match="There is no table"):
        benchmark_from(tmp_path)
