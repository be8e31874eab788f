"""Tests of triplepoint.maps.plans."""

import pytest

from triplepoint.errors import PlanError
from triplepoint.maps import MapPlan
from triplepoint.sweeps.grid import settings_from

TEXT = """
name = "two grids"
baseline = {op = "norm", dropout = 0.0}
windows = 16
[defaults]
size = "llama-0.1m"
steps = 20
[[grid]]
op = ["norm", "dyt"]
seed = [0, 1]
[[grid]]
op = "norm"
dropout = [0.1]
[[where]]
when = {seed = 1}
set = {steps = 30}
"""


def test_a_file_and_keywords_are_two_doors_to_one_plan():
    plan = MapPlan.from_toml(TEXT)
    assert plan == MapPlan.of(
        name="two grids", baseline={"op": "norm", "dropout": 0.0}, windows=16, defaults={"size": "llama-0.1m", "steps": 20},
        grid=[{"op": ["norm", "dyt"], "seed": [0, 1]}, {"op": "norm", "dropout": [0.1]}],
        where=[{"when": {"seed": 1}, "set": {"steps": 30}}],
    )  # fmt: skip
    assert [(c.op, c.seed, c.dropout, c.steps) for c in plan.cells()] == [
        ("rmsnorm", 0, 0.0, 20), ("rmsnorm", 1, 0.0, 30), ("dyt:recommended", 0, 0.0, 20),
        ("dyt:recommended", 1, 0.0, 30), ("rmsnorm", 0, 0.1, 20),
    ]  # fmt: skip


def test_arms_are_named_by_what_differs_from_their_baseline():
    plan = MapPlan.from_toml(TEXT)
    arms = [plan.arm_of(cell) for cell in plan.cells()]
    assert arms == ["rmsnorm", "rmsnorm", "dyt:recommended", "dyt:recommended", "rmsnorm, dropout=0.1"]  # fmt: skip


def test_the_baseline_of_an_op_with_alpha_has_none():
    plan = MapPlan.from_grid("op=norm")
    cell = settings_from({"op": "dyt:paper", "alpha": 3.0, "lr": 0.5, "seed": 7})
    against = plan.baseline_of(cell)
    assert (against.op, against.alpha, against.lr, against.seed) == ("layernorm", None, 0.5, 7)
    assert plan.baseline_of(against) == against


def test_another_axis_than_the_op_can_be_what_is_compared():
    plan = MapPlan.of(
        grid={"attention": ["sdpa", "diff_v1"], "op": ["norm", "dyt"]},
        baseline={"attention": "sdpa"},
    )
    cells = plan.cells()
    assert [plan.arm_of(c) for c in cells] == [
        "layernorm", "dyt:recommended", "layernorm, attention=diff_v1", "dyt:recommended, attention=diff_v1",
    ]  # fmt: skip
    assert plan.baseline_of(cells[3]) == cells[1]


def test_a_grid_on_the_command_line_is_read_by_kind():
    cells = MapPlan.from_grid("size = gpt2-0.1m ; lr=3e-4,1e-3;steps=5;").cells()
    assert [(c.size, c.lr, c.steps) for c in cells] == [
        ("gpt2-0.1m", 3e-4, 5),
        ("gpt2-0.1m", 1e-3, 5),
    ]


def test_losses_are_measured_at_the_regular_steps_and_at_a_screen_s():
    plan = MapPlan.from_grid("steps=120", eval_every=50)
    assert plan.recipe_of(plan.cells()[0]).evaluations == (25, 50, 100, 120)
    bare = MapPlan.from_grid("steps=120", eval_every=50, looks=False)
    recipe = bare.recipe_of(bare.cells()[0])
    assert (recipe.evaluations, recipe.average_steps) == ((50, 100, 120), ())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("grid = ", "The plan is not TOML: .*\nSee examples/map.toml"),
        ("[grid]\nop = ['norm']\n[gird]", "gird: extra inputs are not permitted.*\nCorrect"),
        ("[[where]]\nwhen = {}\nset = {}", "grid: field required"),
        ("windows = 1\n[grid]\n", "windows: input should be greater than or equal to 2, got 1"),
    ],
)
def test_what_is_no_plan_says_why(text, message):
    with pytest.raises(PlanError, match=message):
        MapPlan.from_toml(text)


@pytest.mark.parametrize("text", ["op", "op=norm;op=dyt"])
def test_what_is_no_grid_says_how_to_write_one(text):
    with pytest.raises(PlanError, match='each axis once.\nWrite e.g. --grid "size='):
        MapPlan.from_grid(text)


def test_an_unknown_axis_of_the_baseline_is_refused():
    plan = MapPlan.of(grid={"op": ["norm"]}, baseline={"opp": "norm"})
    with pytest.raises(PlanError, match="There is no axis 'opp'"):
        plan.cells()
