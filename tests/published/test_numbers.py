"""Tests of the paper's printed numbers and per-seed values."""

import pytest

from triplepoint.published import load_cells, load_printed, load_values


def test_values_of_the_cells_are_not_kept_twice():
    cell = next(c for c in load_cells() if c.name == "S2/118M")
    values = load_values()["S2/118M layernorm loss"]
    assert list(values.seeds.values()) == list(cell.baseline_loss.values())
    assert (values.decimals, values.source) == (4, "results/scaling.json")


def test_every_value_has_no_more_digits_than_it_says():
    for v in load_values().values():
        assert v.unit and v.source, v.name
        for value in v.seeds.values():
            if v.decimals is not None:
                assert value == pytest.approx(round(value, v.decimals), abs=1e-12), v.name


def test_printed_derived_and_closed_rows():
    rows = load_printed()
    kinds = {
        "printed": [r for r in rows if r.text and r.quantity],
        "derived": [r for r in rows if r.text is None],
        "closed": [r for r in rows if not r.quantity],
    }
    assert sum(map(len, kinds.values())) == len(rows)
    assert all(r.where for r in kinds["printed"])
    assert all(r.note and r.text for r in kinds["closed"])


def test_a_number_stands_once_in_a_table():
    keys = [(r.where, r.what) for r in load_printed()]
    assert len(set(keys)) == len(keys)
