"""Tests of a plan at a k-th of its size: triplepoint.screening.shrinking."""

import pytest

from triplepoint.blueprints import Shrunk, blueprint_of
from triplepoint.errors import PlanError
from triplepoint.screening import Plan
from triplepoint.screening.shrinking import shrink_plan

PLAN = Plan(steps=1500, unique_tokens=2_000_000, batch=8, lr=3e-4, warmup=70, weight_decay=0.3)


def smaller(k):
    """A model with k times fewer parameters."""
    counts = [{"params_non_embedding": n} for n in (round(1000 * 1), round(1000 * k))]
    return Shrunk(
        blueprint=blueprint_of("gpt2-0.1m"), changes={}, width=32, params=counts[0], original=counts[1]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("k", "batch", "context"),
    [(2, 4, 128), (4, 2, 128), (8, 1, 128), (16, 1, 64), (64, 1, 16)],
)
def test_the_batch_shrinks_first_and_then_the_context(k, batch, context):
    found = shrink_plan(PLAN, smaller(k), context=128)
    assert (found.plan.batch, found.context) == (batch, context)
    assert found.plan.unique_tokens * k == PLAN.unique_tokens  # T/P
    # epochs, and with them AdamW's timescale in epochs
    assert batch * context / found.plan.unique_tokens == pytest.approx(8 * 128 / 2_000_000)
    for kept in ("steps", "lr", "warmup", "schedule", "weight_decay", "precision"):
        assert getattr(found.plan, kept) == getattr(PLAN, kept)
    assert any("unproven for point-wise ops" in note for note in found.notes)
    assert any("presets go by this width" in note for note in found.notes)
    assert any(f"its context is {context}" in note for note in found.notes) == (context < 128)
    assert not any("Epochs" in note for note in found.notes)


def test_a_batch_that_cannot_be_divided_is_said():
    found = shrink_plan(PLAN, smaller(3), context=128)
    assert found.plan.batch == 3  # 8 / 3 rounded: 9/8 of the plan's
    assert "Epochs are 1.12 times the plan's: a batch is a whole number." in found.notes


def test_too_little_text_is_said():
    enough = shrink_plan(PLAN, smaller(4), context=128)  # 3906 windows
    assert not any("are advised" in note for note in enough.notes)
    few = shrink_plan(PLAN, smaller(8), context=128)
    assert (
        "Its text has 1953 windows of 128 tokens; 2000 are advised, and fewer make its end noisy."
        in few.notes
    )


def test_a_plan_that_leaves_nothing_is_refused():
    with pytest.raises(
        PlanError, match="has 1000 unique tokens, in windows of 1: too few.*\nLeave miniatures out"
    ):
        shrink_plan(PLAN, smaller(2000), context=128)
    short = Plan(steps=10, unique_tokens=400)
    with pytest.raises(PlanError, match="has 100 unique tokens, in windows of 128"):
        shrink_plan(short, smaller(4), context=128)
    with pytest.raises(PlanError, match="without its number of unique tokens.*\nGive Plan"):
        shrink_plan(Plan(steps=10), smaller(4), context=128)
