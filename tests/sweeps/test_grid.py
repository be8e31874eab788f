"""Tests of triplepoint.sweeps.grid."""

import pytest

from triplepoint.errors import PlanError
from triplepoint.sweeps.grid import CellSettings, Override, canonical_op, expand, settings_from


def test_the_last_axis_changes_fastest_and_grids_follow_each_other():
    cells = expand(
        [{"seed": [0, 1], "lr": [1e-3, 2e-3]}, {"size": "gpt2-3m"}], defaults={"steps": 7}
    )
    assert [(c.size, c.seed, c.lr) for c in cells] == [
        ("gpt2-0.4m", 0, 1e-3), ("gpt2-0.4m", 0, 2e-3), ("gpt2-0.4m", 1, 1e-3), ("gpt2-0.4m", 1, 2e-3), ("gpt2-3m", 0, 1e-3),
    ]  # fmt: skip
    assert {c.steps for c in cells} == {7}


def test_overrides_apply_where_all_axes_match_in_any_spelling():
    override = Override(
        when={"op": ["dyt", "derf"], "unique_tokens": 2000}, set={"steps": 9, "lr": 0.5}
    )
    grid = {"op": ["norm", "dyt:recommended", "derf"], "unique_tokens": [2000, 3000]}
    cells = expand([grid], defaults={"steps": 5}, overrides=[override])
    changed = [(c.op, c.unique_tokens) for c in cells if (c.steps, c.lr) == (9, 0.5)]
    assert changed == [("dyt:recommended", 2000), ("derf:recommended", 2000)]
    assert {c.steps for c in cells} == {5, 9}


def test_overrides_apply_in_order():
    overrides = [
        Override(when={"seed": 0}, set={"steps": 2}),
        Override(when={"steps": 2}, set={"lr": 0.2}),
    ]
    (cell,) = expand([{"seed": [0]}], defaults={}, overrides=overrides)
    assert (cell.steps, cell.lr) == (2, 0.2)


@pytest.mark.parametrize(
    ("op", "family", "expected"),
    [
        ("norm", "gpt2", "layernorm"), ("norm", "llama", "rmsnorm"), ("norm", "vit", "layernorm"),
        ("rmsnorm", "gpt2", "rmsnorm"), ("dyt", "gpt2", "dyt:recommended"), (" dyt:paper", "llama", "dyt:paper"),
    ],
)  # fmt: skip
def test_an_op_has_one_spelling(op, family, expected):
    assert canonical_op(op, family) == expected


def test_what_the_size_is_anyway_is_left_out():
    spelt = CellSettings(size="llama-0.1m", ffn="swiglu", heads=4, attention="gated", context=128)
    assert spelt.canonical().changes == {"attention": "gated"}
    assert spelt.canonical().context is None


@pytest.mark.parametrize(
    "grid",
    [
        {"op": ["dyt", "dyt:recommended"]},
        {"size": ["llama-0.1m"], "op": ["norm", "rmsnorm"]},
        {"attention": ["sdpa", "sdpa"]},
        {"lr": [1e-3, 0.001]},
    ],
    ids=["preset", "own-norm", "twice", "float"],
)
def test_a_cell_that_is_there_twice_is_refused(grid):
    with pytest.raises(PlanError, match="1 of 2 cells are duplicates, the first: .*\nName each"):
        expand([grid], defaults={})


def test_overrides_that_make_cells_equal_are_refused():
    override = Override(when={"lr": 0.1}, set={"lr": 0.2})
    with pytest.raises(PlanError, match=r"duplicates, the first: .*lr=0\.2.*\n.*\[\[where\]\] may"):
        expand([{"lr": [0.1, 0.2]}], defaults={}, overrides=[override])


def test_an_override_of_no_cell_is_a_slip():
    override = Override(when={"unique_tokens": 2000}, set={"steps": 9})
    told = r"No cell matches \[\[where\]\] number 1: {'unique_tokens': 2000}\.\nCorrect it"
    with pytest.raises(PlanError, match=told):
        expand([{"unique_tokens": [20000]}], defaults={}, overrides=[override])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sise": "x"}, "There is no axis 'sise'.\nDid you mean 'size'"),
        ({"steps": "many"}, "steps: input should be a valid integer.*got 'many'.\nCorrect"),
        ({"steps": 0}, "steps: input should be greater than 0, got 0.\nCorrect"),
        ({"op": "dty"}, "There is no op 'dty'.\nDid you mean 'dyt'"),
    ],
)
def test_what_is_no_cell_says_why(values, message):
    with pytest.raises(Exception, match=message):
        settings_from(values).canonical()


def test_an_axis_without_values_is_refused():
    with pytest.raises(PlanError, match="The axis seed has no value.\nGive at least one"):
        expand([{"seed": []}], defaults={})


def test_a_plan_without_cells_is_refused():
    with pytest.raises(PlanError, match="The plan has no cell.\nGive a grid"):
        expand([], defaults={})
