"""Tests of triplepoint.screening.learning: runs become cells."""

import dataclasses
import json

import numpy as np
import pytest

from triplepoint.errors import DataError
from triplepoint.evidence import benchmark_from
from triplepoint.records import Record
from triplepoint.screening import learning
from triplepoint.screening.learning import StoredRun, build, cells_of
from triplepoint.sweeps import ArmRun


def stored(
    name,
    level,
    *,
    op=None,
    lr=1e-3,
    seed=0,
    dropout=0.0,
    size="gpt2-0.1m",
    sha="sum",
    diverged_at=None,
    **changes,
):
    """A run that ends at ``level`` nats per token."""
    recipe = {
        "steps": 40, "batch": 2, "lr": lr, "warmup": 1, "schedule": "cosine", "weight_decay": 0.1, "seed": seed,
        "average_steps": [20],
    }  # fmt: skip
    asked = {"op": op, "size": size, "dropout": dropout, "recipe": recipe, "context": 8} | (
        {"changes": changes} if changes else {}
    )
    facts = {
        "asked": asked, "seed": seed, "diverged_at": diverged_at, "plateau": {"val": 3.0},
        "data": {"sha256": sha, "source": "source text of the standard library", "unit": "byte", "train_tokens": 100},
        "model": {"name": size, "params_no_positions": 10},
    }  # fmt: skip
    records = [
        Record(metric=metric, value=level + step / 100, step=step, seed=seed)
        for metric in ("s1", "train_loss", "val_loss") for step in (20, 30, 40)
    ]  # fmt: skip
    sites = [
        Record(metric="alpha", value=v, step=step, site=site)
        for step in (20, 30)
        for site, v in (("a", 1.0), ("b", 2.0))
    ]
    val = np.full((3, 4), level, dtype=np.float32)
    return StoredRun(name=name, facts=facts, records=[*records, *sites], arrays={"val_loss": val})


def named(runs):
    return {
        (
            c["candidate"],
            json.loads(c["setting"])["lr"],
            json.loads(c["setting"])["candidate_lr"],
            json.loads(c["setting"])["rate"],
        ): c
        for c in cells_of(runs)
    }


def test_what_differs_from_the_family_s_own_model_is_a_candidate():
    runs = [
        stored("b", 2.0), stored("d", 2.2, op="dyt:paper"), stored("r", 1.8, dropout=0.3),
        stored("other data", 2.0, op="dyt:paper", sha="other"),
    ]  # fmt: skip
    found = named(runs)
    assert set(found) == {
        ("dyt:paper", 1e-3, 1e-3, "plan"),
        ("layernorm dropout=0.3", 1e-3, 1e-3, "plan"),
    }
    truth = json.loads(found["layernorm dropout=0.3", 1e-3, 1e-3, "plan"]["truth"])
    assert truth["fixed_step"]["delta_rel"] == pytest.approx(-0.1)


def test_another_architecture_has_a_baseline_of_its_own():
    runs = [stored("b", 2.0), stored("d", 2.2, op="dyt:paper", attention="gated")]
    assert named(runs) == {}
    runs.append(stored("g", 2.0, attention="gated"))
    (cell,) = named(runs).values()
    assert json.loads(cell["setting"])["architecture"] == "gpt2 attention=gated"
    assert json.loads(cell["baseline_runs"]) == ["g"]


def test_each_arm_s_own_best_rate_is_a_cell_where_they_differ():
    baseline = [stored("b1", 2.0), stored("b3", 2.1, lr=3e-3)]
    candidate = [stored("d1", 2.3, op="dyt:paper"), stored("d3", 2.2, op="dyt:paper", lr=3e-3)]
    found = named([*baseline, *candidate])
    assert set(found) == {
        ("dyt:paper", 1e-3, 1e-3, "plan"), ("dyt:paper", 3e-3, 3e-3, "plan"), ("dyt:paper", 1e-3, 3e-3, "own best"),
    }  # fmt: skip
    same = named(
        [*baseline, stored("d1", 2.2, op="dyt:paper"), stored("d3", 2.3, op="dyt:paper", lr=3e-3)]
    )
    assert not any(rate == "own best" for *_, rate in same)


def test_seeds_are_paired_and_a_diverged_arm_has_no_truth():
    runs = [
        stored("b0", 2.0),
        stored("b1", 2.0, seed=1),
        stored("d1", 2.2, op="dyt:paper", seed=1, diverged_at=30),
    ]
    (cell,) = named(runs).values()
    assert json.loads(cell["baseline_runs"]) == ["b1"]
    assert cell["truth"] is None


def test_what_is_built_is_read_again(tmp_path):
    assert build([stored("b", 2.0), stored("d", 2.2, op="dyt:paper")], tmp_path) == 1
    (cell,) = benchmark_from(tmp_path)
    (run,) = cell.candidate_runs
    assert run.steps.tolist() == [20, 30, 40]
    # sites are averaged, and kept at looks only
    assert [part.tolist() for part in run.series["alpha"]] == [[20], [1.5]]
    assert cell.truth["best_checkpoint"].winner == "baseline"


def test_runs_of_other_models_and_without_losses_are_left_out():
    usual = stored("b", 2.0)
    assert usual.usable
    assert not stored("h", 2.0, size="/models/my llama").usable
    assert not dataclasses.replace(usual, records=[]).usable  # it diverged before it was evaluated
    assert not dataclasses.replace(usual, facts={**usual.facts, "plateau": None}).usable


def run_of(run, path):
    return ArmRun(
        path=path, arm=run.arm, seed=run.seed, outcome="finished", last_step=40, diverged_at=None, plateau=None,
        facts=run.facts, arrays=run.arrays, records=list(run.records),
    )  # fmt: skip


def test_runs_in_folders_of_one_name_stay_apart_and_a_copy_counts_once(tmp_path, monkeypatch):
    paths = ("layernorm/seed-0", "dyt/seed-0", "copy/seed-0")
    found = [stored("", 2.0), stored("", 2.2, op="dyt:paper"), stored("", 2.2, op="dyt:paper")]
    runs = [run_of(run, tmp_path / path) for run, path in zip(found, paths, strict=True)]
    monkeypatch.setattr(learning, "_finished", lambda folder: runs)
    (cell,) = learning.finished_cells(tmp_path)
    assert [len(run.steps) for run in (*cell.baseline_runs, *cell.candidate_runs)] == [3, 3]
    assert cell.truth["fixed_step"].delta_rel == pytest.approx(0.1)


def test_a_file_and_no_folder_are_told_apart(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="is a file.\nGive the folder"):
        learning.finished_cells(tmp_path / "file")
    with pytest.raises(DataError, match="does not exist"):
        learning.finished_cells(tmp_path / "nowhere")
