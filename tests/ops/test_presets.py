"""Tests of triplepoint.ops.presets and of the names of ops."""

import pytest

from triplepoint.errors import UnknownNameError
from triplepoint.ops import OPS, PRESETS, parse_op_name
from triplepoint.ops.presets import alpha_by_role


@pytest.mark.parametrize(
    ("width", "attention", "other"),
    [
        (1024, 1.0, 1.0),
        (2048, 1.0, 0.5),
        (4096, 0.8, 0.2),
        # ln(4096/3000) = 0.311 < ln(3000/2048) = 0.382; on a linear scale 2048 would be nearer
        (3000, 0.8, 0.2),
        (2890, 1.0, 0.5),
        (96, 1.0, 1.0),
        (100_000, 0.8, 0.2),
    ],
)
def test_alpha_comes_from_the_nearest_tabled_width(width, attention, other):
    assert alpha_by_role(width, "pre_attn") == attention
    assert {alpha_by_role(width, role) for role in ("pre_mlp", "final", "other")} == {other}


def test_every_op_has_presets_and_no_preset_is_of_another():
    assert set(PRESETS) == set(OPS)
    for presets in PRESETS.values():
        assert all(preset.name == name for name, preset in presets.items())


def test_the_papers_dyt_has_alpha_two_and_no_embedding_scale():
    name, preset = parse_op_name("dyt:paper")
    assert (name, preset.embedding_scale) == ("dyt", False)
    assert {preset.alpha(w, r) for w in (96, 4096) for r in ("pre_attn", "final")} == {2.0}


def test_an_op_name_alone_means_its_recommended_preset():
    assert parse_op_name(" dyt ") == parse_op_name("dyt:recommended")
    assert parse_op_name("derf")[1].alpha(96, "final") == 1.0


def test_an_unknown_op_suggests_the_nearest():
    with pytest.raises(UnknownNameError) as caught:
        parse_op_name("DTY:paper")
    assert str(caught.value).split("\n") == [
        "There is no op 'DTY'.",
        f"Did you mean 'dyt'? Known: {', '.join(PRESETS)}.",
    ]


def test_an_unknown_preset_suggests_the_nearest():
    with pytest.raises(LookupError) as caught:
        parse_op_name("dyt:papper")
    assert str(caught.value).split("\n") == [
        "There is no dyt preset 'papper'.",
        "Did you mean 'paper'? Known: paper, recommended.",
    ]


def test_a_colon_with_no_preset_behind_it_is_refused():
    with pytest.raises(UnknownNameError) as caught:
        parse_op_name("dyt:")
    assert str(caught.value).split("\n") == [
        "There is no dyt preset ''.",
        "Known: paper, recommended.",
    ]


def test_nothing_is_suggested_where_nothing_is_near():
    with pytest.raises(UnknownNameError) as caught:
        parse_op_name("xylophone")
    assert str(caught.value).split("\n")[1] == f"Known: {', '.join(PRESETS)}."
