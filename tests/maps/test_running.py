"""Tests of triplepoint.maps.running and status, on cells that train for a moment."""

import shutil

import pytest

from triplepoint.errors import ExecutorError, MissingExtraError, PlanError, RunFolderError
from triplepoint.maps import MapPlan, run_map, status_of
from triplepoint.runs import locked, read_arrays, read_json, read_rows
from triplepoint.sweeps import LocalExecutor, ray_executor

SMALL = {"size": "gpt2-0.1m", "context": 16, "unique_tokens": 2000, "batch": 2, "warmup": 2, "steps": 6}  # fmt: skip


def plan_of(op=("norm", "dyt"), **changes):
    grid = {"op": list(op), "seed": [0], **changes.pop("grid", {})}
    measured = {"windows": 4, "eval_every": 3, "looks": False, "checkpoint_every": 3}
    return MapPlan.of(grid=grid, defaults={**SMALL, **changes}, **measured)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A finished map of two cells."""
    folder = tmp_path_factory.mktemp("maps") / "map"
    run_map(plan_of(), folder, workers=1)
    return folder


@pytest.fixture
def folder(ran, tmp_path):
    """A copy of it for each test."""
    return shutil.copytree(ran, tmp_path / "map")


def changed(folder):
    """When each cell's records were written."""
    return {p.parent.name: p.stat().st_mtime_ns for p in folder.glob("cells/*/records.jsonl")}


def test_a_map_leaves_a_table_curves_and_a_manifest(folder):
    rows, manifest = read_rows(folder / "table.parquet"), read_json(folder / "manifest.json")
    assert [row["row"] for row in rows] == ["cell", "cell", "pair", "effect"]
    assert (manifest["status"], manifest["asked"]["kind"]) == ("finished", "map")
    assert set(rows[0]) == set(manifest["columns"])
    curves = read_arrays(folder / "arrays.npz")
    for row in rows[:2]:
        cell = read_json(folder / row["folder"] / "manifest.json")
        assert cell["identity"] == row["identity"]
        assert curves[f"{row['identity']}|steps"].tolist() == [3, 6]
        assert curves[f"{row['identity']}|val_loss"][-1] == row["fixed_step"]
        assert curves[f"{row['identity']}|train_loss"][-1] == row["train_loss"]
    relative = rows[1]["fixed_step"] / rows[0]["fixed_step"] - 1
    assert rows[2]["fixed_step"] == pytest.approx(relative, abs=1e-12)


def test_a_result_that_exists_is_never_computed_again(folder):
    before, rows = changed(folder), read_rows(folder / "table.parquet")
    news = []
    result = run_map(plan_of(), folder, workers=1, watch=news.append)
    assert (changed(folder), result.finished, news) == (before, 2, [])
    assert read_rows(folder / "table.parquet") == rows


def test_a_plan_that_has_grown_runs_what_is_new(folder):
    before, news = changed(folder), []
    result = run_map(plan_of(("norm", "dyt", "derf")), folder, workers=1, watch=news.append)
    after = changed(folder)
    assert {name: after[name] for name in before} == before
    assert (result.finished, len(after)) == (3, 3)
    assert {n.cell.settings.op for n in news if n.cell} == {"derf:recommended"}
    assert (news[0].kind, news[0].finished, news[0].done) == ("start", 2, 0.0)
    assert (news[-1].finished, news[-1].done) == (3, news[-1].total)


def test_another_recipe_is_another_cell(folder):
    result = run_map(plan_of(("norm",), lr=2e-3), folder, workers=1)
    assert len(changed(folder)) == 3
    assert [(r["lr"], r["row"]) for r in result.rows] == [(2e-3, "cell")]


def test_a_damaged_cell_is_set_aside_reported_and_run_again(folder):
    rows = read_rows(folder / "table.parquet")
    (folder / rows[1]["folder"] / "arrays.npz").write_bytes(b"no")
    news = []
    result = run_map(plan_of(), folder, workers=1, watch=news.append)
    assert result.quarantined == [rows[1]["folder"].removeprefix("cells/") + ".damaged-1"]
    assert "quarantined" in [n.kind for n in news]
    assert read_rows(folder / "table.parquet") == rows
    assert status_of(folder)["quarantined"] == result.quarantined


def failing(monkeypatch, kind):
    """Let every second cell end otherwise than it should."""

    class Failing(LocalExecutor):
        def start(self, index, cell):
            if index % 2:
                self._lost.append(kind(index))
            else:
                super().start(index, cell)

    monkeypatch.setattr("triplepoint.maps.running.LocalExecutor", Failing)


def test_a_failed_cell_is_told_and_the_rest_is_in_the_table(tmp_path, monkeypatch):
    from triplepoint.sweeps.executors import lost_worker

    failing(monkeypatch, lambda index: lost_worker(index, "exit code -9"))
    result = run_map(plan_of(), tmp_path / "map", workers=1, retries=1)
    (name,) = result.failed
    assert result.failed[name] == "A worker process ended without a word (exit code -9)."
    assert [row["op"] for row in result.rows] == ["layernorm"]
    status = status_of(tmp_path / "map")
    assert (status["status"], status["finished"], status["failed"]) == ("incomplete", 1, 1)
    assert status["by_cell"][1]["error"] == result.failed[name]


def test_failing_fast_raises_what_the_cell_said(tmp_path, monkeypatch):
    from triplepoint.sweeps.executors import lost_worker

    failing(monkeypatch, lambda index: lost_worker(index, "exit code -9"))
    with pytest.raises(ExecutorError, match="ended without a word .*\n.*fewer --workers"):
        run_map(plan_of(), tmp_path / "map", workers=2, retries=0, fail_fast=True)


def test_a_flat_curve_is_trained_to_its_end_like_any_other(tmp_path):
    """Nothing is pruned: a run that generalises late looks like this before it does."""
    plan = plan_of(op=["norm"], grid={"lr": [1e-12, 1e-3]})
    result = run_map(plan, tmp_path / "map", workers=1)
    curves = read_arrays(tmp_path / "map" / "arrays.npz")
    flat, learning = (row["identity"] for row in result.rows[:2])
    for identity in (flat, learning):
        assert curves[f"{identity}|steps"].tolist() == [3, 6]
    first, last = curves[f"{flat}|val_loss"]
    assert last == pytest.approx(first, abs=1e-5)
    assert curves[f"{learning}|val_loss"][1] < curves[f"{learning}|val_loss"][0] - 1e-3


def test_status_counts_what_is_there(folder):
    status = status_of(folder)
    assert (status["cells"], status["finished"], status["work_done"]) == (2, 2, 1.0)
    first = folder / status["by_cell"][0]["folder"]
    shutil.rmtree(first)
    assert status_of(folder)["waiting"] == 1
    first.mkdir()
    with locked(first):
        assert status_of(folder)["by_cell"][0]["state"] == "running"
    (first / "manifest.json").write_text('{"status": "running"}')
    (first / "checkpoints" / "step-000003").mkdir(parents=True)
    status = status_of(folder)
    assert (status["by_cell"][0]["state"], status["by_cell"][0]["step"]) == ("interrupted", 3)
    assert 0.7 < status["work_done"] < 0.8


def test_a_folder_of_something_else_is_left_alone(folder, tmp_path):
    cell = next((folder / "cells").iterdir())
    with pytest.raises(RunFolderError, match="a run of kind 'train', not of a map.\nChoose"):
        run_map(plan_of(), cell, workers=1)
    with pytest.raises(RunFolderError, match="is not the folder of a map.\nGive the folder"):
        status_of(cell)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(RunFolderError, match="holds files that are not a map's.\nChoose"):
        run_map(plan_of(), tmp_path / "mine", workers=1)


def test_what_cannot_be_asked_is_refused(tmp_path):
    with pytest.raises(PlanError, match="There is no executor 'slurm'.\nKnown: local, ray"):
        run_map(plan_of(), tmp_path / "m", executor="slurm")
    with pytest.raises(PlanError, match="--workers is at least 1 .* got 0 and 2"):
        run_map(plan_of(), tmp_path / "m", workers=0)
    assert not (tmp_path / "m").exists()


def test_ray_that_is_not_installed_names_its_extra(tmp_path, monkeypatch):
    def missing(module, *, extra):
        raise MissingExtraError(f"No {module}.\nInstall triplepoint[{extra}]")

    monkeypatch.setattr(ray_executor, "require", missing)
    with pytest.raises(MissingExtraError, match=r"No ray.\nInstall triplepoint\[ray\]"):
        run_map(plan_of(), tmp_path / "m", executor="ray")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "nowhere"])
def test_a_cluster_that_does_not_answer_is_told_before_ray_tries(tmp_path, monkeypatch, address):
    monkeypatch.setattr(ray_executor, "require", lambda module, *, extra: object())
    told = f"No Ray cluster answers at {address} .*\nStart one with `ray start --head`"
    with pytest.raises(ExecutorError, match=told):
        run_map(plan_of(), tmp_path / "m", executor="ray", ray_address=address)
