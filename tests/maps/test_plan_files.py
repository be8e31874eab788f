"""The plans in the repository can be run."""

from pathlib import Path

import pytest

from triplepoint.maps import MapPlan
from triplepoint.maps.planning import plan_cells

ROOT = Path(__file__).parents[2]
PLANS = [*ROOT.glob("examples/*.toml"), *ROOT.glob("studies/*/*.toml")]


@pytest.mark.parametrize("file", PLANS, ids=lambda file: file.parent.name)
def test_every_cell_of_a_plan_is_possible_and_has_its_baseline(file, tmp_path):
    plan = MapPlan.from_toml(file.read_text())
    cells = plan.cells()
    if cells[0].family == "vit":
        pytest.importorskip("sklearn")
    planned = plan_cells(plan, tmp_path)
    assert len(planned) == len(cells)
    there = set(cells)
    assert [c.told() for c in cells if plan.baseline_of(c) not in there] == []
