"""Tests of the study of miniatures: studies.screening_benchmark.miniatures and .miniature_cells."""

import json

import numpy as np
import pytest
from studies._maps import kept_as
from studies.screening_benchmark import miniatures
from studies.screening_benchmark.miniature_cells import (
    ORIGINALS,
    STORED,
    MiniatureSign,
    Original,
    miniature_truths,
    original_of,
    planned,
    sign_of,
)
from studies.screening_benchmark.miniatures import Compared, answer, compared, record, step_times

from triplepoint.evidence import BenchmarkCell, Setting, Truth
from triplepoint.records import Record, write_parquet
from triplepoint.runs import write_arrays, write_json
from triplepoint.screening.rulebook import Track

ONE = Original("gpt2-0.1m", 100_000, 1500)
SETTING = {
    "size": "gpt2-0.1m", "unique_tokens": 100_000, "steps": 1500, "architecture": "gpt2", "corpus": "stdlib",
    "lr": 1e-3, "candidate_lr": 1e-3,
}  # fmt: skip


def store(folder, k, ends, *, diverged=None):
    """Keep the three arms of ``ONE`` as if trained: validation losses 3, then 2, then these ends."""
    folder.mkdir(exist_ok=True)
    for cell, end in zip(planned(ONE, k, folder)[1], ends, strict=True):
        file = kept_as(cell, folder)
        losses = np.outer([3.0, 2.0, end], np.linspace(0.9, 1.1, 8)).astype(np.float16)
        write_json(file, {"diverged_at": diverged if cell.arm == "dyt:paper" else None, "plateau": {"val": 2.9, "train": 2.9}})  # fmt: skip
        write_arrays(file.with_suffix(".npz"), {"val_loss": losses, "train_loss": losses})
        write_parquet([Record(metric="step_wall_time", value=0.01, step=1)], file.with_suffix(".parquet"))  # fmt: skip


def test_the_plans_are_those_of_the_phase_map_and_shrink_as_asked():
    assert len(ORIGINALS) == 12
    cells = [(k, planned(o, k, STORED)) for k in (16, 4) for o in (ORIGINALS[0], ONE)]
    for (k, (reached, three)), original in zip(cells, (ORIGINALS[0], ONE) * 2, strict=True):
        assert reached == pytest.approx(k, rel=0.02)
        assert [c.arm for c in three] == ["layernorm", "dyt:paper", "dyt:recommended"]
        settings, recipe = three[0].settings, three[0].cell.recipe
        assert (recipe.steps, recipe.warmup, recipe.lr) == (original.steps, 100, 1e-3)
        tokens_per_step = settings.batch * (settings.context or 128)
        assert tokens_per_step * reached == pytest.approx(8 * 128, rel=0.02)
        assert settings.unique_tokens * reached == pytest.approx(original.unique_tokens, rel=1e-3)


@pytest.mark.parametrize(
    "other",
    [
        {"corpus": "shakespeare"}, {"lr": 3e-4}, {"candidate_lr": 3e-4}, {"steps": 3000},
        {"architecture": "gpt2 attention=gated"}, {"size": "gpt2-3m"}, {"unique_tokens": 50_000},
    ],
)  # fmt: skip
def test_a_cell_with_another_plan_has_no_miniature(other, tmp_path):
    assert original_of(SETTING) == ONE
    assert original_of({**SETTING, **other}) is None
    assert sign_of({**SETTING, **other}, "dyt:paper", 4, "fixed_step", tmp_path) is None


def test_the_sign_of_a_cell_is_that_of_its_kept_miniature(tmp_path):
    assert sign_of(SETTING, "dyt:paper", 4, "fixed_step", tmp_path / "empty") is None
    store(tmp_path, 4, [2.5, 2.25, 2.75])
    found = sign_of(SETTING, "dyt:paper", 4, "fixed_step", tmp_path)
    assert found.delta_rel == pytest.approx(-0.1, abs=1e-3)
    assert sign_of(SETTING, "dyt:recommended", 4, "fixed_step", tmp_path).delta_rel > 0
    assert sign_of(SETTING, "dyt:paper", 4, "best_checkpoint", tmp_path).delta_rel == 0
    assert sign_of(SETTING, "derf:recommended", 4, "fixed_step", tmp_path) is None
    assert sign_of(SETTING, "dyt:paper", 16, "fixed_step", tmp_path) is None


def test_an_arm_that_diverged_has_no_sign(tmp_path):
    store(tmp_path, 4, [2.5, 2.25, 2.75], diverged=7)
    _, found = miniature_truths(ONE, 4, tmp_path)
    assert found["dyt:paper"] is None
    assert found["dyt:recommended"] is not None


def truth(delta):
    return Truth(
        delta_rel=delta, interval=(delta, delta), by_seed=(delta,), intervals=((delta, delta),), margin=0.005
    )  # fmt: skip


def test_clear_cells_are_compared_once_all_sizes_are_there(tmp_path, monkeypatch):
    real = {"fixed_step": truth(-0.2), "best_checkpoint": truth(0.001)}  # a tie
    monkeypatch.setattr(miniatures, "real_truths", lambda runs: {(ONE, "dyt:paper"): real})
    store(tmp_path / "one", 4, [2.5, 2.25, 2.75])
    assert compared([], tmp_path / "one") == []
    store(tmp_path / "two", 4, [2.5, 2.25, 2.75])
    store(tmp_path / "two", 16, [2.5, 2.75, 2.75])
    (one,) = compared([], tmp_path / "two")
    assert (one.endpoint, one.agrees(4), one.agrees(16)) == ("fixed_step", True, False)


def test_shares_are_counted_by_size_data_and_trust(capsys):
    def cell(real, at_4, at_16, tokens=100_000, *, learned=True):
        small = {4: truth(at_4), 16: truth(at_16)}
        return Compared(
            original=Original("gpt2-0.1m", tokens, 1500), candidate="dyt:paper", endpoint="fixed_step",
            real=truth(real), asked=small, reached={float(k): t for k, t in small.items()},
            learned=learned,
        )  # fmt: skip

    figures = answer([
        cell(0.2, 0.1, 0.1), cell(-0.2, -0.1, -0.1), cell(-0.2, 0.1, 0.1), cell(0.2, 0.1, -0.1, 500_000),
    ])["fixed_step"]  # fmt: skip
    assert figures["1/4"][:2] == [3, 4]
    assert figures["1/16"][:2] == [2, 4]
    assert figures["1/4, 100000 bytes"][:2] == [2, 3]
    assert figures["1/16, 500000 bytes"][:2] == [0, 1]
    assert figures["1/16, 20000 bytes"] == [0, 0]
    assert figures["candidate wins, 1/4"][:2] == [1, 2]
    assert figures["baseline wins, 1/4"][:2] == [2, 2]
    assert figures["sign trusted"][:2] == [3, 4]
    assert figures["trusted sign right"][:2] == [2, 3]
    assert figures["1/4"][2:] == pytest.approx([0.301, 0.954], abs=1e-3)  # Wilson, 3 of 4
    said = record(
        [
            cell(0.2, 0.1, 0.1),
            cell(-0.2, -0.1, -0.1),
            cell(-0.2, 0.1, 0.1),
            cell(0.2, 0.1, 0.1, learned=False),
        ]
    )
    # a candidate that won was called the baseline's win once; of arms that learned nothing no sign is trusted
    assert said.track("fixed_step", "baseline") == Track(right=1, answered=2, cells=2)
    assert said.track("fixed_step", "candidate") == Track(right=1, answered=1, cells=2)
    assert said.track("best_checkpoint", "candidate") == Track(right=0, answered=0, cells=0)
    assert not said.decides("fixed_step", "candidate", "gpt2")
    printed = capsys.readouterr().out
    assert "| fixed_step | 1/4 | 3 | 4 | [0.30, 0.95] |" in printed
    json.dumps(figures)


def test_step_times_are_ratios_of_what_was_recorded(tmp_path):
    class Run:
        asked, facts = {"size": "gpt2-0.1m"}, {"data": {"train_tokens": 100_000}}
        records = [Record(metric="step_wall_time", value=0.04, step=1)]
        is_baseline, seed, lr = True, 0, 1e-3

    store(tmp_path, 4, [2.5, 2.25, 2.75])
    assert step_times([Run], tmp_path) == {"1/4": pytest.approx(4.0)}


def benchmark_cell(real, **other):
    """A cell of the benchmark without its runs, which this rule does not look at."""
    setting = Setting(**{
        **SETTING, "params": {"params_no_positions": 1}, "tokens_per_step": 1024, "rate": "plan", "warmup": 100,
        "schedule": "cosine", "plateau": 3.0, **other,
    })  # fmt: skip
    return BenchmarkCell(
        name="cell", candidate="dyt:paper", op="dyt:paper", setting=setting, baseline_runs=(), candidate_runs=(),
        truth=real and {"fixed_step": truth(real), "best_checkpoint": truth(real)},
    )  # fmt: skip


def test_the_rule_answers_with_its_sign_as_sure_as_it_was_right(tmp_path):
    store(tmp_path, 4, [2.5, 2.25, 2.75])  # dyt:paper ahead at the end, equal at the best
    rule = MiniatureSign(k=4, stored=tmp_path)
    without = {"corpus": "plays"}
    known = [benchmark_cell(d) for d in (-0.2, -0.1, 0.2)] + [benchmark_cell(0.3, **without)]
    found = rule.fit(known, 500).predict(benchmark_cell(None))
    assert found.p["fixed_step"] == pytest.approx((2 + 1) / (3 + 2))
    assert found.answered == {"fixed_step": True, "best_checkpoint": False}
    assert found.p["best_checkpoint"] == pytest.approx((2 + 1) / (4 + 2))  # the candidate's wins
    other = rule.fit(known, 500).predict(benchmark_cell(None, **without))
    assert (other.answered["fixed_step"], other.p["fixed_step"]) == (False, pytest.approx(0.5))
    assert (rule.name, rule.trains) == ("sign of a miniature at 1/4", True)


def test_the_rule_takes_the_other_side_where_the_baseline_is_ahead(tmp_path):
    store(tmp_path, 4, [2.5, 2.75, 2.75])
    fitted = MiniatureSign(k=4, stored=tmp_path).fit([benchmark_cell(0.2)] * 2, 500)
    assert fitted.predict(benchmark_cell(None)).p["fixed_step"] == pytest.approx(1 / 4)
