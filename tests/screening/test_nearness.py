"""Tests of triplepoint.screening.nearness: where a plan lies among the benchmark's cells."""

import dataclasses

import numpy as np
import pytest

from triplepoint.evidence import Setting
from triplepoint.screening.nearness import Neighbourhood, place_of


def setting(unique=10_000, params=1000, steps=1000, architecture="gpt2"):
    return Setting(
        architecture=architecture, size="gpt2-0.1m", corpus="stdlib", unique_tokens=unique,
        params={"params_no_positions": params}, steps=steps, tokens_per_step=100, lr=1e-3, candidate_lr=1e-3, rate="plan",
        warmup=10, schedule="cosine", plateau=3.0,
    )  # fmt: skip


GRID = [setting(unique=u, params=p) for u in (1000, 10_000, 100_000) for p in (1000, 4000)]
OPS = ["dyt:paper"] * 5 + ["layernorm"]
NEAR = Neighbourhood(GRID, OPS, 500)


def test_a_cell_is_inside_and_its_own_nearest():
    found = NEAR.nearness(GRID[3], "dyt:recommended")
    assert (found.where, found.why) == ("inside", None)
    assert found.nearest[0].number == 3
    assert found.nearest[0].distance == 0.0
    assert len(found.nearest) == 3


def test_far_plans_are_outside_and_say_what_is_far():
    found = NEAR.nearness(setting(params=10**9), "dyt")
    assert found.where == "outside"
    assert found.why.startswith(("parameters: 1e+09", "tokens per parameter"))
    assert found.ratio > 2


def test_between_the_usual_distance_and_twice_it_a_plan_is_mildly_like_the_cells():
    places = [NEAR.nearness(setting(params=p), "dyt") for p in np.geomspace(4000, 10**7, 40).astype(int)]  # fmt: skip
    order = [p.where for p in places]
    assert order == sorted(order, key=("inside", "mild", "outside").index)
    assert set(order) == {"inside", "mild", "outside"}


@pytest.mark.parametrize(
    ("plan", "op", "why"),
    [
        (GRID[0], "groupnorm", "no cell of the benchmark has the op groupnorm"),
        (setting(architecture="vit"), "dyt", "no cell of the benchmark has the architecture vit"),
        (setting(steps=9000), "dyt", "18 times as long as the look, the benchmark's at most 2 times"),
    ],
)  # fmt: skip
def test_what_the_benchmark_has_not_at_all_is_outside(plan, op, why):
    found = NEAR.nearness(plan, op)
    assert found.where == "outside"
    assert why in found.why


def test_a_variant_of_an_architecture_is_its_family():
    plan = dataclasses.replace(GRID[0], architecture="gpt2 attention=diff_v1")
    assert NEAR.nearness(plan, "dyt").where == "inside"


def test_a_place_is_what_the_plan_is_in_logarithms():
    assert np.exp(place_of(setting(), 500)) == pytest.approx([1000, 10, 10, 2])


def test_of_equally_near_cells_those_with_the_op_come_first_then_those_at_the_rate():
    rates = [dataclasses.replace(GRID[0], candidate_lr=lr) for lr in (1e-3, 4e-3, 1e-3, 4e-3)]
    ops = ["dyt:paper", "dyt:recommended", "dyt:recommended", "derf:recommended"]
    near = Neighbourhood([*rates, GRID[5]], [*ops, "dyt:paper"], 500)
    found = near.nearness(rates[0], "dyt:recommended", count=4)
    assert [n.number for n in found.nearest] == [2, 1, 0, 3]
