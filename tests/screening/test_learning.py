"""Tests of triplepoint.screening.learning: runs become cells."""

import json

import numpy as np
import pytest

from triplepoint.evidence import benchmark_from
from triplepoint.records import Record
from triplepoint.screening.learning import StoredRun, build, cells_of


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
