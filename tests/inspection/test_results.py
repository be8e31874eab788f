"""Two inspections side by side."""

import pytest

from triplepoint.errors import CheckpointError
from triplepoint.inspection import Inspection, Layer, compare


def inspection(name, *layers):
    return Inspection(source=name, measured=list(layers), skipped=[])


def layer(name, shape=(4, 4), **values):
    return Layer(name=name, tensor=f"{name}.weight", kind="linear", shape=shape, values=values)


def test_changes_come_largest_first_relative_to_their_size():
    before = inspection(
        "a", layer("x", stable_rank=100.0, log_norm=1.0), layer("y", stable_rank=2.0)
    )
    after = inspection(
        "b", layer("x", stable_rank=101.0, log_norm=-1.0), layer("y", stable_rank=3.0)
    )
    changes = compare(before, after).changes
    assert [(c.name, c.metric, c.difference) for c in changes] == [
        ("x", "log_norm", -2.0), ("y", "stable_rank", 1.0), ("x", "stable_rank", 1.0),
    ]  # fmt: skip


def test_what_is_only_in_one_or_changed_its_shape_is_named():
    before = inspection("a", layer("x", stable_rank=1.0), layer("old"), layer("grown"))
    after = inspection("b", layer("x"), layer("new"), layer("grown", shape=(8, 4)))
    comparison = compare(before, after)
    assert comparison.changes == []
    assert {u.name: u.reason for u in comparison.unmatched} == {
        "old": "only in a", "new": "only in b", "grown": "of shape [4, 4] in a",
    }  # fmt: skip


def test_nothing_in_common_is_refused():
    with pytest.raises(CheckpointError) as caught:
        compare(inspection("a", layer("x")), inspection("b", layer("y")))
    assert str(caught.value) == (
        "a and b have no matrix of the same name and shape.\nCompare two checkpoints of one model."
    )
