"""Tests of what miniatures say: triplepoint.screening.miniature_evidence."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triplepoint.errors import StatisticsError
from triplepoint.evidence import Truth
from triplepoint.screening.arms import Arms
from triplepoint.screening.miniature_evidence import (
    Miniature,
    MiniatureEvidence,
    MiniaturePair,
    extrapolate,
    has_learned,
    miniature_of,
    onset_epoch,
)
from triplepoint.screening.plans import Plan
from triplepoint.screening.shrinking import ShrunkPlan
from triplepoint.sweeps import ArmRun


def truth(delta, half=0.0):
    """A difference with an interval of this half width."""
    ends = (delta - half, delta + half)
    return Truth(delta_rel=delta, interval=ends, by_seed=(delta,), intervals=(ends,), margin=0.005)


def test_two_sizes_a_factor_of_four_apart_give_twice_the_larger_less_the_smaller():
    found = extrapolate({4.0: truth(0.10, 0.0196), 16.0: truth(0.06, 0.0392)})
    assert found.delta_rel == pytest.approx(2 * 0.10 - 0.06)
    assert found.standard_error == pytest.approx(np.hypot(2 * 0.01, 0.02), rel=1e-4)
    # 0.14 > 2 x 0.0283 + 0.02
    assert (found.trusted, found.winner) == (True, "baseline")


@given(st.dictionaries(st.floats(1.5, 300), st.floats(-0.5, 0.5), min_size=2, max_size=5))
def test_it_is_the_least_squares_line(found):
    x, y = np.log(list(found)), list(found.values())
    if np.ptp(x) < 0.1:
        return
    expected = np.polyval(np.polyfit(x, y, 1), 0)
    assert extrapolate({k: truth(d) for k, d in found.items()}).delta_rel == pytest.approx(
        expected, abs=1e-6
    )


@pytest.mark.parametrize(
    ("at_4", "at_16", "half", "winner"),
    [
        (-0.10, -0.12, 0.0, "candidate"),
        (0.10, -0.01, 0.0, None),  # two signs
        (0.03, 0.10, 0.0, None),  # the line changes sign before 1
        (0.021, 0.021, 0.0, "baseline"),  # beyond 0.02
        (0.019, 0.019, 0.0, None),
        (0.10, 0.10, 0.0784, None),  # SE 0.04 each, 2 SE of the line are 0.18
    ],
)
def test_a_sign_is_trusted_where_all_sizes_and_the_line_are_clear_of_zero(
    at_4, at_16, half, winner
):
    assert extrapolate({4.0: truth(at_4, half), 16.0: truth(at_16, half)}).winner == winner


def test_one_size_has_no_line():
    with pytest.raises(StatisticsError, match="two sizes, got 1.\nTry ks"):
        extrapolate({4.0: truth(0.1)})


def test_over_fitting_begins_at_the_lowest_loss_if_the_end_is_more_than_a_tie_above():
    epochs = np.array([1.0, 2.0, 3.0])
    assert onset_epoch(np.array([3.0, 2.0, 2.02]), epochs) == 2.0
    assert onset_epoch(np.array([3.0, 2.0, 2.009]), epochs) is None
    assert onset_epoch(np.array([3.0, 2.0, 1.5]), epochs) is None


def miniature(k, *, fixed, best, diverged=False, learned=True):
    found = None if diverged else {"fixed_step": truth(fixed), "best_checkpoint": truth(best)}
    curve = np.array([0.5, 1.0])
    plan = ShrunkPlan(plan=Plan(steps=2, unique_tokens=100), context=8, notes=("a note",))
    return Miniature(
        k=k, width=16, shrunk=plan, clock=curve, train=curve, val=curve, onset_epoch=None,
        candidates={"dyt:paper": MiniaturePair(truth=found, speed_ratio=0.5, offset=0.1, learned=learned)}, seconds=1.0, share=0.1,
    )  # fmt: skip


def test_endpoints_are_extrapolated_each_on_its_own():
    evidence = MiniatureEvidence((miniature(16.0, fixed=-0.2, best=0.1), miniature(4.0, fixed=-0.2, best=0.2)))  # fmt: skip
    assert evidence.extrapolated("dyt:paper", "fixed_step").winner == "candidate"
    told = json.loads(json.dumps(evidence.to_dict()))
    assert told["extrapolated"]["dyt:paper"]["best_checkpoint"]["winner"] == "baseline"
    assert told["extrapolated"]["dyt:paper"]["best_checkpoint"]["delta_rel"] == pytest.approx(0.3)
    assert told["miniatures"][0]["notes"] == ["a note"]
    assert told["miniatures"][0]["candidates"]["dyt:paper"]["fixed_step"]["winner"] == "candidate"


def test_nothing_is_extrapolated_from_an_arm_that_diverged():
    evidence = MiniatureEvidence((miniature(16.0, fixed=0, best=0, diverged=True), miniature(4.0, fixed=0.1, best=0.1)))  # fmt: skip
    assert evidence.extrapolated("dyt:paper", "fixed_step") is None
    told = evidence.to_dict()
    assert told["extrapolated"]["dyt:paper"]["fixed_step"] is None
    assert told["miniatures"][0]["candidates"]["dyt:paper"]["fixed_step"] is None


def test_a_sign_of_arms_that_learned_nothing_is_not_trusted():
    sizes = [miniature(16.0, fixed=-0.2, best=0.1, learned=False), miniature(4.0, fixed=-0.2, best=0.1)]  # fmt: skip
    found = MiniatureEvidence(tuple(sizes)).extrapolated("dyt:paper", "fixed_step")
    assert found.agree and not found.learned and found.winner is None


def test_an_arm_has_learned_where_every_seed_left_the_plateau_in_training():
    plateau = {"train": 3.0, "val": 2.0}
    left, stayed = np.array([[3.0, 3.0], [2.9, 2.9]]), np.array([[3.0, 3.0], [2.96, 2.96]])
    assert has_learned(np.stack([left, left]), plateau)
    assert not has_learned(np.stack([left, stayed]), plateau)
    assert has_learned(stayed[None], None)


def test_what_could_not_be_kept_is_said_once():
    sizes = (miniature(16.0, fixed=0.1, best=0.1), miniature(4.0, fixed=0.1, best=0.1))
    assert MiniatureEvidence(sizes).notes == ["a note"]
    assert MiniatureEvidence(sizes).seconds == 2.0


def test_a_baseline_that_diverged_at_once_has_no_onset():
    assert onset_epoch(np.array([]), np.array([])) is None


def test_a_baseline_that_was_never_evaluated_leaves_an_empty_curve():
    gone = ArmRun(
        path=None, arm="layernorm", seed=0, outcome="diverged", last_step=2, diverged_at=2, plateau=None, facts={},
        arrays={}, records=[],
    )  # fmt: skip
    arms = [Arms(name, (gone,), name, None, 1e-3) for name in ("layernorm", "dyt")]
    plan = ShrunkPlan(plan=Plan(steps=2, unique_tokens=100), context=8, notes=())
    found = miniature_of(arms[0], arms[1:], k=4.0, width=8, shrunk=plan, seconds=1.0, share=0.1)
    assert (len(found.val), found.onset_epoch, found.candidates["dyt"].truth) == (0, None, None)
    json.dumps(MiniatureEvidence((found, found)).to_dict(), allow_nan=False)
