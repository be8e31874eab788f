"""Tests of triplepoint.maps.planning: what is refused before anything starts."""

import shutil
from types import SimpleNamespace

import pytest

from triplepoint.blueprints import Shape
from triplepoint.errors import PlanError
from triplepoint.maps import MapPlan, planning
from triplepoint.maps.planning import affordable_workers, check_resources, plan_cells
from triplepoint.models import parameter_counts
from triplepoint.sweeps import build_model

SMALL = {"size": "gpt2-0.1m", "context": 16, "unique_tokens": 2000, "steps": 10}


def plan_of(grid, **more):
    return MapPlan.of(grid=grid, **{"defaults": SMALL, **more})


def test_every_impossible_cell_is_named_with_its_reason(tmp_path):
    grid = [
        {"op": ["norm", "dyt"]},
        {"heads": [5]},
        {"op": ["norm"], "alpha": [2.0]},
        {"op": ["dyt"], "ffn": ["gelu"]},
        {"size": ["gpt2-0.2m"]},
        {"unique_tokens": [10**9]},
        {"lr": [-1.0]},
        {"attention": ["diff_v9"]},
    ]
    with pytest.raises(PlanError) as raised:
        plan_cells(plan_of(grid), tmp_path / "map")
    lines = str(raised.value).splitlines()
    assert lines[0] == "7 of 9 cells cannot run:"
    assert "heads=5" in lines[1]
    assert lines[2].endswith("The model as it is has no alpha, so it cannot be born as 2.")
    assert lines[3].endswith("gpt2-0.1m has no ffn to choose.")
    assert lines[4].endswith("There is no size 'gpt2-0.2m'.")
    assert "1000000000 train tokens were asked for" in lines[5]
    assert lines[6] == "  and 2 more"
    assert lines[7].startswith("Take them out of the grid")
    assert not (tmp_path / "map").exists()


def test_two_spellings_of_one_run_are_refused(tmp_path):
    all_of_it = plan_cells(plan_of({"seed": [0]}, defaults=SMALL), tmp_path)[0].cell.data
    tokens = len(planning.DataSpec(context=all_of_it.context).load().train)
    grid = [{"unique_tokens": [tokens]}, {"seed": [0]}]
    plan = plan_of(grid, defaults={"size": "gpt2-0.1m", "context": 16, "steps": 10})
    with pytest.raises(PlanError, match="Two cells are the same run: .*\nLeave one out"):
        plan_cells(plan, tmp_path)


def test_a_folder_says_what_it_holds_and_changes_with_what_is_asked(tmp_path):
    first, second = plan_cells(plan_of({"lr": [1e-3, 2e-3]}), tmp_path)
    assert first.cell.path.parent == tmp_path / "cells"
    assert first.cell.path.name == f"gpt2-0.1m_layernorm_2000_seed0_{first.identity[:8]}"
    assert first.identity != second.identity
    again = plan_cells(plan_of({"lr": [2e-3]}), tmp_path)
    assert again[0].identity == second.identity


def test_the_model_s_own_norm_is_left_in_place(tmp_path):
    cells = plan_cells(plan_of({"size": ["gpt2-0.1m", "llama-0.1m"], "op": ["layernorm"]}), tmp_path)  # fmt: skip
    assert [c.cell.op for c in cells] == [None, "layernorm"]


def test_the_work_is_steps_times_parameters_times_tokens(tmp_path):
    (cell,) = plan_cells(plan_of({"op": ["dyt:paper"], "batch": [4]}), tmp_path)
    model = build_model("gpt2-0.1m", op="dyt:paper", shape=Shape(vocab=256, context=16))
    params = parameter_counts(model)["params_total"]
    assert cell.need.params == params
    assert cell.need.work == 10 * params * 4 * 16


@pytest.fixture
def cells(tmp_path):
    return plan_cells(plan_of({"seed": [0, 1]}), tmp_path)


def test_too_little_disk_is_said_before_anything_starts(cells, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=2**20))
    told = r"The 2 cells to run may take \d+ MiB of disk, 1 MiB are free at .*\nChoose another disk"
    with pytest.raises(PlanError, match=told):
        check_resources(cells, tmp_path / "not" / "yet", workers=None, local=True)


def test_too_little_memory_is_said_before_anything_starts(cells, tmp_path, monkeypatch):
    monkeypatch.setattr(planning, "available_memory", lambda: 10 * 2**20)
    told = r"The cell size=gpt2-0\.1m.* needs about \d+ MiB of memory, 10 MiB are available"
    with pytest.raises(PlanError, match=told):
        check_resources(cells, tmp_path, workers=None, local=True)
    check_resources(
        cells, tmp_path, workers=None, local=False
    )  # a cluster's nodes are not this machine


def test_workers_that_do_not_fit_are_refused_or_fewer_are_taken(cells, tmp_path, monkeypatch):
    monkeypatch.setattr(planning, "available_memory", lambda: 3 * cells[0].need.memory)
    with pytest.raises(PlanError, match="4 workers need about .*\nUse --workers 3, or leave it out"):  # fmt: skip
        check_resources(cells, tmp_path, workers=4, local=True)
    check_resources(cells, tmp_path, workers=3, local=True)
    assert [affordable_workers(cells, cores) for cores in (2, 8)] == [2, 3]
